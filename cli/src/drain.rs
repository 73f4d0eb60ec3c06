//! `kakehi drain`: everything accepted reaches the files.

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    job::Job,
    span::Span,
};

/// Waits until everything the daemon of this job has accepted is durable.
///
/// Exit status: 0 when drained; 1 when --timeout passed first (the daemon goes on) or a write
/// failed; 3 when no daemon answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the job daemon's socket.
    #[arg(long, value_name = "DIR")]
    socket: Option<String>,
    /// Longest wait, with a unit: 500ms, 30s, 5min. Default: no limit.
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn drain(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::socket(args.socket.clone()))?;
    let _daemon = Job::find(&config, environment)?.connect()?;
    Err(Failure::new(Code::Failure, "drain", "this build asks no daemon", "install a newer one"))
}
