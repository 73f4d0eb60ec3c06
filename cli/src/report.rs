//! The summary of a job: a few lines for people, and one line of JSON for scripts (`--stats`); and
//! warnings, counts, and ages in words. The page of `--report` is in `profile`.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use daemon::Summary;
use rustix::system::uname;
use serde::Serialize;

use crate::{
    costs::Opens,
    failure::{Code, Failure},
    settings::{Policy, Rules},
    size::Size,
    voice,
};

/// Lines of the summary.
const LINES: usize = 5;
/// Reasons named in the summary; there is room for no more.
const REASONS: usize = 4;

/// Prints the summary on standard error, and what failed.
pub(crate) fn print(summary: &Summary, failures: &[Failure]) {
    voice::say(&text(summary));
    failures.iter().for_each(|failure| voice::tell("error", failure));
}

/// Prints a failure that the exit code does not tell of.
pub(crate) fn warn(failure: &Failure) {
    voice::tell("warning", failure);
}

/// The file of `--stats`, opened before the program runs: a wrong name is told before, not after.
#[derive(Debug)]
pub(crate) struct Stats<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Stats<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self { path, file: file.map_err(|why| not_written(path, &why))? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    /// Appends the summary of a job as one line of JSON.
    pub(crate) fn append(
        mut self,
        summary: &Summary,
        job: &str,
        exit_code: u8,
    ) -> Result<(), Failure> {
        let system = uname();
        let host = system.nodename().to_string_lossy();
        let ended_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let line = Line { host: &host, job, ended_at, exit_code, summary };
        let line = serde_json::to_string(&line).map_err(|why| not_written(self.path, &why))?;
        let written = self.file.write_all((line + "\n").as_bytes());
        written.map_err(|why| not_written(self.path, &why))
    }
}

/// A job's line in the file of `--stats`, which many nodes may share.
#[derive(Serialize)]
struct Line<'a> {
    host: &'a str,
    job: &'a str,
    /// Seconds since 1970.
    ended_at: u64,
    /// The program's.
    exit_code: u8,
    #[serde(flatten)]
    summary: &'a Summary,
}

fn not_written(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Ours, path.display(), why, "name a file that can be written in --stats")
}

/// Rules that no file was opened by: most often they are written otherwise than they are meant.
pub(crate) fn idle_rules(summary: &Summary, rules: &Rules) -> Vec<Failure> {
    // The last count is that of all further rules, too.
    let counted = summary.of_rules.len().saturating_sub(1);
    let all = rules.0.iter().zip(&summary.of_rules).take(counted);
    // Those of mapped folders nobody has written.
    let idle = all.filter(|(rule, count)| **count == 0 && rule.policy != Policy::Remote);
    idle.map(|(rule, _)| {
        let why = "it matched no file that the job opened";
        let advice = "see 'kakehi config' for the glob in full; '**' crosses folders, '*' does not";
        Failure::new(Code::Ours, format_args!("rule {rule}"), why, advice)
    })
    .collect()
}

/// Returns a failure for data of a job's programs that is not in its files.
pub(crate) fn failures(summary: &Summary) -> Vec<Failure> {
    let unclosed = summary.unclosed.iter().map(|(file, why)| {
        Failure::new(
            Code::Failure,
            format_args!("multifile {file}"),
            format_args!("it could not be closed: {why}"),
            format_args!("see to that, and run again or 'kakehi multifile repair {file}'"),
        )
    });
    let removed = summary.removed.iter().map(|file| {
        Failure::new(
            Code::Failure,
            format_args!("multifile {file}"),
            "it was removed while the job wrote it, and with it the job's files",
            "run again, and remove no multifile before 'kakehi status' no longer lists it",
        )
    });
    let untold = summary.unreported_errors;
    let untold = (untold > 0).then(|| {
        Failure::new(
            Code::Failure,
            "errors of ".to_owned() + &count(untold, "file", "s"),
            "programs ended without closing what they had written, and were not told",
            "look for full disks and lost servers, and do not trust this job's output",
        )
    });
    let failed = |number: u64, why: &str, advice: &str| {
        let why = why.replace("THEM", if number == 1 { "it" } else { "them" });
        let why = why.replace("THEIR", if number == 1 { "its" } else { "their" });
        let why = format!("{why}, as the programs were told at their next write or close, if any");
        let advice = format!("{advice}, and do not trust this job's output");
        let what = count(number, "staged write", "s") + " FAILED";
        (number > 0).then(|| Failure::new(Code::Failure, what, why, advice))
    };
    let refused = summary.drain_errors.saturating_sub(summary.lost_errors);
    let refused = failed(refused, "the file system refused THEM", "look for full disks and quotas");
    let lost = failed(
        summary.lost_errors,
        "THEIR server was lost",
        "see that it runs, and that KAKEHI_REMOTE_TIMEOUT is longer than it stays away",
    );
    let losses = unclosed.chain(removed).chain(untold).chain(lost).chain(refused);
    losses.collect()
}

