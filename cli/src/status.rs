//! `kakehi status`: what the daemon of a job is doing.

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    job::Job,
};

/// Shows the daemon of this job: process, sessions, cores, memory.
///
/// Exit status: 0; 3 when no daemon answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the job daemon's socket.
    #[arg(long, value_name = "DIR")]
    socket: Option<String>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn status(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::socket(args.socket.clone()))?;
    let _daemon = Job::find(&config, environment)?.connect()?;
    Err(Failure::new(Code::Failure, "status", "this build asks no daemon", "install a newer one"))
}
