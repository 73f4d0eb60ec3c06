//! `kakehi run --report FILE.html`: what a job did to its files, on one page that needs no network.
//!
//! The processes append records of their files and calls to a file in the job's folder
//! ([`records`]), the daemon takes samples of its counters; when the job has ended, both become the
//! page ([`page`]).

mod advice;
mod draw;
mod estimate;
mod page;
mod records;

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use daemon::Summary;

pub(crate) use self::estimate::Estimate;
use self::records::Records;
use crate::{
    config::Config,
    failure::{Code, Failure},
    voice,
};

/// Stands for the node's name in the name of a report.
const NODE: &str = "%h";

/// A report to be written. Its file is opened before the program runs, so that a wrong name is an
/// error then.
#[derive(Debug)]
pub(crate) struct Report {
    path: PathBuf,
    /// True if there was no such file.
    is_new: bool,
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

impl Report {
    /// Begins the report that will be at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn begin(path: &Path) -> Result<Self, Failure> {
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
        opened.map_err(|why| not_written(&path, &why))?;
        Ok(Self { path, is_new, began: Instant::now(), began_ns: monotonic_ns() })
    }

    /// For a run that joins a job, whose first run writes the report.
    pub(crate) fn leave(self) {
        voice::step("the report is written by the job's first run");
        let is_empty = || std::fs::metadata(&self.path).is_ok_and(|found| found.len() == 0);
        if self.is_new && is_empty() {
            std::fs::remove_file(&self.path).ok();
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn end(self, records: File, job: &Job<'_>) -> Result<(), Failure> {
        let time = self.began.elapsed();
        let mut text = Vec::new();
        // What can be read is reported.
        (&records).read_to_end(&mut text).ok();
        let records = Records::read(&text);
        let estimate = Estimate::of(&records);
        let facts = Facts { job, time, began_ns: self.began_ns, records: &records, estimate };
        let text = page::text(&facts);
        std::fs::write(&self.path, text).map_err(|why| not_written(&self.path, &why))?;
        voice::step(format_args!("the report is in {}", self.path.display()));
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
    estimate: Option<Estimate>,
}

fn not_written(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Ours, path.display(), why, "name a file that can be written in --report")
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
