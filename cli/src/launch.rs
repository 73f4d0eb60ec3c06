//! Starting the daemon of a job, once, whoever comes first.

use std::{
    env,
    ffi::OsString,
    fmt,
    io::{self, BufRead as _, BufReader},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use crate::{
    answer::ask,
    config::{Config, Origin},
    failure::{Code, Failure},
    job::{Job, unmasked},
    library,
    remote::real,
    report,
    settings::{Engine, View},
    starter::{END, READY, STANDBY},
    voice::{self, Volume},
};
use daemon::{
    Error, OwnMounts, Standby, Summary,
    caller::{self, Attachment, Control},
};
use rustix::io::Errno;

/// Letters of the program's command line that the daemon is told.
const COMMAND_LEN_MAX: usize = 400;
/// How glibc's allocator is told of these (2.35 or later; others do not read it).
const MALLOC: &str = "GLIBC_TUNABLES";
/// A daemon that coalesces remembers some hundred bytes of every file: it asks for memory by the
/// MiB, a system call for thousands of files and not for every two hundred.
const BY_MEBIBYTES: &str = "glibc.malloc.top_pad=4194304:glibc.malloc.mmap_threshold=33554432:\
     glibc.malloc.trim_threshold=67108864";
/// Tells the daemon of a run which program that runs. No setting: it begins otherwise than those.
pub(crate) const PROGRAM: &str = "_KAKEHI_PROGRAM";
/// The way to run the program all the same.
const INSTEAD: &str = "run the program without: KAKEHI_DISABLE=1";

/// Adds the alternative when there is no daemon: none where files would not be where they were
/// asked for.
pub(crate) fn or_instead(failure: Failure, config: &Config) -> Failure {
    if config.mapped().0.is_empty() { failure.or(INSTEAD) } else { failure }
}

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

/// A daemon this process started.
pub(crate) struct Daemon {
    child: Child,
    output: BufReader<ChildStdout>,
}

pub(crate) enum Launched {
    /// Somebody else's daemon serves the job; whether it has the cores that this run gives it.
    Attached(Attachment, bool),
    /// This process is the job's first run.
    First(Service),
}

/// The service of a job, for its first run.
pub(crate) enum Service {
    By(Daemon, Attachment),
    /// Its daemon starts once somebody asks for it; closed where it did not start.
    OnDemand(Standby),
}

/// Attaches to the daemon of a job, started now if there is none.
pub(crate) fn attach_or_start(
    job: &Job,
    config: &Config,
    program: &Program<'_>,
) -> Result<Launched, Failure> {
    loop {
        // Held until the daemon listens, so that of many that come at once one starts it.
        let lock = job.lock_to_start().map_err(|failure| or_instead(failure, config))?;
        // It may have come to listen before the lock was free.
        if let Some(lock) = lock.filter(|_| !caller::is_there(&job.folder)) {
            return launch(job, config, program).inspect_err(|_| job.remove_locked(&lock));
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
            Err(why @ Error::Silent { .. }) => {
                return Err(or_instead(Failure::of_daemon(&why), config));
            }
            Err(why) => return Err(Failure::of_daemon(&why)),
        }
    }
}

/// Starts the daemon of a job, or stands by for it where it need not be there from the start: no
/// folder is its to show, no report begins with it, and no setting is likely to be refused.
fn launch(job: &Job, config: &Config, program: &Program<'_>) -> Result<Launched, Failure> {
    let can_wait = !(program.is_reported || program.is_traced)
        && config.mapped().0.is_empty()
        && config.remote.is_none()
        && config.cores.is_none()
        && config.engine == Engine::Auto;
    // Where this process cannot, a daemon may, which raises its limits, or says why not.
    if let Some(Ok(standby)) = can_wait.then(|| unmasked(|| Standby::new(&job.folder))) {
        return Ok(Launched::First(Service::OnDemand(standby)));
    }
    let started = |is_first| serving(spawn(job, config, program, None, is_first)?, job, config);
    let is_taken = || viewed(config).iter().any(|local| daemon::has_view(local));
    // Another job's view may come to be there meanwhile, and be gone again. If it is there, this
    // run needs mounts of its own.
    let busy = io::Error::from(Errno::BUSY).to_string();
    match started(true) {
        Err(why) if is_taken() || why.to_string().contains(&busy) => started(false),
        started => started,
    }
    .map(Launched::First)
}

impl Service {
    /// Runs a program, and starts the daemon if somebody asks for it meanwhile. Where it does not
    /// start the programs go on without, and it is told why.
    pub(crate) fn during<T>(
        self,
        job: &Job,
        config: &Config,
        program: &Program<'_>,
        run: impl FnOnce() -> T,
    ) -> (T, Self) {
        let Self::OnDemand(standby) = self else { return (run(), self) };
        let Ok((end, running)) = UnixStream::pair() else {
            return (run(), Self::OnDemand(standby));
        };
        thread::scope(|scope| {
            let serving = scope.spawn(move || stand_by(standby, &end, job, config, program));
            let ended = run();
            drop(running);
            (ended, serving.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Ends it, once the program is gone, and returns what was done.
    ///
    /// # Errors
    ///
    /// The daemon did not end by itself. What it left in the job's folder is gone then.
    pub(crate) fn end(self, job: &Job, config: &Config) -> Result<Summary, Failure> {
        match self {
            Self::By(daemon, attachment) => {
                drop(attachment);
                daemon.wait(config).inspect_err(|_| clear(job))
            }
            Self::OnDemand(standby) => {
                let summary = standby.summary();
                drop(standby);
                job.remove();
                Ok(summary)
            }
        }
    }
}

/// Waits until somebody asks for the daemon and starts it, or until `end` is closed.
fn stand_by(
    mut standby: Standby,
    end: &UnixStream,
    job: &Job,
    config: &Config,
    program: &Program<'_>,
) -> Service {
    let started = match standby.wait(end.as_fd()) {
        Ok(None) => return Service::OnDemand(standby),
        Ok(Some(waiting)) => spawn(job, config, program, Some(standby.segment()), false)
            .and_then(|child| serving(child, job, config))
            .map(|service| (service, waiting)),
        Err(why) => Err(not_started(&why, config)),
    };
    match started {
        Ok((service, waiting)) => {
            standby.leave();
            drop(waiting);
            service
        }
        Err(failure) => {
            report::warn(&failure);
            standby.close();
            Service::OnDemand(standby)
        }
    }
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

/// The daemon, which is told every setting as it stands here: it reads no files, and to it a
/// relative name would be another one's.
fn command(daemon: &Path, job: &Job, config: &Config, program: &Program<'_>) -> Command {
    let mut command = Command::new(daemon);
    command.arg("serve").arg("--for-run").arg("--socket").arg(&job.folder);
    command.args(match voice::voice().volume {
        Volume::Quiet => Some("--quiet"),
        Volume::Normal => None,
        Volume::Verbose => Some("--verbose"),
    });
    // Not an argument: whoever ends programs by their command line (`pkill -f`) does not mean this.
    command.env(PROGRAM, program.shown());
    if program.is_reported {
        command.arg("--samples");
    }
    if program.is_traced {
        command.arg("--traces");
    }
    command.env_remove("LD_PRELOAD").envs(config.variables()).current_dir("/");
    if !config.coalesced.0.is_empty() && env::vars_os().all(|(name, _)| name != MALLOC) {
        command.env(MALLOC, BY_MEBIBYTES);
    }
    // A group of its own: a Ctrl-C at the terminal is for the program, the daemon has to drain.
    command.process_group(0);
    command
}

fn not_started(why: &dyn fmt::Display, config: &Config) -> Failure {
    or_instead(Failure::new(Code::Failure, "the daemon did not start", why, "try again"), config)
}

/// The folders that are to have views.
fn viewed(config: &Config) -> Vec<PathBuf> {
    let mapped = Some(config.mapped()).filter(|_| config.view != View::None);
    mapped.iter().flat_map(|maps| &maps.0).map(|(local, _)| real(local)).collect()
}

/// Mounts of this run's own, if it needs them for views.
fn own_mounts(config: &Config) -> Option<OwnMounts> {
    OwnMounts::take(&viewed(config)).unwrap_or_else(|why| {
        voice::step(format_args!("no view can be mounted for this run alone: {why}"));
        None
    })
}

/// Starts the process of a daemon, which is given the segment of whoever has stood by for it.
fn spawn(
    job: &Job,
    config: &Config,
    program: &Program<'_>,
    segment: Option<BorrowedFd<'_>>,
    is_first: bool,
) -> Result<Child, Failure> {
    let mut command = command(&library::own_program()?, job, config, program);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mounts = own_mounts(config);
    command.args(mounts.is_some().then_some("--own-mounts"));
    command.args(is_first.then_some("--unless-taken"));
    if let Some(segment) = segment {
        let segment = segment.try_clone_to_owned().map_err(|why| not_started(&why, config))?;
        command.stdin(segment).env(STANDBY, "1");
    }
    command.spawn().map_err(|why| not_started(&why, config))
}

/// Waits until a daemon serves, and attaches to it.
fn serving(mut child: Child, job: &Job, config: &Config) -> Result<Service, Failure> {
    let failed = |why: &dyn fmt::Display| not_started(why, config);
    let output = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
    let mut output = BufReader::new(output);
    let mut line = String::new();
    match output.read_line(&mut line) {
        Ok(_) if line.trim_end() == READY => {
            let attachment = caller::attach(&job.folder);
            let attachment = attachment.map_err(|why| Failure::of_daemon(&why))?;
            Ok(Service::By(Daemon { child, output }, attachment))
        }
        Ok(0) => match child.wait() {
            Ok(status) => Err(failed(&format_args!("it ended without a word: {status}"))),
            Err(why) => Err(failed(&why)),
        },
        Ok(_) => {
            let why = line.trim_end_matches(char::from(END)).trim_end();
            Err(Failure::of_line(Code::Failure, why))
        }
        Err(why) => Err(failed(&why)),
    }
}

impl Daemon {
    /// Waits until the daemon has served to the end and returns what it did. Its process may still
    /// be on its way out.
    fn wait(mut self, config: &Config) -> Result<Summary, Failure> {
        let failed = |why: &dyn fmt::Display| {
            let advice = if config.mapped().0.is_empty() {
                "the programs have drained what this node's files were owed and went on without it"
            } else {
                "what was done with files below mapped or coalesced folders from then on failed \
                 with EIO: do not trust them"
            };
            Failure::new(Code::Ours, "the daemon did not end well", why, advice)
        };
        let mut said = Vec::new();
        self.output.read_until(END, &mut said).map_err(|why| failed(&why))?;
        if said.pop() != Some(END) {
            let status = self.child.wait().map_err(|why| failed(&why))?;
            return Err(failed(&status));
        }
        serde_json::from_slice(&said)
            .map_err(|_| failed(&String::from_utf8_lossy(&said).trim_end()))
    }
}

/// Removes what a daemon has left that did not end by itself, unless another one serves the job.
fn clear(job: &Job) {
    let Ok(lock) = job.lock() else { return };
    if let Err(Error::Unreachable { .. }) = caller::attach(&job.folder) {
        job.clear(&lock);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use crate::config::{Environment, Flags, Origin};

    use super::*;

    #[test]
    fn every_setting_reaches_the_daemon() {
        // No default, and relative wherever that can be.
        let mut here = Environment::of(&[
            ("KAKEHI_SOCKET", "socket"),
            ("KAKEHI_JOB", "mine"),
            ("KAKEHI_IDLE", "park"),
            ("KAKEHI_QUIET", "2s"),
            ("KAKEHI_ENGINE", "threads"),
            ("KAKEHI_CORES", "0"),
            ("KAKEHI_RULES", "logs/**=pass"),
            ("KAKEHI_REMOTE", "servers"),
            ("KAKEHI_SPREAD", "rank"),
            ("KAKEHI_KEY", "key"),
            ("KAKEHI_MAP", "out=run1"),
            ("KAKEHI_COALESCE", "ckpt=ckpt.sion"),
            ("KAKEHI_VIEW", "auto"),
            ("KAKEHI_REMOTE_TIMEOUT", "5s"),
            ("KAKEHI_STAGING", "1MiB"),
            ("KAKEHI_MEMORY", "2MiB"),
            ("KAKEHI_SYNC", "1"),
            ("KAKEHI_DISABLE", "1"),
            ("KAKEHI_FENCE_TIMEOUT", "6s"),
            ("KAKEHI_DIRECT", "1MiB"),
            ("KAKEHI_STAGE_AFTER", "1ms"),
            ("KAKEHI_PRELOAD", "preload.so"),
            ("KAKEHI_LOG", "error"),
        ]);
        here.folder = Some("/no-such/here".into());
        let Ok(config) = Config::load(&here, &Flags::default()) else { panic!("usable") };
        assert!(config.rows.iter().all(|row| row.origin != Origin::Default), "one is missing");
        let folder = config.socket.clone().expect("given");
        let job = Job { name: "mine".to_owned(), folder };

        let words = [OsString::from("./app"), OsString::from("-x")];
        let program = Program { words: &words, is_reported: false, is_traced: false };
        let command = command(Path::new("kakehi"), &job, &config, &program);

        let words: Vec<_> = command.get_args().collect();
        assert_eq!(words, ["serve", "--for-run", "--socket", "/no-such/here/socket"]);
        let text = |text: &OsStr| text.to_str().expect("UTF-8").to_owned();
        let variables: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((text(name), text(value?))))
            .collect();
        let variables: Vec<_> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut there = Environment::of(&variables);
        there.folder = command.get_current_dir().map(Path::to_owned);
        assert_eq!(there.get(PROGRAM).and_then(OsStr::to_str), Some("./app -x"));
        let socket = Flags::socket(words.last().map(|word| text(word)));
        let Ok(told) = Config::told(&there, &socket) else { panic!("usable there") };
        let values = |config: &Config| -> Vec<_> {
            config.rows.iter().map(|row| (row.name, row.value.clone())).collect()
        };
        assert_eq!(values(&told), values(&config));
    }
}
