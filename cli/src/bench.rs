//! `kakehi bench`: starts the program `kakehi-bench` that is installed beside this one.

use std::{env, ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use crate::failure::{Code, Failure};

const PROGRAM: &str = "kakehi-bench";

/// Measures delegation on this machine; 'kakehi bench --help' is the help of kakehi-bench.
///
/// Exit status: that of kakehi-bench; 1 when it is not installed.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments for kakehi-bench.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Replaces this process; returns only when that cannot be done.
pub(crate) fn bench(args: &Args) -> Result<(), Failure> {
    let program = env::current_exe().and_then(|path| path.canonicalize());
    let program = program.map(|path| path.with_file_name(PROGRAM));
    let why = match &program {
        Ok(program) => Command::new(program).args(&args.arguments).exec(),
        Err(_) => std::io::ErrorKind::NotFound.into(),
    };
    let program = program.unwrap_or_else(|_| PROGRAM.into());
    let advice = "run 'make build' or 'make install'";
    Err(Failure::new(Code::Failure, program.display(), why, advice))
}
