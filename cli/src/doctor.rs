//! `kakehi doctor`: tries what delegation needs on this machine, and says what to do.
//!
//! Each probe uses the thing itself where it can: a ring is set up, a file is sealed, a library is
//! loaded, a program is run. Nothing is left behind but, on first use, the empty folder that holds
//! the jobs' folders.

mod kernel;
mod limits;
mod programs;
mod trial;

pub(crate) use self::trial::Probe;

use serde_json::json;
use signal_hook::consts::SIGXFSZ;

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    finding::{self, Finding},
    loader::Loader,
    output, report, signals,
    voice::Screen,
};

/// Checks this machine: what works, what is missing, and what to do about it.
///
/// Exit status: 0 when delegation works, with or without notes; 1 when it cannot work.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn doctor(args: &Args, environment: &Environment) -> Result<(), Failure> {
    // Where files are to have no length a probe that writes one would end this command.
    signals::outlive(SIGXFSZ)?;
    let config = Config::load(environment, &args.flags)?;
    let findings = findings(&config, environment);
    let problems = finding::problems(&findings);
    if args.json {
        output::print_json(&json!({"delegation": problems.is_empty(), "findings": findings}))?;
    } else {
        output::print(&finding::lines(&findings, Screen::stdout()))?;
        if problems.is_empty() {
            finding::conclude(&verdict(finding::notes(&findings)), WORKS.len())?;
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Failure,
        "doctor",
        format_args!("Kakehi cannot work here ({})", problems.join(", ")),
        "fix what the lines marked 'problem' name",
    ))
}

const WORKS: &str = "Kakehi works here";

/// The last line of a machine without problems.
fn verdict(notes: usize) -> String {
    let proof = "a test program wrote to its file through a daemon";
    match notes {
        0 => format!("{WORKS}: {proof}."),
        _ => format!("{WORKS}: {proof}; {} above may matter.", report::count(notes, "note", "s")),
    }
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
        programs::scheduler(environment),
        trial::served(config, environment),
        trial::viewed(config, environment),
    ]
}
