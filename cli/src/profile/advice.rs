//! The meaning of the numbers, in plain words.

use daemon::Summary;

use super::{
    Facts,
    records::{Records, SIZES, least},
};
use crate::{costs::Opens, report, size::Size};

/// Why bytes or files were not delegated, by the names of the statistics: what that means, and what
/// can be done.
const REASONS: [(&str, &str); 15] = [
    (
        "inherited",
        "were opened by another program, as by a shell's redirection; have the program \
      open its file itself",
    ),
    (
        "kernel_copy",
        "were moved by the kernel (copy_file_range, sendfile, splice), which is faster \
      than any copy",
    ),
    ("mapped", "were mapped for writing, so the kernel has to serve them"),
    (
        "forked",
        "were open across fork, and parent and child share one position; open them after it",
    ),
    ("passed_on", "were handed to another program"),
    ("rule", "are named by a rule with the policy 'pass'"),
    ("pseudo", "are made up by the kernel, as those in /proc"),
    ("credit", "found no room: raise KAKEHI_STAGING or KAKEHI_MEMORY, or the limit on open files"),
    ("daemon_lost", "had no daemon any more; its log says why"),
    ("exiting", "were written after the program's last destructor"),
    ("unsupported", "were opened or used in a way that delegation does not serve, as O_DIRECT"),
    (
        "large",
        "were written in pieces so large that copying costs what writing costs; the program \
      wrote them itself, which is as intended",
    ),
    ("standard_stream", "became standard input, output, or error"),
    (
        "first",
        "were first writes of files: staging begins once it repays the hand-over, which is as \
      intended",
    ),
    (
        "synchronous",
        "had to be in the file system when each call returned: O_SYNC, locks, or \
      another opener",
    ),
];

/// Calls below this are small.
const SMALL: u64 = 1 << 10;
/// From so many files on, one multifile is easier on a parallel file system.
const MANY_FILES: usize = 64;
const SMALL_FILE: u64 = 4 << 20;
/// An executor that works for this share of its life is a bottleneck, in thousandths.
const BUSY: u32 = 900;

/// The meaning of a reason.
pub(super) fn meaning(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("", |(_, meaning)| meaning)
}

/// Sentences about a job, the most important first.
pub(super) fn sentences(facts: &Facts<'_>) -> Vec<String> {
    let summary = facts.job.summary;
    let mut said = Vec::new();
    said.extend(failed(summary));
    said.extend(nothing(facts));
    said.extend(gain(facts));
    said.extend(small_calls(facts.records, summary));
    said.extend(many_files(facts));
    said.extend(busy(summary));
    let undelegated = summary
        .bytes_undelegated
        .iter()
        .map(|(reason, bytes)| format!("{} {}.", Size(*bytes).approximate(), meaning(reason)));
    said.extend(undelegated);
    let left = summary.fallbacks.iter().map(|(reason, files)| {
        format!("{} {}.", report::count(*files, "file", "s"), agreeing(*files, meaning(reason)))
    });
    said.extend(left);
    said
}

/// Words for several files, of this many.
fn agreeing(files: u64, said: &str) -> String {
    let forms = [("were ", "was "), ("are ", "is ")];
    let one = |(several, one): (&str, &str)| Some(format!("{one}{}", said.strip_prefix(several)?));
    let singular = forms.into_iter().find_map(one).filter(|_| files == 1);
    singular.unwrap_or_else(|| said.to_owned())
}

fn failed(summary: &Summary) -> Option<String> {
    (summary.drain_errors > 0).then(|| {
        let writes = report::count(summary.drain_errors, "staged write", "s");
        format!("{writes} FAILED: do not trust this job's output; look for full disks and quotas.")
    })
}

fn nothing(facts: &Facts<'_>) -> Option<String> {
    let is_idle = facts.records.files.is_empty() && facts.job.summary.files == 0;
    is_idle.then(|| {
        "No file I/O was seen. A static program, one of another C library, or one that makes \
         system calls itself cannot be delegated: 'kakehi check PROGRAM' says which."
            .to_owned()
    })
}

fn gain(facts: &Facts<'_>) -> Option<String> {
    let estimate = facts.estimate?;
    let (taken, native) = (estimate.taken, estimate.native);
    if taken <= native {
        return None;
    }
    let largest = most_written(facts.records);
    Some(format!(
        "Writes and closes took longer than they would have without delegation, by {}. If that \
         holds on a quiet machine, leave such files to the kernel: --rule '{largest}=pass'.",
        super::page::time(taken.saturating_sub(native))
    ))
}

/// The file that most bytes were written to.
fn most_written(records: &Records) -> &str {
    let file = records.files.iter().max_by_key(|file| file.written);
    file.map_or("", |file| file.path.as_str())
}

fn small_calls(records: &Records, summary: &Summary) -> Option<String> {
    let all = Records::total(&records.writes).calls;
    let small = (0..SIZES).filter(|class| least(class + 1) <= SMALL);
    let small: u64 = small.filter_map(|class| records.writes.get(class)).map(|it| it.calls).sum();
    if all == 0 || small * 2 < all {
        return None;
    }
    let staged = percent(summary.bytes_staged, summary.bytes_written);
    let share = percent(small, all);
    Some(format!(
        "{share} of write calls were under 1 KiB, and {staged} of all bytes were staged: small \
         calls are what delegation speeds up most."
    ))
}

fn many_files(facts: &Facts<'_>) -> Option<String> {
    let written: Vec<_> = facts.records.files.iter().filter(|file| file.written > 0).collect();
    let bytes: u64 = written.iter().map(|file| file.written).sum();
    let mean = bytes / written.len().max(1) as u64;
    let is_coalesced = !facts.job.config.coalesced.0.is_empty();
    if let Some(opens) = Opens::dear(&facts.job.summary.file_systems) {
        return Some(format!("Together, {}: {}.", opens.told(), opens.advice()));
    }
    (written.len() >= MANY_FILES && mean < SMALL_FILE && !is_coalesced).then(|| {
        format!(
            "{} files of {} on average were written. On a parallel file system one multifile is \
             easier: --coalesce FOLDER=FILE keeps all files below FOLDER in it.",
            written.len(),
            Size(mean).approximate()
        )
    })
}

fn busy(summary: &Summary) -> Option<String> {
    let samples = &summary.samples;
    let most = samples.iter().map(|sample| sample.busy).max()?;
    (samples.len() > 4 && most >= BUSY).then(|| {
        format!(
            "The daemon was busy for {} % of its time at the most. More cores help: --cores 0,1.",
            most / 10
        )
    })
}

/// A share, of a hundred.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{} %", share.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::File;

    #[test]
    fn every_reason_has_a_meaning() {
        for reason in wire_reasons() {
            assert!(!meaning(reason).is_empty(), "{reason}");
        }
    }

    #[test]
    fn verb_agrees_with_the_number_of_files() {
        assert_eq!(agreeing(1, "were mapped"), "was mapped");
        assert_eq!(agreeing(1, "are named"), "is named");
        assert_eq!(agreeing(2, "were mapped"), "were mapped");
        assert_eq!(agreeing(1, "became standard input"), "became standard input");
    }

    #[test]
    fn file_that_is_only_read_is_not_left_to_the_kernel() {
        let file = |path: &str, written, read| File {
            path: path.to_owned(),
            written,
            read,
            ..File::default()
        };
        let files = vec![file("/library", 0, 900), file("/out", 5, 0), file("/log", 2, 0)];
        assert_eq!(most_written(&Records { files, ..Records::default() }), "/out");
    }

    fn wire_reasons() -> Vec<&'static str> {
        daemon::reasons().collect()
    }
}
