//! How staged runs become writes.
//!
//! Runs that lie side by side in the file become one write, wherever they stand in the log. Runs
//! that overlap keep the log's order, so that the last write wins as it did in the program. The
//! log's order is all a plan must respect, since nothing of it is released before all is written.

use shm::staging::{APPEND, APPEND_MAX, CUT_OFF, Run};

/// Runs that are written by one call, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) file_at: u64,
    pub(super) runs: Vec<Run>,
    len: u64,
}

impl Batch {
    fn of(run: Run) -> Self {
        Self { file_at: run.file_at, runs: vec![run], len: run.len }
    }

    fn end(&self) -> u64 {
        self.file_at + self.len
    }

    fn overlaps(&self, run: &Run) -> bool {
        self.file_at < run.file_at + run.len && run.file_at < self.end()
    }
}

/// The writes of `runs`, which stand in log order and have places in the file.
///
/// A batch of the result never overlaps another, except one that comes after it and holds newer
/// bytes.
pub(super) fn batches(runs: &[Run]) -> Vec<Batch> {
    let mut done = Vec::new();
    // Disjoint batches that may be written in any order, sorted by place.
    let mut open: Vec<Batch> = Vec::new();
    for run in runs {
        if open.iter().any(|batch| batch.overlaps(run)) {
            done.append(&mut open);
        }
        add(&mut open, *run);
    }
    done.append(&mut open);
    debug_assert_eq!(
        len_of(runs),
        done.iter().map(|batch| len_of(&batch.runs)).sum::<u64>(),
        "every run is in one batch"
    );
    done
}

fn len_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

/// The appends of `runs`: those that the end of a ring of `log_len` bytes has parted go together.
pub(super) fn appends(runs: &[Run], log_len: u64) -> Vec<Run> {
    debug_assert!(log_len.is_power_of_two(), "positions wrap by a mask");
    let mut appends: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match appends.last_mut() {
            Some(last) if run.start & (log_len - 1) == 0 && last.len + run.len <= APPEND_MAX => {
                last.len += run.len;
            }
            _ => appends.push(*run),
        }
    }
    appends
}

/// The part of `runs` to write now: what lies before log position `wanted`, and whole stripes of
/// `stripe_len` bytes of the file. The last part of one waits for the rest of it, if that is to
/// continue it; so `runs` is shortened in place.
pub(super) fn whole_stripes(runs: &mut [Run], stripe_len: u64, wanted: u64) -> &[Run] {
    debug_assert!(stripe_len > 0, "a stripe has bytes");
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return runs };
    let (start, end) = (first.start, last.start + last.len);
    let mut file_at = last.file_at.saturating_add(last.len);
    let cut = end.saturating_sub(file_at % stripe_len);
    let is_wanted = wanted > cut.max(start) && wanted <= end;
    if matches!(last.file_at, APPEND | CUT_OFF) || is_wanted {
        return runs;
    }
    let mut count = runs.len();
    for run in runs.iter_mut().rev() {
        if run.file_at.saturating_add(run.len) != file_at {
            return runs;
        }
        if run.start < cut {
            run.len = run.len.min(cut - run.start);
            break;
        }
        file_at = run.file_at;
        count -= 1;
    }
    if count == 0 && wanted > start { runs } else { runs.get(..count).unwrap_or_default() }
}

/// Bytes of the first of `count` runs, with the second one if that only goes on at the ring's
/// start.
pub(super) fn joined(runs: [Run; 2], count: usize, log_len: u64) -> u64 {
    let [first, second] = runs;
    let continues = first.file_at == second.file_at && first.file_at == u64::MAX
        || first.file_at.checked_add(first.len) == Some(second.file_at);
    let wraps = count > 1 && second.start & (log_len - 1) == 0;
    if wraps && continues { first.len + second.len } else { first.len }
}

