//! fio, which knows nothing of this project, does the same to the same file.

use std::{
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::process::cpu_of_children;

/// One thread of fio, past the page cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fio {
    /// `read`, `write`, `randread` or `randwrite`.
    pub(crate) pattern: &'static str,
    pub(crate) engine: &'static str,
    /// Bytes of a call.
    pub(crate) size: usize,
    /// Calls in all.
    pub(crate) count: u64,
    pub(crate) depth: u32,
    /// Length of the file.
    pub(crate) span: u64,
    pub(crate) core: Option<usize>,
}

/// fio's own report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// MB/s.
    pub(crate) rate: f64,
    /// CPU seconds of its one thread.
    pub(crate) thread_cpu: f64,
    /// CPU seconds of the whole process, from its start to its end: of the kernel's workers too.
    pub(crate) process_cpu: f64,
}

impl Fio {
    /// Runs it.
    pub(crate) fn run(&self, path: &Path) -> Result<Found, String> {
        self.find(path).map_err(|why| format!("fio: {why:#}"))
    }

    /// CPU seconds of a run, those of the kernel's workers with it: of the process, but for what
    /// one takes that does a single call.
    pub(crate) fn cpu_with_workers(&self, found: &Found, path: &Path) -> Result<f64, String> {
        let single = Self { count: 1, ..*self }.run(path)?;
        Ok((found.process_cpu - single.process_cpu).max(found.thread_cpu))
    }

    /// The same without end.
    pub(crate) fn endless(&self, path: &Path) -> Command {
        let mut command = self.command(path);
        command.args(["--time_based=1", "--runtime=1d"]);
        command
    }

    fn command(&self, path: &Path) -> Command {
        let mut command = Command::new("fio");
        command.args(["--name=bench", "--direct=1", "--thread=1", "--output-format=json"]);
        command.args(["--overwrite=1", "--norandommap=1", "--randrepeat=0"]);
        // Nothing that ours does not do either: no marks in what is written, no latencies.
        command.args(["--scramble_buffers=0", "--gtod_reduce=1"]);
        command.arg(format!("--rw={}", self.pattern)).arg(format!("--ioengine={}", self.engine));
        command.arg(format!("--filename={}", path.display()));
        command.arg(format!("--bs={}", self.size)).arg(format!("--size={}", self.span));
        command.arg(format!("--iodepth={}", self.depth));
        if self.engine == "io_uring" {
            command.args(["--registerfiles=1", "--fixedbufs=1"]);
            // As many a call as there are: up to 2.4 times as fast as one by one, fio's default.
            for end in ["submit", "complete_max"] {
                command.arg(format!("--iodepth_batch_{end}={}", self.depth));
            }
        }
        if let Some(core) = self.core {
            command.arg(format!("--cpus_allowed={core}"));
        }
        command
    }

    fn find(&self, path: &Path) -> anyhow::Result<Found> {
        let mut command = self.command(path);
        command.arg(format!("--io_size={}", self.count * self.size as u64));
        let before = cpu_of_children();
        let output = command.output()?;
        let process_cpu = (cpu_of_children() - before).as_secs_f64();
        ensure!(output.status.success(), "{}", complaint(&output));
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let job = report.pointer("/jobs/0").context("a job")?;
        let number = |path: &str| job.pointer(path).and_then(Value::as_f64).context("a number");
        let side = if self.pattern.ends_with("read") { "/read" } else { "/write" };
        // The rate that fio reports is rounded; its time is in milliseconds, begun ones counted.
        let millis = (number(&format!("{side}/runtime"))? - 0.5).max(0.5);
        let rate = number(&format!("{side}/io_bytes"))? / millis / 1e3;
        // Parts of a time of its own. Of both it counts whole milliseconds alone: half of one is
        // missing on average.
        let parts = (number("/usr_cpu")? + number("/sys_cpu")?) / 100.0;
        let thread_cpu = (parts * number("/job_runtime")? + 1.0) / 1e3;
        Ok(Found { rate, thread_cpu, process_cpu })
    }
}

/// Why it failed, in one line. Before a report in JSON it complains on standard output.
fn complaint(output: &Output) -> String {
    let said = [&*output.stderr, &output.stdout].map(String::from_utf8_lossy);
    let mut lines = said.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or_default().trim_start_matches("fio: ");
    format!("{line} ({})", output.status)
}
