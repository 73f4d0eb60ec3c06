//! The product under test: the program `kakehi` beside this one, and a daemon it serves.
//!
//! Every process started here gets a fresh environment and a folder without settings, so that a
//! result depends on nothing but what this program says.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    process::{Process, cpu_of, end_with_this},
    scratch::Scratch,
};

/// Longest start of a daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// Variables of a program's environment.
pub(crate) type Environment = BTreeMap<String, String>;

/// A daemon that serves, and its folder. Both end when dropped.
pub(crate) struct Daemon {
    program: PathBuf,
    process: Process,
    folder: Scratch,
}

impl Daemon {
    /// Starts a daemon with this idle policy, on this core if one is named. It answers when this
    /// returns.
    pub(crate) fn start(idle: &str, core: Option<usize>) -> anyhow::Result<Self> {
        Self::start_with(idle, core, &[], &[])
    }

    /// As [`start`](Self::start), with these variables in its environment, and these flags.
    pub(crate) fn start_with(
        idle: &str,
        core: Option<usize>,
        variables: &[(&str, &str)],
        flags: &[(&str, &OsStr)],
    ) -> anyhow::Result<Self> {
        let program = env::current_exe()?.canonicalize()?.with_file_name("kakehi");
        let folder = Scratch::create()?;
        let mut command = command(&program, &folder);
        command
            .args(["--quiet", "serve"])
            .arg("--socket")
            .arg(socket(&folder))
            .args(["--idle", idle]);
        command.envs(variables.iter().copied());
        for (flag, value) in flags {
            command.arg(flag).arg(value);
        }
        if let Some(core) = core {
            command.arg("--cores").arg(core.to_string());
        }
        let mortal = end_with_this(Signal::KILL);
        // SAFETY: it makes two system calls, which may be made in the child of a fork.
        unsafe { command.pre_exec(mortal) };
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().with_context(|| {
                format!("{}: run 'make build' or 'make install'", program.display())
            })?;
        let daemon = Self { program, process: Process(child), folder };
        let start = Instant::now();
        while let Err(why) = daemon.status() {
            ensure!(start.elapsed() < PATIENCE, "the daemon does not answer: {why:#}");
        }
        Ok(daemon)
    }

    /// Stops the process until it is to [resume](Self::resume).
    pub(crate) fn pause(&self) {
        self.process.send(Signal::STOP);
    }

    /// Lets a stopped process go on.
    pub(crate) fn resume(&self) {
        self.process.send(Signal::CONT);
    }

    /// CPU time the process has used, all threads together, also those that have ended.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        Ok(cpu_of(self.process.0.id())?)
    }

    /// The most memory that it has had, MiB.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")).context("a peak")?;
        Ok(kib.trim().parse::<f64>()? / 1024.0)
    }

    /// Folder of the socket.
    pub(crate) fn folder(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// Variables that make a program delegated, with this rule if there is one.
    pub(crate) fn environment(&self, rule: Option<&str>) -> anyhow::Result<Environment> {
        self.environment_with(rule.map(|rule| ("--rule", OsStr::new(rule))).as_slice())
    }

    /// As [`environment`](Self::environment), with these flags: of a mapped folder those that the
    /// daemon was started with, or the program takes it for a local one and reaches it by the view.
    pub(crate) fn environment_with(&self, flags: &[(&str, &OsStr)]) -> anyhow::Result<Environment> {
        let mut command = self.command(&["env", "--json"]);
        for (flag, value) in flags {
            command.arg(flag).arg(value);
        }
        Ok(serde_json::from_slice(&output(command)?)?)
    }

    /// Bytes that went through the daemon so far.
    pub(crate) fn bytes_delegated(&self) -> anyhow::Result<u64> {
        let status = self.status()?;
        let bytes = status.pointer("/summary/bytes_delegated").and_then(Value::as_u64);
        bytes.context("a status has a summary")
    }

    fn status(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&output(self.command(&["status", "--json"]))?)?)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(&self.program, &self.folder);
        command.args(words).arg("--socket").arg(self.folder());
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.send(Signal::TERM);
        // One that is stopped takes the signal once it goes on.
        self.resume();
    }
}

/// Below the folder: when that is removed, a daemon that is just starting does not make it again.
fn socket(folder: &Scratch) -> PathBuf {
    folder.path().join("job")
}

fn command(program: &Path, folder: &Scratch) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(folder.path());
    command
}

fn output(mut command: Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output()?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", why.trim());
    Ok(output.stdout)
}
