//! Starting the daemon of a job, once, whoever comes first.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::process::ExitStatusExt as _,
    },
    path::PathBuf,
    process::{Command, ExitStatus},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use daemon::{
    Counts, Error, OwnMounts, Standby, Summary,
    caller::{self, Attachment, Control},
};
use rustix::{
    io::{Errno, retry_on_intr},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, waitpid},
};

use crate::{
    affinity,
    answer::ask,
    config::{Config, Origin},
    failure::{Code, Failure},
    for_run::{ForRun, not_begun, not_started, or_instead},
    job::{Job, unmasked},
    remote::real,
    report,
    settings::View,
    signals::{News, Running},
    starter::{END, READY, STAYS},
    voice,
};

/// How long a run tries to attach to a job whose daemons end one after the other.
const ATTACH_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) enum Launched {
    /// Somebody else's daemon serves the job; whether it has the cores that this run gives it.
    Attached(Attachment, bool),
    /// This process is the job's first run.
    First(Service),
}

/// The service of a job, for its first run.
pub(crate) enum Service {
    By(Daemon),
    /// Its daemon starts once somebody asks for it. `None`: it could not, and the programs go on
    /// without.
    OnDemand(Option<Standby>, Counts),
}

/// The process of a daemon that this one has started.
pub(crate) struct Daemon {
    process: Pid,
    output: BufReader<File>,
    attachment: Attachment,
    /// For the program to inherit, where the daemon stays for whatever that leaves behind.
    programs: Option<Attachment>,
    /// The job's segment, of which this process has told where it is.
    segment: Option<Arc<OwnedFd>>,
}

/// Attaches to the daemon of a job, started now if there is none.
pub(crate) fn attach_or_start(daemon: &ForRun<'_>) -> Result<Launched, Failure> {
    let ForRun { job, config, .. } = daemon;
    let mut lost_since = None;
    loop {
        // Held until the daemon listens, so that of many that come at once one starts it.
        let lock = job.lock_to_start().map_err(|failure| or_instead(failure, config))?;
        // It may have come to listen before the lock was free.
        if let Some(lock) = lock.filter(|_| !caller::is_there(&job.folder)) {
            return launch(daemon).inspect_err(|_| job.remove_locked(&lock));
        }
        match caller::attach(&job.folder) {
            Ok(attachment) => {
                if let Err(why) = attachment.enter_mounts() {
                    voice::step(format_args!("the job's mounts are not seen: {why}"));
                }
                let has_cores = check(job, config)?;
                return Ok(Launched::Attached(attachment, has_cores));
            }
            // It has ended meanwhile.
            Err(Error::Unreachable { .. }) => {}
            Err(Error::Lost(_))
                if lost_since.get_or_insert_with(Instant::now).elapsed() < ATTACH_TIME_MAX =>
            {
                thread::yield_now();
            }
            Err(why @ Error::Silent { .. }) => {
                return Err(or_instead(Failure::of_daemon(&why), config));
            }
            Err(why) => return Err(Failure::of_daemon(&why)),
        }
    }
}

/// Starts the daemon of a job, or stands by for it where it need not be there from the start.
fn launch(daemon: &ForRun<'_>) -> Result<Launched, Failure> {
    let ForRun { job, config, .. } = daemon;
    affinity::check(config.cores.as_ref())?;
    let stand_by = || {
        let standby = unmasked(|| Standby::new(&job.folder)).ok()?;
        let counts = standby.counts().ok()?;
        Some(Service::OnDemand(Some(standby), counts))
    };
    // Where this process cannot, a daemon may, which raises its limits, or says why not.
    if let Some(service) = daemon.can_wait().then(stand_by).flatten() {
        return Ok(Launched::First(service));
    }
    let is_taken = || viewed(config).iter().any(|local| daemon::has_view(local));
    // Another job's view may come to be there meanwhile, be gone again, and come again. So this run
    // gets mounts of its own then, in any case.
    let busy = io::Error::from(Errno::BUSY).to_string();
    match start(daemon, false) {
        Err(why) if is_taken() || why.to_string().contains(&busy) => start(daemon, true),
        started => started,
    }
    .map(|daemon| Launched::First(Service::By(daemon)))
}