fn text(summary: &Summary) -> String {
    let left = summary.fallbacks.values().sum();
    let seen = [summary.sessions, summary.files, summary.bytes_written, summary.bytes_read, left];
    if seen == [0; 5] {
        return "kakehi: no file I/O was seen; 'kakehi check PROGRAM' says why\n".to_owned();
    }
    let calls: u64 = summary.requests.values().sum();
    // Those that the daemon has met: whoever delegates nothing never does.
    let processes = match summary.sessions {
        0 => String::new(),
        sessions => count(sessions, "process", "es") + ", ",
    };
    let mut text = format!(
        "kakehi: {processes}{}, {} written, {} read\n\
         kakehi: {} delegated ({} staged), {}\n",
        count(summary.files, "file", "s"),
        Size(summary.bytes_written).approximate(),
        Size(summary.bytes_read).approximate(),
        Size(summary.bytes_delegated).approximate(),
        Size(summary.bytes_staged).approximate(),
        count(calls, "request", "s"),
    );
    let sizes = summary.bytes_undelegated.iter().map(|(reason, bytes)| (reason, *bytes));
    if let Some(list) = list(sizes, |bytes| Size(bytes).approximate()) {
        text += &format!("kakehi: undelegated: {list}\n");
    }
    if let Some(list) = fallbacks(&summary.fallbacks) {
        text += &format!("kakehi: left to the kernel: {list}\n");
    }
    if summary.unviewed > 0 {
        let calls = count(summary.unviewed, "call", "s");
        let why = "their folder has no view ('kakehi doctor' says why)";
        text += &format!("kakehi: {calls} failed: {why}\n");
    }
    if let Some(opens) = Opens::dear(&summary.file_systems).filter(|_| has_room(&text)) {
        text += &format!("kakehi: {}: {}\n", opens.told(), opens.advice());
    }
    text
}

/// True if a line more makes the summary no longer than people read.
fn has_room(text: &str) -> bool {
    text.lines().count() < LINES
}

fn fallbacks(counts: &BTreeMap<String, u64>) -> Option<String> {
    list(counts.iter().map(|(reason, count)| (reason, *count)), |files| count(files, "file", "s"))
}

/// `number` things, in English.
pub(crate) fn count<N>(number: N, thing: &str, plural: &str) -> String
where
    N: std::fmt::Display + PartialEq + From<u8>,
{
    let plural = if number == N::from(1) { "" } else { plural };
    format!("{number} {thing}{plural}")
}

