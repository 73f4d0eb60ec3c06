//! `kakehi doctor`: tries what delegation needs on this machine, and says what to do.
//!
//! Each probe uses the thing itself where it can: a ring is set up, a file is sealed, a library is
//! loaded. Nothing is left behind but, on first use, the empty folder that holds the jobs' folders.

mod kernel;
mod limits;
mod programs;

use std::fmt;

use serde::Serialize;
use serde_json::json;

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    loader::Loader,
    output,
};

/// Checks this machine: what works, what is missing, and what to do about it.
///
/// Exit status: 0 when delegation works, with or without notes; 1 when it cannot work at all.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// How a finding bears on delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As good as it gets.
    Ok,
    /// Delegation works; something is slower, smaller, or absent.
    Note,
    /// Delegation cannot work.
    Problem,
}

/// What one probe found.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    found: String,
    /// What it means for delegation.
    meaning: &'static str,
    /// What to do; missing when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, found: impl fmt::Display, meaning: &'static str) -> Self {
        Self { name, state: State::Ok, found: found.to_string(), meaning, advice: None }
    }

    /// Something to know; [`advise`](Self::advise) adds what to do, when there is anything.
    fn note(name: &'static str, found: impl fmt::Display, meaning: &'static str) -> Self {
        Self { state: State::Note, ..Self::ok(name, found, meaning) }
    }

    fn problem(name: &'static str, found: impl fmt::Display, meaning: &'static str) -> Self {
        Self { state: State::Problem, ..Self::ok(name, found, meaning) }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "problem",
        };
        write!(f, "{state:<8} {:<14} {}: {}", self.name, self.found, self.meaning)?;
        self.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

pub(crate) fn doctor(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    let findings = findings(&config, environment);
    let problems = findings.iter().filter(|finding| finding.state == State::Problem);
    let problems: Vec<_> = problems.map(|finding| finding.name).collect();
    if args.json {
        output::print_json(&json!({"delegation": problems.is_empty(), "findings": findings}))?;
    } else {
        let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        output::print(&lines)?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Failure,
        "doctor",
        format_args!("delegation cannot work here ({})", problems.join(", ")),
        "do what the lines marked 'problem' say",
    ))
}

fn findings(config: &Config, environment: &Environment) -> Vec<Finding> {
    let loader = Loader::new(environment);
    let folder = environment.folder.as_deref();
    vec![
        kernel::version(),
        kernel::io_uring(),
        kernel::memfd(),
        kernel::pidfd(),
        kernel::nowait(folder),
        kernel::ptrace_scope(),
        limits::memlock(),
        limits::open_files(),
        limits::shared_memory(),
        limits::cores(),
        limits::memory(config),
        programs::glibc(environment),
        programs::preload(config),
        programs::socket_folder(config, environment),
        programs::ucx(&loader, environment),
        programs::mpi(environment),
        programs::slurm(environment),
    ]
}