/// Checks that the daemon of a job has the remote folders that this run maps, and tells of settings
/// in which it differs; returns whether it has the cores of this run.
fn check(job: &Job, config: &Config) -> Result<bool, Failure> {
    let mapped = config.mapped();
    let set: Vec<_> = config.of_daemon().filter(|(row, _)| row.origin != Origin::Default).collect();
    if mapped.0.is_empty() && set.is_empty() {
        return Ok(true);
    }
    let status = ask(job, Control::Status)?;
    let daemon = format!("the daemon of this job, in {}", job.folder.display());
    if let Some(why) = mapped.missing_in(config.servers(), &status) {
        return Err(Failure::new(
            Code::Ours,
            daemon,
            why,
            "give the same --remote, --map, and --coalesce, or name a folder for another daemon \
             with --socket",
        ));
    }
    let theirs = |name: &str| status.get("settings")?.get(name)?.as_str();
    let other: Vec<_> = set
        .iter()
        .filter(|(row, value)| theirs(row.name) != Some(value))
        .map(|(row, _)| row)
        .collect();
    if !other.is_empty() {
        let found =
            other.iter().map(|row| format!("{}={}", row.name, theirs(row.name).unwrap_or("")));
        let why = format!("it runs already, with {}", found.collect::<Vec<_>>().join(", "));
        let advice = "set these where the job's first run is, or name a folder for another daemon \
                      with --socket";
        report::warn(&Failure::new(Code::Ours, daemon, why, advice));
    }
    Ok(other.iter().all(|row| row.name != "cores"))
}

/// The folders that are to have views.
fn viewed(config: &Config) -> Vec<PathBuf> {
    let mapped = Some(config.mapped()).filter(|_| config.view != View::None);
    mapped.iter().flat_map(|maps| &maps.0).map(|(local, _)| real(local)).collect()
}

/// Mounts of this run's own, if it needs them for views.
fn own_mounts(config: &Config, was_taken: bool) -> Option<OwnMounts> {
    OwnMounts::take(&viewed(config), was_taken).unwrap_or_else(|why| {
        voice::step(format_args!("no view can be mounted for this run alone: {why}"));
        None
    })
}

/// Starts the process of a daemon, and waits until that serves. It refuses to where another job's
/// view is at a folder, but for the second time.
fn start(daemon: &ForRun<'_>, was_taken: bool) -> Result<Daemon, Failure> {
    let failed = |why: &dyn fmt::Display| not_started(why, daemon.config);
    let mounts = own_mounts(daemon.config, was_taken);
    let begun = |why: io::Error| not_begun(&why, daemon.config);
    let (programs, heirs) = caller::attached().map_err(begun)?;
    let number = heirs.as_raw_fd();
    let serve = |told, run| daemon.serve_at_once(mounts, !was_taken, told, run, heirs);
    let mut started = Daemon::fork(&[number], || {}, serve).map_err(begun)?;
    started.programs = Some(programs).filter(|_| daemon.stays());
    let mut line = String::new();
    match started.output.read_line(&mut line) {
        Ok(_) if line.trim_end() == READY => Ok(started),
        Ok(0) => Err(match status(started.process) {
            Ok(status) => failed(&format_args!("it ended without a word: {status}")),
            Err(why) => failed(&why),
        }),
        Ok(_) => {
            let why = line.trim_end_matches(char::from(END)).trim_end();
            Err(Failure::of_line(Code::Failure, why))
        }
        Err(why) => Err(failed(&why)),
    }
}

impl Service {
    /// Runs a program, and starts the daemon if somebody asks for it meanwhile. Where it does not
    /// start the programs go on without, and it is told why.
    pub(crate) fn during(
        &mut self,
        daemon: &ForRun<'_>,
        command: &mut Command,
    ) -> io::Result<ExitStatus> {
        let mut programs = match self {
            Self::By(daemon) => daemon.programs.take(),
            Self::OnDemand(..) => None,
        };
        // Without it the daemon does not stay.
        programs.as_mut().map(Attachment::leave_to_programs);
        let mut running = Running::start(command)?;
        drop(programs);
        loop {
            let sockets = match self {
                Self::OnDemand(Some(standby), _) => standby.sockets(),
                _ => Vec::new(),
            };
            match running.wait(&sockets)? {
                News::End(status) => return Ok(status),
                News::Call => self.answer(daemon, &mut running),
            }
        }
    }