/// A time in the largest unit that says enough: `12 s`, `3 min`, `2 h`, `4 days`.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The largest values with their names.
fn list<'a>(
    values: impl Iterator<Item = (&'a String, u64)>,
    print: impl Fn(u64) -> String,
) -> Option<String> {
    let mut values: Vec<_> = values.collect();
    values.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    let words: Vec<_> = values
        .iter()
        .take(REASONS)
        .map(|(name, value)| format!("{} {}", name.replace('_', " "), print(*value)))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use daemon::FileSystem;

    use super::*;

    #[test]
    fn summary_has_at_most_five_lines() {
        let many = |n: u64| (0..n).map(|i| (format!("reason_{i}"), i)).collect();
        let summary = Summary {
            bytes_undelegated: many(12),
            fallbacks: many(12),
            sessions: 1,
            unviewed: 1,
            file_systems: vec![dear()],
            ..Summary::default()
        };
        let text = text(&summary);
        assert!(text.lines().count() <= 5, "{text}");
        assert!(text.contains("reason 11 11B"), "{text}");
    }

    /// A file system on which it takes long to make files.
    fn dear() -> FileSystem {
        let costs = [("create_call_ns".to_owned(), 1_000_000), ("create_calls".to_owned(), 5_000)];
        let (device, mount) = ("0:52".to_owned(), Some("/lustre".to_owned()));
        FileSystem { device, mount, costs: costs.into() }
    }

    #[test]
    fn flag_is_named_where_files_are_dear_to_make() {
        let mut summary = Summary { sessions: 1, file_systems: vec![dear()], ..Summary::default() };
        let said = text(&summary);
        let line = "kakehi: making 5000 files on /lustre took 5.0 s, 1.0 ms each: \
                    '--coalesce DIR=FILE' keeps DIR in one file";
        assert_eq!(said.lines().last(), Some(line));
        summary.file_systems[0].costs.insert("create_call_ns".to_owned(), 10_000);
        assert!(!text(&summary).contains("coalesce"));
    }

    #[test]
    fn calls_without_a_view_are_told_by_their_number() {
        let summary = Summary { sessions: 1, unviewed: 2, ..Summary::default() };
        assert!(text(&summary).contains("2 calls failed: "), "{}", text(&summary));
    }

    #[test]
    fn multifiles_that_were_not_closed_are_no_writes_that_failed() {
        let unclosed = [("/a.sion".to_owned(), "no space".to_owned())].into();
        let [failure] = &failures(&Summary { unclosed, ..Summary::default() })[..] else {
            panic!("not one")
        };
        let line = failure.to_string();
        assert!(line.contains("/a.sion: it could not be closed: no space; "), "{line}");
        assert!(!line.contains("write"), "{line}");
        let [failure] = &failures(&Summary { drain_errors: 2, ..Summary::default() })[..] else {
            panic!("not one")
        };
        assert!(failure.to_string().contains("2 staged writes FAILED"), "{failure}");
        let both = Summary { drain_errors: 3, lost_errors: 1, ..Summary::default() };
        let [lost, refused] = &failures(&both)[..] else { panic!("not two") };
        let (lost, refused) = (lost.to_string(), refused.to_string());
        assert!(lost.contains("1 staged write FAILED: its server was lost"), "{lost}");
        assert!(
            refused.contains("2 staged writes FAILED: the file system refused them"),
            "{refused}"
        );
    }

    #[test]
    fn errors_that_no_program_was_told_of_are_told_at_the_end() {
        let summary = Summary { drain_errors: 3, unreported_errors: 2, ..Summary::default() };
        let [untold, refused] = &failures(&summary)[..] else { panic!("not two") };
        let (untold, refused) = (untold.to_string(), refused.to_string());
        assert!(untold.contains("errors of 2 files: programs ended "), "{untold}");
        assert!(refused.contains("3 staged writes FAILED"), "{refused}");
    }

    #[test]
    fn a_quiet_job_has_a_short_summary() {
        let quiet = Summary { sessions: 1, files: 2, ..Summary::default() };
        let text = text(&quiet);
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("kakehi: 1 process, 2 files, "), "{text}");
    }

    #[test]
    fn processes_that_the_daemon_never_met_are_not_called_none() {
        let text = text(&Summary { files: 2, ..Summary::default() });
        assert!(text.starts_with("kakehi: 2 files, "), "{text}");
    }

    #[test]
    fn a_job_whose_files_are_all_left_to_the_kernel_is_told_so() {
        let fallbacks = [("rule".to_owned(), 2)].into();
        let text = text(&Summary { fallbacks, ..Summary::default() });
        assert!(text.ends_with("kakehi: left to the kernel: rule 2 files\n"), "{text}");
        assert!(!text.contains("no file I/O"), "{text}");
    }

    #[test]
    fn a_job_that_nothing_was_seen_of_is_told_how_to_find_out_why() {
        let text = text(&Summary::default());
        assert!(text.lines().count() == 1 && text.contains("kakehi check"), "{text}");
    }
}
