//! `kakehi serve`: a daemon, in the foreground or going on by itself.

use std::{
    any::Any,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    slice,
};

use daemon::{Error, Given, Summary};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};

use crate::{
    config::{Config, Environment, Flags},
    failure::Failure,
    folders::Folders,
    job::{self, Job},
    launch::{PROGRAM, or_instead},
    log, metrics, output, peers,
    remote::Url,
    report, signals,
    starter::{self, Starter},
};

/// Serves the programs of this job, or with --listen daemons elsewhere
///
/// On an I/O node, and then on the nodes that compute:
///
///     kakehi serve --listen tcp://0.0.0.0:7777 --root /scratch/me --key ~/.kakehi-key
///     kakehi run --remote tcp://io1:7777 --key ~/.kakehi-key --map out=/run1 -- ./app
///
/// A missing key file is created; its holders may change everything below --root. unix://PATH needs
/// no key: without --key it admits processes of this user and root.
///
/// Exit status: 0 when everything accepted was written; 1 when something was not.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Serves the folder of --root to daemons elsewhere: tcp://HOST:PORT (port 0: any),
    /// ucx://HOST:PORT for data over UCX, or unix://PATH.
    #[arg(long, value_name = "URL", requires = "root")]
    listen: Option<Url>,
    /// Folder to serve; nothing outside it is reachable.
    #[arg(long, value_name = "DIR", requires = "listen")]
    root: Option<PathBuf>,
    /// Writes the listen address to a file in DIR.
    #[arg(long, value_name = "DIR", requires = "listen")]
    address_file: Option<PathBuf>,
    /// Returns once the daemon is ready; it keeps running without a terminal. Its warnings go to
    /// standard error only if that is a file.
    #[arg(long)]
    background: bool,
    /// Started by `kakehi mount --read-only`: changes nothing.
    #[arg(long, hide = true)]
    read_only: bool,
    /// Started by --background: says when it is ready.
    #[arg(long, hide = true)]
    in_background: bool,
    /// Samples the counters over time, for a report.
    #[arg(long, hide = true)]
    samples: bool,
    /// Traces sampled requests, for a trace.
    #[arg(long, hide = true)]
    traces: bool,
    /// Serves metrics at http://ADDRESS/metrics, an address of this node like 127.0.0.1:9900.
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// Started by `kakehi run`: says when it is ready, ends with the last program, and reports.
    #[arg(long, hide = true)]
    for_run: bool,
    /// Does not start where another job's view is at a folder.
    #[arg(long, hide = true, requires = "for_run")]
    unless_taken: bool,
    /// The run has mounts of its own.
    #[arg(long, hide = true, requires = "for_run")]
    own_mounts: bool,
}

