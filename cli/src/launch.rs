//! Starting the daemon of a job, once, whoever comes first.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{
    config::Config,
    failure::{Code, Failure},
    job::Job,
    starter::READY,
    status::ask,
};
use daemon::{
    Error, Summary,
    control::{self, Attachment, Control},
};

/// What lets the program run all the same.
pub(crate) const INSTEAD: &str = "run the program without: KAKEHI_DISABLE=1";

/// A daemon this process started.
pub(crate) struct Daemon {
    child: Child,
    output: BufReader<ChildStdout>,
}

pub(crate) enum Launched {
    /// Somebody else's daemon serves the job.
    Attached(Attachment),
    /// This process started it.
    Started(Daemon, Attachment),
}

/// Attaches to the daemon of a job, started now if there is none.
pub(crate) fn attach_or_start(job: &Job, config: &Config) -> Result<Launched, Failure> {
    // Held until the daemon listens, so that of many that come at once one starts it.
    let lock = job.lock()?;
    match control::attach(&job.folder) {
        Ok(attachment) => return check(job, config).map(|()| Launched::Attached(attachment)),
        Err(Error::Unreachable { .. }) => {}
        Err(why) => return Err(Failure::of_daemon(&why)),
    }
    let daemon = start(job, config).inspect_err(|_| job.remove_locked(&lock))?;
    let attachment = control::attach(&job.folder).map_err(|why| Failure::of_daemon(&why))?;
    Ok(Launched::Started(daemon, attachment))
}

/// Whether the daemon of a job has the remote folders that this run maps.
fn check(job: &Job, config: &Config) -> Result<(), Failure> {
    let mapped = config.mapped();
    if mapped.0.is_empty() {
        return Ok(());
    }
    match mapped.missing_in(config.servers(), &ask(job, Control::Status)?) {
        None => Ok(()),
        Some(why) => Err(Failure::new(
            Code::Ours,
            format_args!("the daemon of this job, in {}", job.folder.display()),
            why,
            "give the same --remote, --map, and --coalesce, or name a folder for another daemon \
             with --socket",
        )),
    }
}

fn start(job: &Job, config: &Config) -> Result<Daemon, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(Code::Failure, "the daemon did not start", why, INSTEAD)
    };
    let program = env::current_exe().map_err(|why| failed(&why))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--for-run").arg("--socket").arg(&job.folder);
    for (flag, value) in config.daemon_flags() {
        command.arg(flag).arg(value);
    }
    // A group of its own: a Ctrl-C at the terminal is for the program, the daemon has to drain.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    // What the configuration says it is told; a relative name would be another file's there.
    command
        .env_remove("LD_PRELOAD")
        .env_remove("KAKEHI_CONFIG")
        .envs(config.daemon_variables())
        .current_dir("/");
    let mut child = command.spawn().map_err(|why| failed(&why))?;
    let output = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
    let mut output = BufReader::new(output);
    let mut line = String::new();
    match output.read_line(&mut line) {
        Ok(_) if line.trim_end() == READY => Ok(Daemon { child, output }),
        Ok(0) => match child.wait() {
            Ok(status) => Err(failed(&format_args!("it ended without a word: {status}"))),
            Err(why) => Err(failed(&why)),
        },
        Ok(_) => Err(Failure::of_line(Code::Failure, line.trim_end())),
        Err(why) => Err(failed(&why)),
    }
}

impl Daemon {
    /// Waits for the daemon's end and returns what it did.
    ///
    /// # Errors
    ///
    /// It did not end by itself. What it left in the job's folder is gone then.
    pub(crate) fn wait(self, job: &Job) -> Result<Summary, Failure> {
        self.wait_for_summary().inspect_err(|_| clear(job))
    }

    fn wait_for_summary(mut self) -> Result<Summary, Failure> {
        let failed = |why: &dyn std::fmt::Display| {
            let advice =
                "the programs have drained what this node's files were owed and went on without it";
            Failure::new(Code::Ours, "the daemon did not end well", why, advice)
        };
        let mut text = String::new();
        self.output.read_to_string(&mut text).map_err(|why| failed(&why))?;
        let status = self.child.wait().map_err(|why| failed(&why))?;
        if !status.success() {
            return Err(failed(&status));
        }
        serde_json::from_str(&text).map_err(|_| failed(&text.trim_end()))
    }
}

/// Removes what a daemon has left that did not end by itself, unless another one serves the job.
fn clear(job: &Job) {
    let Ok(lock) = job.lock() else { return };
    if let Err(Error::Unreachable { .. }) = control::attach(&job.folder) {
        job.clear(&lock);
    }
}
