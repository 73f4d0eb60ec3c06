//! `kakehi run`: a program under delegation.
//!
//! The first `run` of a job starts the daemon, at once or when a program asks for it
//! ([`launch::Service`]), waits for its own program and then for the daemon's end, and reports.
//! Every other one attaches and becomes its program: the attachment is a descriptor that the
//! program inherits, so the daemon lives as long as anything of the job does.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
};

use clap::ValueHint;
use daemon::{Summary, caller::Attachment};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use signal_hook::consts::{SIGKILL, SIGXFSZ};

use crate::{
    affinity,
    config::{Config, Environment, Flags, Origin, Row, TRACE, WATCH},
    env::variables,
    failure::{Code, Failure, remedy},
    folders::Folders,
    for_run::{ForRun, Program},
    job::{self, Job, Joined},
    launch::{self, Launched, Service},
    library, peers,
    profile::{self, Report, Trace},
    report::{self, Stats},
    settings::{Rules, Switch},
    signals, voice,
};

const DISABLE: &str = "KAKEHI_DISABLE";

/// Runs a program with its file I/O delegated to the daemon of the job
///
/// Starts the job's daemon if there is none, stops it after the last program, and prints a summary
/// on standard error. Works around a launcher or behind it:
///
///     kakehi run -- mpirun -n 4 ./app
///     mpirun -n 4 kakehi run -- ./app
///     srun kakehi run -- ./app
///
/// 'kakehi config --show-origin' lists all settings, with variables and configuration files.
/// KAKEHI_DISABLE=1 runs the program untouched.
///
/// Exit status: the program's own; 126 when it cannot be executed, 127 when it is not found, 128+n
/// after signal n; 125 when kakehi itself failed, or, of the run that started the daemon, when the
/// program succeeded although the file system refused something it wrote; 2 when a setting or flag
/// is wrong. If the daemon dies, the program continues without it and standard error says so; with
/// mapped or coalesced folders, whose files only the daemon has, the exit status is 125.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Appends the statistics of the job to FILE as one line of JSON, when the job ends. Its first
    /// run does that, also for those that join it, and names its own program's exit code; none is
    /// written for a job of 'kakehi serve'.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    stats: Option<PathBuf>,
    /// Writes a report to FILE when the job ends: one HTML page that needs no network, with bytes
    /// over time, sizes of calls, files, ranks, what was not delegated, and what to change. The
    /// job's first run writes it, also for those that join. '%h' in FILE is the node's name.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Writes a trace to FILE when the job ends: JSON for ui.perfetto.dev or chrome://tracing, with
    /// the times at which sampled requests and staged writes were accepted, rung, taken, issued,
    /// and completed. Standard error has their means. As --report, by the job's first run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Has the program replace this process, without delegation, where `why` is that the node or a
/// limit withholds what Kakehi needs, and no folder is mapped.
fn replace(
    why: Failure,
    config: &Config,
    environment: &Environment,
    words: &[OsString],
) -> Failure {
    // Memory that is shared counts as a file for that limit. What the program writes may fit.
    let is_limited = why.is_of_node() || getrlimit(Resource::Fsize).maximum.is_some();
    if !is_limited || why.code == Code::Usage || !config.mapped().0.is_empty() {
        return why.ours();
    }
    report::warn(&why.or("leave it: the program runs without delegation").ours());
    let command = command(words).map(|mut command| {
        library::give_back(environment, &mut command);
        command.exec()
    });
    command.map_or_else(|failure| failure, |why| failed_to_execute(words, &why))
}