pub(crate) fn serve(args: &Args, environment: &Environment) -> Result<ExitCode, Failure> {
    if args.background {
        return starter::start_in_background();
    }
    // At once: a job may be signalled while it starts.
    signals::outlive(&[SIGUSR1, SIGUSR2])?;
    // A terminal's end is the end of what it has in the foreground.
    if args.for_run || args.in_background {
        signals::outlive(&[SIGHUP])?;
    }
    if args.for_run {
        let starter = Starter::run()?;
        let (text, remains) = match serve_to_end(args, environment, &starter) {
            Ok((summary, remains)) => (output::json(&summary)?, Some(remains)),
            Err(failure) => (failure.text(), None),
        };
        starter.tell_end(&text);
        drop(remains);
        return Ok(ExitCode::SUCCESS);
    }
    let starter = if args.in_background { Starter::background()? } else { Starter::Shell };
    let (summary, _remains) = serve_to_end(args, environment, &starter)?;
    let mut failures = report::failures(&summary);
    let failure = failures.pop();
    failures.iter().for_each(report::warn);
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Reads the settings, and logs from now on.
fn load(args: &Args, environment: &Environment) -> Result<Config, Failure> {
    let load = if args.for_run { Config::told } else { Config::load };
    let config = load(environment, &args.flags)?;
    log::start(config.level(), args.for_run);
    Ok(config)
}

/// The mapped folders, held unless a `kakehi run` does.
fn folders(args: &Args, config: &Config, starter: &Starter) -> Folders {
    let maps = if args.listen.is_some() { config.coalesced.maps() } else { config.mapped() };
    let mut folders = Folders::of(maps);
    if !starter.is_run() {
        folders.look();
    }
    folders
}

fn serve_to_end(
    args: &Args,
    environment: &Environment,
    starter: &Starter,
) -> Result<(Summary, Box<dyn Any>), Failure> {
    let config = load(args, environment)?;
    let find = if args.listen.is_some() { Job::of_server } else { Job::find };
    let job = find(&config, environment)?;
    let remote = if args.listen.is_none() { peers::server(&config)? } else { None };
    let serving = serving(args, &config, environment)?;
    let segment = starter.is_run().then(|| starter::segment(environment)).transpose()?.flatten();
    let metrics = args.metrics_listen.map(metrics::Listener::bind).transpose()?;
    // From here on there is something to be left behind.
    if !starter.is_run() {
        job::sweep(environment);
    }
    job.create()?;
    // Before anything is made there: one that has just ended removes what is. A `kakehi run` has it
    // for the daemon that it starts.
    let lock = if starter.is_run() { None } else { Some(job.lock()?) };
    let own = if args.listen.is_none() { peers::own(&config, &job) } else { Ok(None) };
    let (own_remote, mut own_serving) = own
        .inspect_err(|_| match &lock {
            Some(lock) => job.remove_locked(lock),
            None => job.remove(),
        })?
        .unzip();
    let multifiles = own_serving.iter_mut().flat_map(|serving| &mut serving.coalesced);
    multifiles.for_each(|coalesce| coalesce.is_read_only = args.read_only);
    let configuration = daemon::Config {
        folder: job.folder.clone(),
        idle: config.idle.into(),
        quiet: config.quiet.0,
        engine: config.engine.into(),
        cores: config.daemon_cores(),
        staging: config.staging.0,
        memory: config.memory.0,
        starter: starter.pipe(),
        segment,
        linger: daemon::LINGER,
        ucx_variables: environment.ucx_variables(),
        remote: own_remote.or(remote),
        serving: own_serving.or(serving),
        command: environment.get(PROGRAM).map(|shown| shown.to_string_lossy().into_owned()),
        takes_samples: args.samples,
        takes_trace: args.traces,
        view: config.view.into(),
        refuses_taken: args.unless_taken,
        has_own_mounts: args.own_mounts,
        is_read_only: args.read_only,
        settings: config.of_daemon().map(|(row, value)| (row.name.to_owned(), value)).collect(),
    };
    let folders = folders(args, &config, starter);
    let ready = |address: Option<&daemon::Address>| {
        if !starter.is_run() {
            folders.seal();
            folders.tell_at_start();
            if let (Some(address), Some(_), None) = (address, &args.listen, &args.address_file) {
                // It serves as well when nobody reads this.
                writeln!(io::stderr(), "kakehi: listening at {address}").ok();
            }
        }
        drop(lock);
        if let Some(listener) = metrics {
            writeln!(io::stderr(), "kakehi: metrics at {}", listener.url()).ok();
            listener.serve(job.clone());
        }
        starter.tell_ready();
    };
    let ended = daemon::serve(configuration, ready).map_err(|why| match (&why, starter.is_run()) {
        // Without the daemon its files would not be where they were asked for.
        (Error::Unusable { given: Given::Multifile(_), .. }, _) | (_, false) => {
            Failure::of_daemon(&why)
        }
        (_, true) => or_instead(Failure::of_daemon(&why), &config),
    });
    remove(&job, ended.is_err() && starter.is_gone());
    ended
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

/// Returns the part of the configuration that is served to daemons elsewhere.
fn serving(
    args: &Args,
    config: &Config,
    environment: &Environment,
) -> Result<Option<daemon::Serving>, Failure> {
    let Some((Url(address), root)) = args.listen.clone().zip(args.root.as_ref()) else {
        return Ok(None);
    };
    let absolute = |path: &Path| match &environment.folder {
        Some(folder) => folder.join(path),
        None => path.to_owned(),
    };
    let address = match &environment.folder {
        Some(folder) => address.starting_at(folder),
        None => address,
    };
    Ok(Some(daemon::Serving {
        coalesced: config.coalesced.below(&absolute(root))?,
        root: absolute(root),
        key: peers::key(
            config,
            slice::from_ref(&address),
            "--listen needs --key FILE, but for unix://PATH",
        )?,
        address,
        address_folder: args.address_file.as_deref().map(absolute),
    }))
}