/// Adds a run that overlaps nothing, joined to its neighbours.
fn add(open: &mut Vec<Batch>, run: Run) {
    debug_assert!(open.is_sorted_by(|a, b| a.end() <= b.file_at), "open batches are disjoint");
    let index = open.partition_point(|batch| batch.file_at < run.file_at);
    let before = index.checked_sub(1).and_then(|before| open.get_mut(before));
    let index = match before {
        Some(before) if before.end() == run.file_at => {
            before.runs.push(run);
            before.len += run.len;
            index - 1
        }
        _ => {
            open.insert(index, Batch::of(run));
            index
        }
    };
    let end = open.get(index).map(Batch::end);
    let follows = open.get(index + 1).is_some_and(|next| Some(next.file_at) == end);
    if follows {
        let next = open.remove(index + 1);
        if let Some(batch) = open.get_mut(index) {
            batch.runs.extend(next.runs);
            batch.len += next.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(extents: &[(u64, u64)]) -> Vec<Run> {
        let mut start = 0;
        let run = |&(file_at, len): &(u64, u64)| {
            start += len;
            Run { file_at, start: start - len, len }
        };
        extents.iter().map(run).collect()
    }

    fn places(batches: &[Batch]) -> Vec<(u64, u64)> {
        batches.iter().map(|batch| (batch.file_at, batch.len)).collect()
    }

    #[test]
    fn neighbours_become_one_write_in_any_order() {
        let plan = batches(&runs(&[(8, 4), (0, 4), (100, 1), (4, 4), (12, 1)]));
        assert_eq!(places(&plan), [(0, 13), (100, 1)]);
        let order: Vec<u64> = plan[0].runs.iter().map(|run| run.file_at).collect();
        assert_eq!(order, [0, 4, 8, 12]);
    }

    #[test]
    fn overlapping_runs_keep_their_order() {
        assert_eq!(places(&batches(&runs(&[(0, 8), (4, 8), (4, 2)]))), [(0, 8), (4, 8), (4, 2)]);
    }

    #[test]
    fn appends_that_the_end_of_the_log_has_parted_go_together() {
        let run = |start, len| Run { file_at: u64::MAX, start, len };
        let parted = [run(100, 156), run(256, 4), run(260, 9)];
        assert_eq!(appends(&parted, 256), [run(100, 160), run(260, 9)]);
        let long = [run(0, APPEND_MAX), run(APPEND_MAX, 1)];
        assert_eq!(appends(&long, APPEND_MAX), long);
    }

    #[test]
    fn unit_ends_with_a_stripe_where_more_comes_behind_it() {
        // Three runs of one stretch of the file, from 50 to 350, in the log from 0 to 300.
        let stretch = runs(&[(50, 100), (150, 100), (250, 100)]);
        for (wanted, expected) in [(0, 250), (250, 250), (251, 300), (300, 300), (900, 250)] {
            let mut runs = stretch.clone();
            let found = whole_stripes(&mut runs, 100, wanted);
            assert_eq!(len_of(found), expected, "{wanted}");
            assert!(found.iter().all(|run| run.len > 0), "{found:?}");
        }
        // A stripe that is not whole waits, unless it is wanted; what is apart from it does not.
        for (extents, wanted, expected) in [
            (&[(10, 20), (30, 20)][..], 0, 0),
            (&[(10, 20), (30, 20)], 1, 40),
            (&[(0, 150), (200, 50), (250, 40)], 0, 240),
            (&[(0, 150), (150, 20), (170, 10)], 0, 100),
            (&[(u64::MAX, 50)], 0, 50),
        ] {
            let found = len_of(whole_stripes(&mut runs(extents), 100, wanted));
            assert_eq!(found, expected, "{extents:?} {wanted}");
        }
    }

    #[test]
    fn no_runs_no_writes() {
        assert!(batches(&[]).is_empty());
    }

    /// Random runs, written in the plan's order, leave the bytes that the log's order leaves.
    #[test]
    fn plan_leaves_the_bytes_of_the_log() {
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let extents: Vec<(u64, u64)> =
                (0..random.usize(1..40)).map(|_| (random.u64(0..64), random.u64(1..12))).collect();
            let runs = runs(&extents);
            let (mut expected, mut written) = ([0; 80], [0; 80]);
            for run in &runs {
                write(&mut expected, run.file_at, run);
            }
            for batch in batches(&runs) {
                let mut at = batch.file_at;
                for run in &batch.runs {
                    write(&mut written, at, run);
                    at += run.len;
                }
            }
            assert_eq!(written, expected, "SEED={seed}");
        }
    }

    /// Every staged byte is told apart by its position in the log.
    fn write(file: &mut [u64; 80], at: u64, run: &Run) {
        for i in 0..run.len {
            file[usize::try_from(at + i).unwrap()] = run.start + i + 1;
        }
    }
}
