//! A process of this program that says on its standard output how its run went.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    process::{ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{
    meter::Sample,
    process::{Process, is_ready},
};

/// The slowest that is waited for, bytes a second, after a while that starting may take.
const RATE_MIN: u64 = 8 << 20;
const START_MAX: Duration = Duration::from_secs(10);

/// Runs beside this process, and ends with this value at the latest.
pub(crate) struct Speaker {
    process: Process,
    lines: BufReader<ChildStdout>,
    end: Instant,
}

impl Speaker {
    /// Starts this program with these words, to move `volume` bytes.
    pub(crate) fn start(words: &[String], volume: u64) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.env_clear().args(words).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take();
        let process = Process(child);
        let lines = BufReader::new(stdout.context("a pipe")?);
        let end = Instant::now() + START_MAX + Duration::from_secs(volume / RATE_MIN);
        Ok(Self { process, lines, end })
    }

    /// Returns the run's cost, which is its last line.
    pub(crate) fn sample(&mut self) -> anyhow::Result<Sample> {
        self.line()?.parse()
    }

    /// The next line; when it does not come in time, the process is killed.
    pub(crate) fn line(&mut self) -> anyhow::Result<String> {
        let left = self.end.saturating_duration_since(Instant::now());
        if !is_ready(self.lines.get_ref(), left)? {
            self.kill();
            bail!("a process took too long");
        }
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => bail!("a process ended early: {}", self.last_words()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Returns its standard error, in one line.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut errors) = self.process.0.stderr.take() {
            // What could be read of it is better than nothing.
            errors.read_to_string(&mut said).ok();
        }
        let said = said.trim().replace('\n', "; ");
        said.strip_prefix("kakehi-bench: ").unwrap_or(&said).to_owned()
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// Tells the process that started this one.
pub(crate) fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
