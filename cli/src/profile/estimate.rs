//! The time that the same writes would have taken without delegation.
//!
//! It costs the run nothing where the kernel has executed some writes, and the client timed them to
//! decide whether to stage. Where such a write takes less than [`DEAR`], the first one of a file
//! says little of the others. These are tried when the job has ended, for a [`SHARE`] of its time.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use super::records::{Class, Records, SIZES};

/// Most calls that are made for each size, and most bytes.
const CALLS: u64 = 256;
const BYTES_MAX: u64 = 16 << 20;
/// Part of the job's time for which writes are tried.
const SHARE: u32 = 400;
/// A write that takes as long waits for a file system, whatever it has to be prepared for.
const DEAR: Duration = Duration::from_micros(20);

/// Times of all processes together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// Time that writes and the work at closes took, by those calls that were timed.
    pub(crate) taken: Duration,
    /// Time that they would have taken.
    pub(crate) native: Duration,
    pub(crate) writes: u64,
    pub(crate) by: MeasuredBy,
}

/// Writes whose time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredBy {
    /// The kernel executed them while the job ran.
    Run,
    /// They were made when it had ended.
    Trial,
}

impl MeasuredBy {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Run => "those of similar sizes that the kernel executed while the job ran",
            Self::Trial => {
                "calls of the same sizes that were made one after the other, in the same folder, \
                 after the job had ended; what else the file system did meanwhile is not in it"
            }
        }
    }
}

impl Estimate {
    /// Of a job that took `time`. `None`: too little was written to say anything, or nothing can be
    /// tried where it was.
    pub(super) fn of(records: &Records, time: Duration) -> Option<Self> {
        let timed = records.writes.iter().filter(|class| class.timed > 0);
        let writes = timed.clone().map(|class| class.calls).sum();
        let taken_ns = timed.map(|class| of_all(class.timed_ns, class.timed, class.calls));
        let closes_ns = records.processes.iter().map(|process| u128::from(process.close_ns));
        let (native_ns, by) = match measured(records) {
            Some(native_ns) => (native_ns, MeasuredBy::Run),
            None => (tried(records, time / SHARE)?, MeasuredBy::Trial),
        };
        let time = |ns: u128| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let taken = time(taken_ns.chain(closes_ns).sum());
        (writes > 0).then_some(Self { taken, native: time(native_ns), writes, by })
    }
}

/// The time of `calls`, if `timed` of them took `timed_ns`.
fn of_all(timed_ns: u64, timed: u64, calls: u64) -> u128 {
    u128::from(timed_ns) * u128::from(calls) / u128::from(timed.max(1))
}

/// The time of all timed writes, if each takes as long as a known one of the most similar size.
fn of_known(writes: &[Class; SIZES], known: &[Class; SIZES]) -> Option<u128> {
    let known = |size: usize| {
        let all = known.iter().enumerate().filter(|(_, class)| class.timed > 0);
        all.min_by_key(|(other, _)| other.abs_diff(size)).map(|(_, class)| class)
    };
    let timed = writes.iter().enumerate().filter(|(_, class)| class.timed > 0);
    timed
        .map(|(size, class)| {
            known(size).map(|known| of_all(known.timed_ns, known.timed, class.calls))
        })
        .sum()
}

/// As the kernel's writes of the run took; `None` where there are none, or they were fast.
fn measured(records: &Records) -> Option<u128> {
    let all = Records::total(&records.measured);
    let mean = Duration::from_nanos(all.timed_ns.checked_div(all.timed)?);
    (mean >= DEAR).then(|| of_known(&records.writes, &records.measured))?
}

/// As writes take that are tried now, for about `time`: the sizes of most calls first.
fn tried(records: &Records, time: Duration) -> Option<u128> {
    let folder = records.files.iter().filter(|file| file.written > 0).find_map(|file| {
        // What was there may have been removed, or be below a mapped folder.
        Path::new(&file.path).parent().filter(|folder| folder.is_dir())
    })?;
    let mut sizes: Vec<_> = records.writes.iter().enumerate().collect();
    sizes.retain(|(_, class)| class.timed > 0);
    sizes.sort_by_key(|(_, class)| std::cmp::Reverse(class.calls));
    let share = time / u32::try_from(sizes.len()).ok()?.max(1);
    let (began, mut known) = (Instant::now(), [Class::default(); SIZES]);
    let mut file = tempfile::tempfile_in(folder).ok()?;
    for (index, (size, class)) in sizes.into_iter().enumerate() {
        if index > 0 && began.elapsed() > time {
            break;
        }
        *known.get_mut(size)? = try_writes(&mut file, class, share).ok()?;
    }
    of_known(&records.writes, &known)
}

/// Writes of the mean size of a class, for about `time`.
fn try_writes(file: &mut File, class: &Class, time: Duration) -> io::Result<Class> {
    let size = (class.bytes / class.calls.max(1)).clamp(1, BYTES_MAX);
    let most = CALLS.min(BYTES_MAX / size).max(1);
    let data = vec![0x5a; usize::try_from(size).unwrap_or(1)];
    let (began, mut tried) = (Instant::now(), Class::default());
    while tried.timed == 0 || tried.timed < most && began.elapsed() < time {
        file.write_all(&data)?;
        tried.timed += 1;
    }
    tried.timed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(tried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::File as Written;

    fn class(calls: u64, each_ns: u64) -> Class {
        Class { calls, bytes: calls * 100, timed: calls, timed_ns: calls * each_ns }
    }

    fn records(folder: &Path) -> Records {
        let mut records = Records::default();
        records.writes[1] = class(1000, 100);
        let path = folder.join("file").to_string_lossy().into_owned();
        records.files.push(Written { path, written: 1, ..Written::default() });
        records
    }

    #[test]
    fn slow_writes_of_the_run_are_taken_and_none_are_tried() {
        let mut records = records(Path::new("/nowhere"));
        records.measured[2] = class(4, 200_000);
        let estimate = Estimate::of(&records, Duration::ZERO).expect("an estimate");
        assert_eq!((estimate.by, estimate.writes), (MeasuredBy::Run, 1000));
        let millis = [estimate.native, estimate.taken].map(|time| time.as_micros());
        assert_eq!(millis, [200_000, 100]);
    }

    #[test]
    fn writes_are_tried_for_a_share_of_the_time_of_the_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut records = records(folder.path());
        // A first write says nothing of others where it is fast.
        records.measured[1] = class(1, 5_000);
        let began = Instant::now();
        let estimate = Estimate::of(&records, Duration::from_secs(1)).expect("an estimate");
        assert_eq!(estimate.by, MeasuredBy::Trial);
        assert!(!estimate.native.is_zero());
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        records.files.clear();
        assert!(Estimate::of(&records, Duration::from_secs(1)).is_none(), "nowhere to try");
    }
}
