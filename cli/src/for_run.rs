//! The daemon of a `kakehi run`, in a process that this has forked.

use std::{any::Any, ffi::OsString, fmt, io, os::fd::OwnedFd};

use daemon::{Error, Given, OwnMounts, Standby, Summary};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    config::{Config, Environment},
    failure::{Code, Failure},
    job::{Job, unmasked},
    log, output, peers, report,
    serve::configuration,
    settings::Engine,
    signals,
    starter::{self, Starter},
};

/// Letters of the program's command line that the daemon is told.
const COMMAND_LEN_MAX: usize = 400;
const NOT_STARTED: &str = "the daemon did not start";
/// The way to run the program all the same.
const INSTEAD: &str = "run the program without: KAKEHI_DISABLE=1";

/// The program that a daemon is started for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    pub(crate) words: &'a [OsString],
    /// Somebody wants a report of what it does.
    pub(crate) is_reported: bool,
    /// Somebody wants a trace of its requests.
    pub(crate) is_traced: bool,
}

impl Program<'_> {
    /// Its command line, for people.
    pub(crate) fn shown(&self) -> String {
        let words = self.words.iter().map(|word| word.to_string_lossy());
        let line = words.collect::<Vec<_>>().join(" ");
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        line.chars().map(plain).take(COMMAND_LEN_MAX).collect()
    }
}

/// The daemon of a `kakehi run`: reports to it, and ends with its last program.
pub(crate) struct ForRun<'a> {
    pub(crate) job: &'a Job,
    pub(crate) config: &'a Config,
    pub(crate) environment: &'a Environment,
    pub(crate) program: &'a Program<'a>,
}

impl ForRun<'_> {
    /// Is that daemon, in a process that the run has forked before its program, and returns how
    /// that exits. It `refuses` to where another job's view is at a folder.
    pub(crate) fn serve_at_once(
        &self,
        mounts: Option<OwnMounts>,
        refuses: bool,
        output: OwnedFd,
        run: OwnedFd,
        heirs: OwnedFd,
    ) -> i32 {
        let starter = Starter::run(output, &self.job.folder);
        let served = outlive().and_then(|()| {
            let given_up = mounts.as_ref().map_or(Ok(()), OwnMounts::give_up_others);
            given_up.map_err(|why| not_started(&why, self.config))?;
            let standby = unmasked(|| Standby::of_daemon(&self.job.folder));
            let standby = standby.map_err(|why| self.failed(&why))?;
            let standby = standby.attaching(run).attaching_heirs(heirs);
            let configuration = daemon::Config {
                refuses_taken: refuses,
                has_own_mounts: mounts.is_some(),
                ..self.configuration(&starter)?
            };
            self.serve(configuration, standby, || starter.tell_ready())
        });
        self.end(&starter, served)
    }

    /// The same beside its program, where the run has stood by. If it cannot serve, it says so, and
    /// waits for the end of the run.
    pub(crate) fn serve_from_now(&self, standby: Standby, output: OwnedFd, run: OwnedFd) -> i32 {
        let starter = Starter::run(output, &self.job.folder);
        let counts = standby.counts();
        let end = run.try_clone();
        let served = outlive().and_then(|()| {
            let standby = unmasked(|| standby.take_over()).map_err(|why| self.failed(&why))?;
            self.serve(self.configuration(&starter)?, standby.attaching(run), || {})
        });
        let served = served.or_else(|why| match (counts, end) {
            (Ok(counts), Ok(end)) => {
                report::warn(&why);
                await_end(&end);
                Ok((counts.summary(), Box::new(()) as Box<dyn Any>))
            }
            _ => Err(why),
        });
        self.end(&starter, served)
    }

    fn serve(
        &self,
        configuration: daemon::Config,
        standby: Standby,
        ready: impl FnOnce(),
    ) -> Result<(Summary, Box<dyn Any>), Failure> {
        log::start(self.config.level(), true);
        let served = daemon::serve(configuration, Some(standby), |_| ready());
        served.map_err(|why| self.failed(&why))
    }

    /// Removes the job's folder, and tells the run what was done.
    fn end(&self, starter: &Starter, served: Result<(Summary, Box<dyn Any>), Failure>) -> i32 {
        remove(self.job, served.is_err() && starter.is_gone());
        if let (Ok((summary, _)), true) = (&served, starter.is_gone()) {
            report::failures(summary).iter().for_each(report::warn);
        }
        let said =
            served.and_then(|(summary, remains)| Ok((output::json(&summary)?, Some(remains))));
        let (text, remains) = said.unwrap_or_else(|failure| (failure.text(), None));
        starter.tell_end(&text);
        drop(remains);
        0
    }

    /// True if it need not be there from the start: no folder is its to show, no report begins with
    /// it, and no setting is likely to be refused.
    pub(crate) fn can_wait(&self) -> bool {
        let Self { config, program, .. } = self;
        !(program.is_reported || program.is_traced)
            && config.mapped().0.is_empty()
            && config.remote.is_none()
            && config.cores.is_none()
            && config.engine == Engine::Auto
    }

    /// True if only it has files of the programs, which it does not leave then.
    pub(crate) fn stays(&self) -> bool {
        !self.config.mapped().0.is_empty()
    }

    fn configuration(&self, starter: &Starter) -> Result<daemon::Config, Failure> {
        let Self { job, config, environment, program } = self;
        let remote = peers::server(config)?;
        let (own, serving) = peers::own(config, job)?.unzip();
        Ok(daemon::Config {
            starter: starter.pipe(),
            remote: own.or(remote),
            serving,
            command: Some(program.shown()),
            takes_samples: program.is_reported,
            takes_trace: program.is_traced,
            stays: self.stays().then_some(starter::stay),
            ..configuration(config, job, environment)
        })
    }

    fn failed(&self, why: &Error) -> Failure {
        match why {
            // Without the daemon its files would not be where they were asked for.
            Error::Unusable { given: Given::Multifile(_), .. } => Failure::of_daemon(why),
            _ => or_instead(Failure::of_daemon(why), self.config),
        }
    }
}

/// At once: a job may be signalled while its daemon starts.
fn outlive() -> Result<(), Failure> {
    signals::outlive_job(&[SIGTERM, SIGINT])
}

/// Waits until the run at the other end of a connection has ended.
fn await_end(run: &OwnedFd) {
    let mut run = [PollFd::new(run, PollFlags::empty())];
    retry_on_intr(|| poll(&mut run, None)).ok();
}

/// Removes the folder of a job whose daemon has ended.
fn remove(job: &Job, starter_is_gone: bool) {
    if !starter_is_gone {
        return job.remove();
    }
    // It was killed while it started this daemon: its lock goes with it, if not this instant.
    if let Ok(lock) = job.lock() {
        job.remove_locked(&lock);
    }
}

/// Adds the alternative when there is no daemon: none where files would not be where they were
/// asked for.
pub(crate) fn or_instead(failure: Failure, config: &Config) -> Failure {
    if config.mapped().0.is_empty() { failure.or(INSTEAD) } else { failure }
}

/// The failure of a daemon that did not come to serve.
pub(crate) fn not_started(why: &dyn fmt::Display, config: &Config) -> Failure {
    or_instead(Failure::new(Code::Failure, NOT_STARTED, why, "try again"), config)
}

/// The same where a call has failed that would have begun its process.
pub(crate) fn not_begun(why: &io::Error, config: &Config) -> Failure {
    or_instead(Failure::of_call(Code::Failure, NOT_STARTED, why, "try again"), config)
}
