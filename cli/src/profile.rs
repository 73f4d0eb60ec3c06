//! `kakehi run --report FILE.html`: what a job did to its files, on one page that needs no network;
//! and `--trace` ([`trace`]).
//!
//! The processes append records of their files and calls to a file in the job's folder
//! ([`records`]), the daemon takes samples of its counters; when the job has ended, both become the
//! page ([`page`]).

mod advice;
mod draw;
mod estimate;
mod page;
mod records;
mod trace;

use std::{
    fs::OpenOptions,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use daemon::Summary;

pub(crate) use self::estimate::Estimate;
use self::records::Records;
pub(crate) use self::trace::Trace;
use crate::{
    config::Config,
    failure::{Code, Failure},
    voice,
};

/// Stands for the node's name in the name of a report.
const NODE: &str = "%h";

/// A file about a job. It is opened before the program runs, so that a wrong name is an error then.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    flag: &'static str,
    /// True if there was no such file.
    is_new: bool,
}

/// A report to be written.
#[derive(Debug)]
pub(crate) struct Report {
    target: Target,
    began: Instant,
    began_ns: u64,
}

/// A job that has ended, as far as is known.
pub(crate) struct Job<'a> {
    pub(crate) name: &'a str,
    pub(crate) command: String,
    pub(crate) exit_code: u8,
    pub(crate) config: &'a Config,
    pub(crate) summary: &'a Summary,
}

impl Target {
    fn begin(path: &Path, flag: &'static str) -> Result<Self, Failure> {
        let system = rustix::system::uname();
        let name = path.to_string_lossy().replace(NODE, &system.nodename().to_string_lossy());
        let path = PathBuf::from(name);
        let open = |options: &mut OpenOptions| options.write(true).open(&path).map(drop);
        let (is_new, opened) = match open(OpenOptions::new().create_new(true)) {
            Err(why) if why.kind() == ErrorKind::AlreadyExists => {
                (false, open(&mut OpenOptions::new()))
            }
            made => (true, made),
        };
        opened.map_err(|why| not_written(&path, flag, &why))?;
        Ok(Self { path, flag, is_new })
    }

    fn leave(self, what: &str) {
        voice::step(format_args!("{what} is written by the job's first run"));
        let is_empty = || std::fs::metadata(&self.path).is_ok_and(|found| found.len() == 0);
        if self.is_new && is_empty() {
            std::fs::remove_file(&self.path).ok();
        }
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        std::fs::write(&self.path, text).map_err(|why| not_written(&self.path, self.flag, &why))
    }
}

impl Report {
    /// Begins the report that will be at `path`.
    pub(crate) fn begin(path: &Path) -> Result<Self, Failure> {
        let target = Target::begin(path, "--report")?;
        Ok(Self { target, began: Instant::now(), began_ns: monotonic_ns() })
    }

    /// For a run that joins a job, whose first run writes the report.
    pub(crate) fn leave(self) {
        self.target.leave("the report");
    }

    /// Writes the page.
    pub(crate) fn end(self, records: &[u8], job: &Job<'_>) -> Result<(), Failure> {
        let time = self.began.elapsed();
        let records = Records::read(records);
        let maps = job.config.mapped();
        let is_mapped =
            |path: &str| maps.0.iter().any(|(local, _)| Path::new(path).starts_with(local));
        let has_mapped = records.files.iter().any(|it| it.written > 0 && is_mapped(&it.path));
        let estimate = if has_mapped { None } else { Estimate::of(&records, time) };
        let began_ns = self.began_ns;
        let facts = Facts { job, time, began_ns, records: &records, has_mapped, estimate };
        self.target.write(&page::text(&facts))?;
        voice::step(format_args!("the report is in {}", self.target.path.display()));
        Ok(())
    }
}

/// Everything that the page says.
struct Facts<'a> {
    job: &'a Job<'a>,
    /// From the start of the program to the end of the daemon.
    time: Duration,
    /// When that began, by the clock of the records.
    began_ns: u64,
    records: &'a Records,
    /// Files of mapped folders were written: the same without Kakehi is not to be had.
    has_mapped: bool,
    estimate: Option<Estimate>,
}

fn not_written(path: &Path, flag: &str, why: &dyn std::fmt::Display) -> Failure {
    let advice = format!("name a file that can be written in {flag}");
    Failure::new(Code::Ours, path.display(), why, advice)
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
