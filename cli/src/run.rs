//! `kakehi run`: a program under delegation.

use std::{
    ffi::OsString, io::ErrorKind, os::unix::process::CommandExt as _, path::PathBuf,
    process::Command,
};

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
};

/// Runs a program with its file I/O delegated to the daemon of the job.
///
/// Starts the daemon when none serves the job, stops it after the last program, and then prints a
/// summary on standard error. Around a launcher or behind it:
///
///     kakehi run -- mpirun -n 4 ./app
///     mpirun -n 4 kakehi run -- ./app
///
/// Exit status: the program's own; 126 when it cannot be executed, 127 when it is not found,
/// 128+n after signal n; 125 when kakehi itself failed; 2 when a setting or flag is wrong.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Forwards to the server at URL instead of serving files on this node.
    #[arg(long, value_name = "URL", requires = "key", requires = "map")]
    remote: Option<String>,
    /// File with the key the server was started with.
    #[arg(long, value_name = "FILE", requires = "remote")]
    key: Option<PathBuf>,
    /// Folder here, and the server's folder that stands behind it.
    #[arg(long, value_name = "LOCAL=REMOTE", requires = "remote")]
    map: Option<String>,
    /// Appends the statistics of the job to FILE as one line of JSON.
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Replaces this process by the program, or says why that cannot be.
pub(crate) fn run(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    if config.disable {
        return Err(execute(&args.command));
    }
    Err(Failure::new(
        Code::Ours,
        "run",
        "this build has no daemon",
        "set KAKEHI_DISABLE=1 to run the program untouched",
    ))
}

/// Executes the program untouched in place of this process; returns only when it cannot.
fn execute(command: &[OsString]) -> Failure {
    let Some((program, arguments)) = command.split_first() else {
        return Failure::usage("run", "no program was named", "put it behind --");
    };
    let why = Command::new(program).args(arguments).exec();
    let code = match why.kind() {
        ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotExecutable,
    };
    let advice = "check its path and that it is executable";
    Failure::new(code, program.to_string_lossy(), why, advice)
}
