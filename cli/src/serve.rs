//! `kakehi serve`: a daemon, in the foreground or going on by itself.

use std::{
    any::Any,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    slice,
};

use daemon::Summary;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use crate::{
    config::{Config, Environment, Flags},
    failure::Failure,
    folders::Folders,
    job::{self, Job},
    log, metrics, peers,
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
    /// Serves metrics at http://ADDRESS/metrics, an address of this node like 127.0.0.1:9900.
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
}

pub(crate) fn serve(args: &Args, environment: &Environment) -> Result<ExitCode, Failure> {
    if args.background {
        return starter::start_in_background();
    }
    // At once: a job may be signalled while it starts.
    signals::outlive_job(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP])?;
    // A terminal's end is the end of what it has in the foreground.
    if args.in_background {
        signals::outlive(SIGHUP)?;
    }
    let starter = if args.in_background { Starter::background()? } else { Starter::Shell };
    let (summary, _remains) = serve_to_end(args, environment, &starter)?;
    let mut failures = report::failures(&summary);
    let failure = failures.pop();
    failures.iter().for_each(report::warn);
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn serve_to_end(
    args: &Args,
    environment: &Environment,
    starter: &Starter,
) -> Result<(Summary, Box<dyn Any>), Failure> {
    let config = Config::load(environment, &args.flags)?;
    log::start(config.level(), false);
    let find = if args.listen.is_some() { Job::of_server } else { Job::find };
    let job = find(&config, environment)?;
    let remote = if args.listen.is_none() { peers::server(&config)? } else { None };
    let serving = serving(args, &config, environment)?;
    let metrics = args.metrics_listen.map(metrics::Listener::bind).transpose()?;
    // From here on there is something to be left behind.
    job::sweep(environment);
    job.create()?;
    // Before anything is made there: one that has just ended removes what is.
    let lock = job.lock()?;
    let own = if args.listen.is_none() { peers::own(&config, &job) } else { Ok(None) };
    let (own_remote, mut own_serving) = own.inspect_err(|_| job.remove_locked(&lock))?.unzip();
    let multifiles = own_serving.iter_mut().flat_map(|serving| &mut serving.coalesced);
    multifiles.for_each(|coalesce| coalesce.is_read_only = args.read_only);
    let configuration = daemon::Config {
        remote: own_remote.or(remote),
        serving: own_serving.or(serving),
        is_read_only: args.read_only,
        ..configuration(&config, &job, environment)
    };
    let maps = if args.listen.is_some() { config.coalesced.maps() } else { config.mapped() };
    let mut folders = Folders::of(maps);
    folders.look();
    let ready = |address: Option<&daemon::Address>| {
        folders.seal();
        folders.tell_at_start();
        if let (Some(address), Some(_), None) = (address, &args.listen, &args.address_file) {
            // It serves as well when nobody reads this.
            writeln!(io::stderr(), "kakehi: listening at {address}").ok();
        }
        drop(lock);
        if let Some(listener) = metrics {
            writeln!(io::stderr(), "kakehi: metrics at {}", listener.url()).ok();
            listener.serve(job.clone());
        }
        starter.tell_ready();
    };
    let ended = daemon::serve(configuration, None, ready);
    job.remove();
    ended.map_err(|why| Failure::of_daemon(&why))
}

/// The daemon's configuration, as far as all daemons have it.
pub(crate) fn configuration(
    config: &Config,
    job: &Job,
    environment: &Environment,
) -> daemon::Config {
    let settings = config.of_daemon().map(|(row, value)| (row.name.to_owned(), value));
    daemon::Config {
        idle: config.idle.into(),
        quiet: config.quiet.0,
        engine: config.engine.into(),
        cores: config.daemon_cores(),
        staging: config.staging.0,
        memory: config.memory.0,
        ucx_variables: environment.ucx_variables(),
        view: config.view.into(),
        settings: settings.collect(),
        ..daemon::Config::new(job.folder.clone())
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