/// Runs the program and returns the exit code that speaks for it.
pub(crate) fn run(args: &Args, environment: &Environment) -> Result<ExitCode, Failure> {
    let mut command = command(&args.command)?;
    library::give_back(environment, &mut command);
    // Whatever else is wrong: a kill switch that asks for a correct file first is none.
    let switch = environment.get(DISABLE).and_then(|value| value.to_str()?.parse().ok());
    if let Some(Switch(true)) = switch {
        return Err(failed_to_execute(&args.command, &command.exec()));
    }
    let config = Config::load(environment, &args.flags)?;
    if config.disable {
        return Err(failed_to_execute(&args.command, &command.exec()));
    }
    peers::server(&config)?;
    peers::check_coalesced(&config)?;
    let stats = args.stats.as_deref().map(Stats::open).transpose()?;
    let pages = Pages::begin(args)?;
    find(&args.command, environment)?;
    let mut folders = Folders::make(config.mapped())?;
    folders.look();
    let undelegated = |why| replace(why, &config, environment, &args.command);
    job::sweep(environment);
    let made = Job::make(&config, environment);
    // A folder that was named on purpose is to be used.
    let is_named = config.socket.is_some();
    let job = made.map_err(|why| if is_named { why.ours() } else { undelegated(why) })?;
    let variables = variables(&config, &job, environment).inspect_err(|_| job.remove());
    command.envs(variables.map_err(undelegated)?);
    let program = Program {
        words: &args.command,
        is_reported: pages.report.is_some(),
        is_traced: pages.trace.is_some(),
    };
    let records = job.records(!pages.is_empty()).map_err(|why| lost(&why))?;
    command.envs(records.as_ref().map(|_| (WATCH, job.records_path())));
    command.envs(pages.trace.as_ref().map(|_| (TRACE, "1")));
    // To write a file that is too long ends the program, not what starts it.
    signals::outlive(SIGXFSZ)?;
    let daemon = ForRun { job: &job, config: &config, environment, program: &program };
    let launched = launch::attach_or_start(&daemon).map_err(undelegated)?;
    voice::step(format_args!("job {}: its daemon is in {}", job.name, job.folder.display()));
    // After the daemon was started, which has cores of its own.
    if !matches!(launched, Launched::Attached(_, false)) {
        affinity::leave(config.cores.as_ref())?;
    }
    folders.enter(environment.folder.as_deref(), &mut command);
    match launched {
        Launched::Attached(mut attachment, _) => {
            join(&mut attachment, &job, args).map_err(|why| lost(&why))?;
            pages.leave();
            folders.keep();
            Err(failed_to_execute(&args.command, &command.exec()))
        }
        Launched::First(service) => {
            let joined = job.joined();
            let (code, summary) = serve(service, &daemon, folders, &mut command)?;
            let Some(summary) = summary else { return Ok(ExitCode::from(code)) };
            let (command, config) = (program.shown(), &config);
            let ended = Ended { job: &job, config, command, code, stats, pages, records, joined };
            ended.tell(summary)
        }
    }
}

/// Runs the program of a job's first run, and ends the service of the job. Returns the exit code
/// that speaks for the program, and what was done, unless the daemon was lost or stays.
fn serve(
    mut service: Service,
    daemon: &ForRun<'_>,
    mut folders: Folders,
    command: &mut Command,
) -> Result<(u8, Option<Summary>), Failure> {
    let ForRun { job, config, environment, program: Program { words, .. } } = daemon;
    let _attended = job.attend();
    folders.seal();
    folders.tell_at_start();
    let status = service.during(daemon, command);
    if status.is_ok() {
        folders.keep();
    }
    folders.unseal();
    let was_killed = status.as_ref().is_ok_and(|status| status.signal() == Some(SIGKILL));
    let summary = service.end(job, config, was_killed);
    folders.tell_at_end();
    let code = exit_code(status.map_err(|why| {
        let failure = failed_to_execute(words, &why);
        // Where there was no process for it, it can have this one.
        if failure.is_of_node() { replace(failure, config, environment, words) } else { failure }
    })?);
    let summary = match summary {
        Ok(None) => {
            folders.leave();
            report::warn(&stays(job));
            None
        }
        Ok(summary) => summary,
        // Files that only it had could not be used any more.
        Err(failure) if code == 0 && !config.mapped().0.is_empty() => return Err(failure),
        // The programs have gone on without it, and what they did is theirs to say.
        Err(failure) => {
            report::warn(&failure);
            None
        }
    };
    Ok((code, summary))
}

/// The files about a job that were asked for.
struct Pages {
    report: Option<Report>,
    trace: Option<Trace>,
}

impl Pages {
    fn begin(args: &Args) -> Result<Self, Failure> {
        let report = args.report.as_deref().map(Report::begin).transpose()?;
        let trace = args.trace.as_deref().map(Trace::begin).transpose()?;
        Ok(Self { report, trace })
    }

    const fn is_empty(&self) -> bool {
        self.report.is_none() && self.trace.is_none()
    }

    /// For a run that joins a job.
    fn leave(self) {
        if let Some(report) = self.report {
            report.leave();
        }
        if let Some(trace) = self.trace {
            trace.leave();
        }
    }

    /// Writes both, also if one of them cannot be written.
    fn end(self, mut file: &File, job: &profile::Job<'_>) -> Result<(), Failure> {
        let mut records = Vec::new();
        // What can be read is shown.
        file.read_to_end(&mut records).ok();
        let traced = self.trace.map_or(Ok(()), |trace| trace.end(&records, job.summary));
        self.report.map_or(Ok(()), |report| report.end(&records, job)).and(traced)
    }
}

/// Joins a job that has its daemon already.
fn join(attachment: &mut Attachment, job: &Job, args: &Args) -> io::Result<()> {
    attachment.inherit()?;
    args.stats.as_ref().map_or(Ok(()), |path| job.join_statistics(path))
}

