//! `kakehi serve`: a daemon in the foreground.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use crate::{
    config::{Config, Environment, Flags},
    failure::Failure,
    job::Job,
    launch::READY,
    log, output,
};

/// How long a daemon that is to end waits for programs that outlive their `kakehi run`.
const LINGER: Duration = Duration::from_secs(2);

/// Serves the programs of this job until it is terminated.
///
/// Exit status: 0 when everything accepted has been written; 1 when something could not be.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Started by `kakehi run`: says when it is ready, ends with the last program, and reports.
    #[arg(long, hide = true)]
    for_run: bool,
}

pub(crate) fn serve(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    log::start(config.log);
    let job = Job::find(&config, environment)?;
    let created = job.create()?;
    let configuration = daemon::Config {
        folder: job.folder.clone(),
        idle: config.idle.into(),
        quiet: config.quiet.0,
        engine: config.engine.into(),
        cores: config.daemon_cores(),
        staging: config.staging.0,
        memory: config.memory.0,
        stop_when_unattached: args.for_run,
        linger: LINGER,
    };
    let ready = || {
        if args.for_run {
            // Whoever started this daemon waits for the line; if nobody does, it may go on.
            writeln!(io::stdout(), "{READY}").and_then(|()| io::stdout().flush()).ok();
        }
    };
    let summary = daemon::serve(configuration, ready).map_err(|why| Failure::of_daemon(&why));
    if created || args.for_run {
        job.remove();
    }
    let summary = summary?;
    if args.for_run { output::print_json(&summary) } else { Ok(()) }
}
