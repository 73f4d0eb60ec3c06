//! `kakehi bench`: starts the program `kakehi-bench` that is installed beside this one.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use crate::{
    failure::{Code, Failure},
    library,
    remote::real,
};

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
    let program = real(&library::own_program()?).with_file_name(PROGRAM);
    let why = Command::new(&program).args(&args.arguments).exec();
    let advice = "run 'make build' or 'make install'";
    Err(Failure::new(Code::Failure, program.display(), why, advice))
}