    /// Starts the daemon if somebody has asked for it.
    fn answer(&mut self, daemon: &ForRun<'_>, running: &mut Running) {
        let Self::OnDemand(place, _) = self else { return };
        let asked = place.as_mut().map_or(Ok(false), Standby::is_asked);
        if let Ok(false) = asked {
            return;
        }
        let Some(standby) = place.take() else { return };
        let numbers = standby.numbers();
        let mut standby = Some(standby);
        let started = asked.and_then(|_| {
            let first = || running.forget_signals();
            Daemon::fork(&numbers, first, |told, run| {
                standby.take().map_or(1, |standby| daemon.serve_from_now(standby, told, run))
            })
        });
        match started {
            Ok(mut started) => {
                started.segment = standby.map(Standby::leave);
                *self = Self::By(started);
            }
            Err(why) => report::warn(&not_started(&why, daemon.config)),
        }
    }

    /// Ends it, once the program is gone, which may have been killed with it, and returns what was
    /// done; `None` if the daemon stays for what the program has left behind.
    ///
    /// # Errors
    ///
    /// The daemon did not end by itself. What it left in the job's folder is gone then.
    pub(crate) fn end(
        self,
        job: &Job,
        config: &Config,
        was_killed: bool,
    ) -> Result<Option<Summary>, Failure> {
        match self {
            Self::By(daemon) => daemon.wait(config, was_killed).inspect_err(|_| clear(job)),
            Self::OnDemand(standby, counts) => {
                drop(standby);
                job.remove();
                Ok(Some(counts.summary()))
            }
        }
    }
}

impl Daemon {
    /// Starts the process, which runs `serve` with what it is to tell this one by, and the
    /// connection by which that is attached. It keeps the descriptors `kept`, and runs `first`
    /// before it closes the others.
    fn fork(
        kept: &[RawFd],
        first: impl FnOnce(),
        serve: impl FnOnce(OwnedFd, OwnedFd) -> i32,
    ) -> io::Result<Self> {
        let (output, told) = pipe_with(PipeFlags::CLOEXEC)?;
        let (attachment, run) = caller::attached()?;
        let kept: Vec<_> = [&told, &run]
            .map(|fd| fd.as_raw_fd())
            .into_iter()
            .chain(kept.iter().copied())
            .collect();
        let process = daemon::fork(&kept, first, || serve(told, run))?;
        let output = BufReader::new(output.into());
        Ok(Self { process, output, attachment, programs: None, segment: None })
    }

    /// Waits until the daemon has served to the end and returns what it did, or that it stays. Its
    /// process may still be on its way out.
    fn wait(mut self, config: &Config, was_killed: bool) -> Result<Option<Summary>, Failure> {
        let failed = |why: &dyn fmt::Display| {
            let advice = if was_killed {
                "the program was killed, too: what both had not written yet is lost"
            } else if config.mapped().0.is_empty() {
                "the programs drained what they had staged themselves, as far as the file systems \
                 took it, and went on without it"
            } else {
                "what was done with files below mapped or coalesced folders from then on failed \
                 with EIO: do not trust them"
            };
            Failure::new(Code::Ours, "the daemon did not end well", why, advice)
        };
        drop(self.attachment);
        let mut said = Vec::new();
        self.output.read_until(END, &mut said).map_err(|why| failed(&why))?;
        if said.pop() != Some(END) {
            let status = status(self.process).map_err(|why| failed(&why))?;
            return Err(failed(&status));
        }
        if said == [STAYS] {
            return Ok(None);
        }
        serde_json::from_slice(&said)
            .map(Some)
            .map_err(|_| failed(&String::from_utf8_lossy(&said).trim_end()))
    }
}

/// Waits for the end of a process of this one's.
fn status(process: Pid) -> io::Result<ExitStatus> {
    let ended = retry_on_intr(|| waitpid(Some(process), WaitOptions::empty()))?;
    ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())).ok_or(Errno::CHILD.into())
}

/// Removes what a daemon has left that did not end by itself, unless another one serves the job.
fn clear(job: &Job) {
    let Ok(lock) = job.lock() else { return };
    if !caller::is_there(&job.folder) {
        job.clear(&lock);
    }
}
