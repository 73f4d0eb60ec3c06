//! `kakehi drain`: everything accepted reaches the files.

use std::{sync::mpsc, thread};

use daemon::caller::Control;

use crate::{
    answer::{ask, summary},
    config::{Config, Environment, Flags, Whom},
    failure::{Code, Failure},
    job::Job,
    output, report,
    span::Span,
};

/// Waits until everything the daemon of this job has accepted is in the files.
///
/// Exit status: 0 when drained; 1 when --timeout passed first (the daemon continues) or a write
/// failed; 3 when no daemon answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Longest wait, with a unit: 500ms, 30s, 5min. Default: no limit.
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn drain(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::from(&args.whom))?;
    let job = Job::asked(&config, environment)?;
    let answer = match args.timeout {
        None => ask(&job, Control::Drain)?,
        Some(Span(timeout)) => {
            let (sender, receiver) = mpsc::channel();
            // Nobody listens any more when the time is up; the thread ends with the process.
            thread::spawn(move || sender.send(ask(&job, Control::Drain)).ok());
            receiver.recv_timeout(timeout).map_err(|_| {
                let why = format_args!("not drained after {}", Span(timeout)).to_string();
                Failure::new(Code::Failure, "drain", why, "the daemon goes on; wait longer")
            })??
        }
    };
    if args.json {
        output::print_json(&answer)?;
    }
    let mut failures = report::failures(&summary(&answer)?);
    let failure = failures.pop();
    failures.iter().for_each(report::warn);
    failure.map_or(Ok(()), Err)
}
