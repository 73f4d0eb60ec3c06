//! `kakehi serve`: a daemon in the foreground.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    slice,
    sync::Arc,
    time::Duration,
};

use daemon::{Error, Given, Summary};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    coalesce,
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    folders::Folders,
    job::Job,
    launch::{INSTEAD, READY},
    log, output,
    remote::{self, Url},
    report,
};

/// How long a daemon that is to end waits for programs that outlive their `kakehi run`.
const LINGER: Duration = Duration::from_secs(2);

/// Serves the programs of this job until it is terminated; with --listen, daemons elsewhere too
///
/// On an I/O node, and then on the nodes that compute:
///
///     kakehi serve --listen tcp://0.0.0.0:7777 --root /scratch/me --key ~/.kakehi-key
///     kakehi run --remote tcp://io1:7777 --key ~/.kakehi-key --map out=/run1 -- ./app
///
/// The key file is made when it is missing; whoever has it may change everything below --root.
/// unix://PATH needs none: without --key it lets in this user's processes, and root's.
///
/// Exit status: 0 when everything accepted has been written; 1 when something could not be.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Serves the folder of --root to daemons elsewhere: tcp://HOST:PORT (port 0: any), the same
    /// with ucx:// to go on by UCX, or unix://PATH.
    #[arg(long, value_name = "URL", requires = "root")]
    listen: Option<Url>,
    /// The folder that is served, and nothing outside it.
    #[arg(long, value_name = "DIR", requires = "listen")]
    root: Option<PathBuf>,
    /// Leaves a file in DIR that has the address listened at.
    #[arg(long, value_name = "DIR", requires = "listen")]
    address_file: Option<PathBuf>,
    /// Started by `kakehi run`: says when it is ready, ends with the last program, and reports.
    #[arg(long, hide = true)]
    for_run: bool,
}

pub(crate) fn serve(args: &Args, environment: &Environment) -> Result<(), Failure> {
    if !args.for_run {
        let mut failures = report::failures(&serve_to_end(args, environment, None)?);
        let failure = failures.pop();
        failures.iter().for_each(report::warn);
        return failure.map_or(Ok(()), Err);
    }
    let starter = Starter::take_over_output()?;
    let text = match serve_to_end(args, environment, Some(&starter)) {
        Ok(summary) => output::json(&summary)?,
        Err(failure) => failure.text(),
    };
    starter.tell(&text);
    Ok(())
}

/// Whoever started this daemon, and reads what it says.
struct Starter(Arc<OwnedFd>);

impl Starter {
    /// Takes what was standard output. What libraries print there, as UCX its errors, goes to
    /// standard error from now on: nobody takes it for what the daemon says.
    fn take_over_output() -> Result<Self, Failure> {
        let taken = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 0).and_then(|output| {
            rustix::stdio::dup2_stdout(io::stderr())?;
            Ok(Self(Arc::new(output)))
        });
        taken.map_err(|why| {
            Failure::new(Code::Failure, "standard output", why, "raise the descriptor limit")
        })
    }

    /// Whether nobody reads any more what this daemon says.
    fn is_gone(&self) -> bool {
        let mut output = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut output, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
    }

    /// If nobody is left to hear it, the daemon may go on.
    fn tell(&self, text: &str) {
        self.0.try_clone().and_then(|fd| File::from(fd).write_all(text.as_bytes())).ok();
    }
}

fn serve_to_end(
    args: &Args,
    environment: &Environment,
    starter: Option<&Starter>,
) -> Result<Summary, Failure> {
    let config = Config::load(environment, &args.flags)?;
    log::start(config.log, args.for_run);
    let find = if args.listen.is_some() { Job::of_server } else { Job::find };
    let job = find(&config, environment)?;
    let created = job.create()?;
    let own = if args.listen.is_some() { None } else { coalesce::own(&config, &job)? };
    let (own_remote, own_serving) = own.unzip();
    let configuration = daemon::Config {
        folder: job.folder.clone(),
        idle: config.idle.into(),
        quiet: config.quiet.0,
        engine: config.engine.into(),
        cores: config.daemon_cores(),
        staging: config.staging.0,
        memory: config.memory.0,
        launcher: starter.map(|starter| Arc::clone(&starter.0)),
        linger: LINGER,
        ucx_variables: environment.ucx_variables(),
        remote: match own_remote {
            None if args.listen.is_none() => remote::server(&config)?,
            own => own,
        },
        serving: match own_serving {
            None => serving(args, &config, environment)?,
            own => own,
        },
    };
    let is_server = args.listen.is_some();
    let maps = if is_server { config.coalesced.maps() } else { config.mapped() };
    let ready = |address: Option<&daemon::Address>| {
        if let Some(starter) = starter {
            return starter.tell(&format!("{READY}\n"));
        }
        Folders::of(maps).tell_at_start();
        if let (Some(address), Some(_), None) = (address, &args.listen, &args.address_file) {
            // It serves as well when nobody reads this.
            writeln!(io::stderr(), "kakehi: listening at {address}").ok();
        }
    };
    let summary = daemon::serve(configuration, ready).map_err(|why| match (&why, starter) {
        // Without the daemon its files would not be where they were asked for.
        (Error::Unusable { given: Given::Multifile(_), .. }, _) | (_, None) => {
            Failure::of_daemon(&why)
        }
        (_, Some(_)) => Failure::of_daemon(&why).or(INSTEAD),
    });
    if summary.is_err() && starter.is_some_and(Starter::is_gone) {
        // It was killed while it started this daemon: its lock goes with it, if not this instant.
        if let Ok(lock) = job.lock() {
            job.remove_locked(&lock);
        }
    } else if created || args.for_run {
        job.remove();
    }
    summary
}

/// What is served to daemons elsewhere.
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
        key: remote::key(
            config,
            slice::from_ref(&address),
            "--listen needs --key FILE, but for unix://PATH",
        )?,
        address,
        address_folder: args.address_file.as_deref().map(absolute),
    }))
}