/// A job that is over, with everything that is written about it.
struct Ended<'a> {
    job: &'a Job,
    config: &'a Config,
    command: String,
    code: u8,
    stats: Option<Stats<'a>>,
    pages: Pages,
    records: Option<File>,
    joined: Option<Joined>,
}

impl Ended<'_> {
    /// Tells what the job did, and returns the exit code that speaks for it.
    fn tell(self, mut summary: Summary) -> Result<ExitCode, Failure> {
        let Self { job, config, command, code, stats, pages, records, joined } = self;
        let (name, exit_code) = (&*job.name, code);
        let ended = profile::Job { name, command, exit_code, config, summary: &summary };
        let reported = records.map_or(Ok(()), |records| pages.end(&records, &ended));
        // Only these draw them.
        summary.samples.clear();
        summary.traced.clear();
        let appended = append(stats, joined, &summary, &job.name, code).and(reported);
        let mut failures = report::failures(&summary);
        // Where the program ended well this is the job's failure.
        let is_well = code == 0 && appended.is_ok();
        let failure = if is_well { failures.pop().map(Failure::ours) } else { None };
        report::print(&summary, &failures);
        report::idle_rules(&summary, &given_rules(config)).iter().for_each(report::warn);
        appended?;
        failure.map_or(Ok(ExitCode::from(code)), Err)
    }
}

/// Appends the summary to the files of this run and of those that have joined the job.
fn append(
    own: Option<Stats<'_>>,
    joined: Option<Joined>,
    summary: &Summary,
    job: &str,
    exit_code: u8,
) -> Result<(), Failure> {
    let others = joined.map(|joined| joined.files(own.as_ref().map(Stats::path)));
    let mut appended = own.map_or(Ok(()), |stats| stats.append(summary, job, exit_code));
    for path in others.unwrap_or_default() {
        let stats = Stats::open(&path);
        appended = appended.and(stats.and_then(|stats| stats.append(summary, job, exit_code)));
    }
    appended
}

/// The rules of the command line, with those for mapped folders; none if others have set them.
fn given_rules(config: &Config) -> Rules {
    let is_given = |row: &&Row| row.name == "rules" && matches!(row.origin, Origin::Flag(_));
    let value = config.rows.iter().find(is_given).and_then(|row| row.value.as_deref());
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn command(words: &[OsString]) -> Result<Command, Failure> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::usage("run", "no program was named", "put it behind --"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    daemon::leave_closed(&mut command);
    Ok(command)
}

/// Checks that the program exists, before anything is made for it.
fn find(words: &[OsString], environment: &Environment) -> Result<(), Failure> {
    let Some(name) = words.first() else { return Ok(()) };
    let places = match name.as_encoded_bytes().contains(&b'/') {
        true => vec![PathBuf::new()],
        false => environment.folders("PATH"),
    };
    let mut worst = Errno::NOENT.into();
    for folder in &places {
        match folder.join(name).symlink_metadata() {
            Ok(_) => return Ok(()),
            // It may be there for others to run, which is what a shell says, too.
            Err(why)
                if !matches!(Errno::from_io_error(&why), Some(Errno::NOENT | Errno::NOTDIR)) =>
            {
                worst = why;
            }
            Err(_) => {}
        }
    }
    // Where no list of folders is set libc knows one.
    if places.is_empty() { Ok(()) } else { Err(failed_to_execute(words, &worst)) }
}

fn failed_to_execute(words: &[OsString], why: &io::Error) -> Failure {
    let code = match why.kind() {
        ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotExecutable,
    };
    let program = words.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let errno = Errno::from_io_error(why);
    if errno.and_then(remedy).is_some() {
        return Failure::of_call(code, program, why, "");
    }
    let advice = match errno {
        // Only shells take such a file for a script of theirs.
        Some(Errno::NOEXEC) => {
            "begin a script with '#!/bin/sh' or its like, or name the shell that runs it"
        }
        Some(Errno::NOENT) if program.contains('/') && Path::new(&*program).exists() => {
            "the interpreter behind its '#!' is missing"
        }
        _ => "check its path and that it is executable",
    };
    Failure::new(code, program, why, advice)
}

/// Some programs go on when the first one of a job has ended, and their daemon with them.
fn stays(job: &Job) -> Failure {
    let why = "programs of it still run, and their daemon stays for them";
    let advice = "mapped and coalesced files are complete once 'kakehi jobs' does not list it; \
                  there is no summary";
    Failure::new(Code::Ours, format_args!("job {}", job.name), why, advice)
}

fn lost(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Ours, "the daemon", why, "try again")
}

/// As a shell says it: the program's own code, or 128 and the signal's number.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(u8::MAX)
}
