//! The probe that tries everything together: a daemon starts, and a program writes a byte by it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    config::{Config, Environment},
    failure::{Code, Failure},
    finding::Finding,
    job::Job,
};

const BYTE: &[u8] = b"x";

/// Settings that are not about this machine: a server that is away is none of its faults.
const ELSEWHERE: [&str; 7] = [
    "KAKEHI_COALESCE",
    "KAKEHI_DISABLE",
    "KAKEHI_JOB",
    "KAKEHI_MAP",
    "KAKEHI_REMOTE",
    "KAKEHI_RULES",
    "KAKEHI_VIEW",
];

/// Writes the byte: the program that [`served`] runs.
#[derive(clap::Args, Debug)]
pub(crate) struct Probe {
    file: PathBuf,
}

impl Probe {
    pub(crate) fn write(&self) -> Result<(), Failure> {
        fs::write(&self.file, BYTE).map_err(|why| {
            Failure::new(Code::Failure, self.file.display(), why, "make room for files there")
        })
    }
}

/// Runs a program under `kakehi run`, in a folder beside the jobs' folders.
pub(super) fn served(config: &Config, environment: &Environment) -> Finding {
    const NAME: &str = "run";
    const MEANING: &str = "'kakehi run' starts a daemon, and a program writes through it";
    const ADVICE: &str = "raise the limit or mount what it names; KAKEHI_DISABLE=1 runs programs \
                          without Kakehi";
    match try_run(config, environment) {
        Ok(None) => Finding::ok(NAME, "the written byte is in its file", MEANING),
        Ok(Some(why)) => Finding::problem(NAME, why, MEANING).advise(ADVICE),
        Err(why) => Finding::problem(NAME, why, MEANING).advise(ADVICE),
    }
}

/// Runs a program past the library in a folder that is kept in a multifile, and so has a view.
pub(super) fn viewed(config: &Config, environment: &Environment) -> Finding {
    const NAME: &str = "view";
    const MEANING: &str = "static programs and the like can use mapped and coalesced folders";
    const ADVICE: &str = "make /dev/fuse accessible and install fusermount3 (Debian: fuse3); \
                          without them such programs fail there";
    match try_view(config, environment) {
        Ok(None) => Finding::ok(NAME, "a byte was written through it", MEANING),
        Ok(Some(why)) => Finding::note(NAME, why, MEANING).advise(ADVICE),
        Err(why) => Finding::note(NAME, why, MEANING).advise(ADVICE),
    }
}

/// Why the byte is not written; `None` when it is, and is in the multifile.
fn try_view(config: &Config, environment: &Environment) -> io::Result<Option<String>> {
    let (scratch, program) = (scratch(config, environment)?, env::current_exe()?);
    let [folder, kept, out] = ["folder", "kept", "out"].map(|name| scratch.path().join(name));
    let mut pair = folder.clone().into_os_string();
    pair.push("=");
    pair.push(&kept);
    let mut command = run(&scratch)?;
    command.args(["--view", "always", "--coalesce"]).arg(pair).arg("--");
    command.args(["env", "LD_PRELOAD="]).arg(&program).arg("probe").arg(folder.join("file"));
    last_line(&mut command)?;
    let mut extract = Command::new(program);
    extract.args(["multifile", "extract"]).arg(&kept).arg(&out);
    last_line(&mut extract)?;
    let found = fs::read(out.join("file")).ok();
    Ok((found.as_deref() != Some(BYTE)).then(|| "the byte is not in the multifile".to_owned()))
}

/// A folder beside the jobs' folders.
fn scratch(config: &Config, environment: &Environment) -> io::Result<TempDir> {
    let job = Job::find(config, environment);
    match job.ok().and_then(|job| job.folder.parent().map(Path::to_owned)) {
        Some(base) => TempDir::with_prefix_in("doctor.", base),
        None => TempDir::with_prefix("doctor."),
    }
}

/// `kakehi run` with a daemon of its own.
fn run(scratch: &TempDir) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["run", "--socket"]).arg(scratch.path().join("job"));
    command.current_dir(scratch.path());
    ELSEWHERE.iter().for_each(|name| {
        command.env_remove(name);
    });
    Ok(command)
}

/// Runs a command to its end, and returns the last line that it said; an error if it has failed.
fn last_line(command: &mut Command) -> io::Result<String> {
    let Output { status, stderr, .. } = command.output()?;
    let said = String::from_utf8_lossy(&stderr);
    let line = said.lines().last().unwrap_or_default().trim_start_matches("kakehi: ");
    match status.success() {
        true => Ok(line.to_owned()),
        false => Err(io::Error::other(format!("{status}: {line}"))),
    }
}

/// Why the byte is not written, or not by the daemon; `None` when all is well.
fn try_run(config: &Config, environment: &Environment) -> io::Result<Option<String>> {
    let (scratch, program) = (scratch(config, environment)?, env::current_exe()?);
    let [file, stats] = ["file", "stats"].map(|name| scratch.path().join(name));
    let mut command = run(&scratch)?;
    command.arg("--stats").arg(&stats).arg("--").arg(program).arg("probe").arg(&file);
    command.env("KAKEHI_STAGE_AFTER", "0ms"); // One byte would not repay staging.
    let said = last_line(&mut command)?;
    let summary: Value = serde_json::from_slice(&fs::read(&stats)?).unwrap_or_default();
    Ok(match (fs::read(&file)?, summary.get("bytes_staged").and_then(Value::as_u64)) {
        (found, _) if found != BYTE => Some("the byte is not in its file".to_owned()),
        (_, Some(0) | None) => Some(format!("the program wrote the byte past the daemon: {said}")),
        _ => None,
    })
}
