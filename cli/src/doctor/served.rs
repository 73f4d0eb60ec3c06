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
const ELSEWHERE: [&str; 6] = [
    "KAKEHI_COALESCE",
    "KAKEHI_DISABLE",
    "KAKEHI_JOB",
    "KAKEHI_MAP",
    "KAKEHI_REMOTE",
    "KAKEHI_RULES",
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
    const NAME: &str = "a run";
    const MEANING: &str = "a daemon is started, and a program writes a byte by it";
    const ADVICE: &str = "raise the limit or mount what it names; programs run without delegation \
                          by KAKEHI_DISABLE=1";
    match try_run(config, environment) {
        Ok(None) => Finding::ok(NAME, "the byte is in its file", MEANING),
        Ok(Some(why)) => Finding::problem(NAME, why, MEANING).advise(ADVICE),
        Err(why) => Finding::problem(NAME, why, MEANING).advise(ADVICE),
    }
}

/// Why the byte is not written, or not by the daemon; `None` when all is well.
fn try_run(config: &Config, environment: &Environment) -> io::Result<Option<String>> {
    let program = env::current_exe()?;
    let job = Job::find(config, environment);
    let base = job.ok().and_then(|job| job.folder.parent().map(Path::to_owned));
    let scratch = match base {
        Some(base) => TempDir::with_prefix_in("doctor.", base)?,
        None => TempDir::with_prefix("doctor.")?,
    };
    let [file, stats, socket] = ["file", "stats", "job"].map(|name| scratch.path().join(name));
    let mut command = Command::new(&program);
    command.args(["run", "--socket"]).arg(&socket).arg("--stats").arg(&stats);
    command.arg("--").arg(&program).arg("probe").arg(&file).current_dir(scratch.path());
    command.env("KAKEHI_STAGE_AFTER", "0ms"); // One byte would not repay staging.
    ELSEWHERE.iter().for_each(|name| {
        command.env_remove(name);
    });
    let Output { status, stderr, .. } = command.output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        let why = said.lines().last().unwrap_or_default().trim_start_matches("kakehi: ");
        return Ok(Some(format!("{status}: {why}")));
    }
    let summary: Value = serde_json::from_slice(&fs::read(&stats)?).unwrap_or_default();
    Ok(match (fs::read(&file)?, summary.get("bytes_staged").and_then(Value::as_u64)) {
        (found, _) if found != BYTE => Some("the byte is not in its file".to_owned()),
        (_, Some(0) | None) => Some("the program wrote the byte past the daemon".to_owned()),
        _ => None,
    })
}
