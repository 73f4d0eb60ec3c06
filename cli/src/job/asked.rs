//! Which daemon a question is for.
//!
//! Folders of a batch script's jobs are below `/tmp`, those of a login shell below its
//! `XDG_RUNTIME_DIR`; whoever asks from the one about the other means the same job.

use std::{fs, io, path::Path};

use daemon::caller::{self, Control};
use serde_json::Value;

use super::{
    Job, base::bases, check_private, deserted::has_programs, given_name, refused, unreachable,
};
use crate::{
    config::{Config, Environment},
    failure::Failure,
    report,
};

/// Letters of a command that a line shows.
const SHOWN_MAX: usize = 40;

impl Job {
    /// The job that a question is meant for: this process's, or, where nothing names one, the only
    /// one of this user that is served on this node.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find); `Usage` when several are served, `Unreachable` when none is.
    pub(crate) fn asked(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        if config.socket.is_some() {
            return Self::find(config, environment);
        }
        let bases = bases(environment);
        if given_name(config, environment)?.is_some() {
            let job = Self::find(config, environment)?;
            let mut anywhere = bases.iter().map(|base| Self::below(base, &job.name));
            // One that is silent is met there, and says so.
            let found = anywhere.find(|job| job.is_served().unwrap_or(true));
            return Ok(found.unwrap_or(job));
        }
        let (mut jobs, mut silent, mut unread) = (Vec::new(), Vec::new(), None);
        for base in &bases {
            match served(base, &mut silent) {
                Ok(found) => jobs.extend(found),
                Err(why) => unread = unread.or(Some(refused(base, why))),
            }
        }
        let failure = if jobs.is_empty() { silent.pop().or(unread) } else { None };
        silent.iter().for_each(report::warn);
        match (&*jobs, failure) {
            ([], Some(failure)) => Err(failure),
            ([], None) => {
                let folders: Vec<_> = bases.iter().map(|base| base.display().to_string()).collect();
                let why = "no job of this user is served here";
                Err(unreachable(Path::new(&folders.join(" or ")), why))
            }
            ([job], _) => Ok(job.clone()),
            ([first, ..], _) => {
                let jobs = jobs.iter().map(Served::of).collect::<Vec<_>>();
                let named: Vec<_> = jobs.iter().map(Served::named).collect();
                let advice = format!("choose one: --job {}", first.name);
                Err(Failure::usage("several jobs are served", named.join(", "), advice))
            }
        }
    }

    /// Every job of this user that is served on this node, and what its daemon says of it.
    pub(crate) fn all(environment: &Environment) -> Result<Vec<Served>, Failure> {
        let (mut jobs, mut silent) = (Vec::new(), Vec::new());
        for base in &bases(environment) {
            let found = served(base, &mut silent).map_err(|why| refused(base, why))?;
            jobs.extend(found.iter().map(Served::of));
        }
        silent.iter().for_each(report::warn);
        Ok(jobs)
    }

    /// The job of the one daemon that a `kakehi serve` has started for programs to come, where
    /// nothing says which job this is.
    pub(crate) fn served(
        config: &Config,
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        if config.socket.is_some() || given_name(config, environment)?.is_some() {
            return Ok(None);
        }
        let Some(base) = bases(environment).into_iter().next() else { return Ok(None) };
        // One that is silent, or cannot be looked at, is nobody's to join.
        let mut jobs = served(&base, &mut Vec::new()).unwrap_or_default();
        jobs.retain(Self::waits_for_programs);
        if jobs.len() > 1 {
            let folders = jobs.iter().map(|job| job.folder.display().to_string());
            let folders = folders.collect::<Vec<_>>().join(", ");
            let advice = "start another one, or name one of these with --socket";
            report::warn(&Failure::usage("several daemons wait for programs", folders, advice));
            return Ok(None);
        }
        Ok(jobs.pop())
    }

    /// True unless a run has started the daemon for its own program, or it serves other nodes.
    fn waits_for_programs(&self) -> bool {
        let answer = caller::ask(&self.folder, Control::Status).ok();
        let status = answer.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let is_servers = status.is_none_or(|status| status.get("serving").is_some());
        !is_servers && !has_programs(self)
    }

    pub(super) fn below(base: &Path, name: &str) -> Self {
        Self { name: name.to_owned(), folder: base.join(name) }
    }

    /// True if a daemon answers. What was killed has left its socket.
    ///
    /// # Errors
    ///
    /// One is there, and silent.
    fn is_served(&self) -> Result<bool, Failure> {
        if check_private(&self.folder).is_err() {
            return Ok(false);
        }
        match caller::ask(&self.folder, Control::Status) {
            Err(why @ daemon::Error::Silent { .. }) => Err(Failure::of_daemon(&why)),
            answer => Ok(answer.is_ok()),
        }
    }
}

/// A job whose daemon answers.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) job: Job,
    /// Answer of the daemon; null if it has ended since.
    pub(crate) status: Value,
}

impl Served {
    pub(crate) fn of(job: &Job) -> Self {
        let answer = caller::ask(&job.folder, Control::Status).ok();
        let status = answer.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Self { job: job.clone(), status }
    }

    /// The program that the daemon was started for, or what it does.
    pub(crate) fn command(&self) -> &str {
        let given = self.status.get("command").and_then(Value::as_str);
        let is_server = self.status.get("serving").is_some() && given.is_none();
        given.unwrap_or(if is_server { "(server)" } else { "(waits for programs)" })
    }

    /// Seconds since the daemon started.
    pub(crate) fn age(&self) -> u64 {
        self.status.get("age_seconds").and_then(Value::as_u64).unwrap_or(0)
    }

    /// The job's name with what tells it from others.
    pub(crate) fn named(&self) -> String {
        let command = self.command().trim_matches(['(', ')']);
        let command: String = command.chars().take(SHOWN_MAX).collect();
        format!("{} ({command}, {})", self.job.name, report::age(self.age()))
    }
}

/// The jobs with a folder in `base` whose daemons answer, by name; and those that are silent.
fn served(base: &Path, silent: &mut Vec<Failure>) -> io::Result<Vec<Job>> {
    let entries = match check_private(base).and_then(|()| fs::read_dir(base)) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let mut jobs = Vec::new();
    for entry in entries {
        let entry = entry?;
        let job = Job::below(base, &entry.file_name().to_string_lossy());
        match job.is_served() {
            Ok(true) => jobs.push(job),
            Ok(false) => {}
            Err(failure) => silent.push(failure),
        }
    }
    jobs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(jobs)
}
