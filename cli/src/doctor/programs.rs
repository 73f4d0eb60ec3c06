//! Probes of libraries and programs: the preload library, libc, UCX, MPI, schedulers.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::{Pid, PidfdFlags},
};

use crate::{
    config::{Config, Environment},
    finding::Finding,
    job::{Job, SCHEDULERS},
    library::{self, LD_PRELOAD},
    loader::Loader,
};

/// Longest wait for a program to tell its version.
const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

pub(super) fn glibc(environment: &Environment) -> Finding {
    const NAME: &str = "libc";
    const MEANING: &str = "the preload library needs the GNU C library";
    match first_line(environment, "getconf", &["GNU_LIBC_VERSION"]) {
        Some(version) if version.starts_with("glibc") => Finding::ok(NAME, version, MEANING),
        _ => Finding::note(NAME, "not the GNU C library, or unknown", MEANING)
            .advise("build kakehi on this machine"),
    }
}

/// Finds the preload library and loads it into a process that ends at once.
pub(super) fn preload(config: &Config) -> Finding {
    const NAME: &str = "preload";
    const MEANING: &str = "interposes the file calls of programs";
    let path = match library::find(config) {
        Ok(path) => path,
        Err(why) => {
            let why = why.to_string();
            let why = why.strip_prefix("kakehi: preload library: ").unwrap_or(&why);
            return Finding::problem(NAME, why, MEANING);
        }
    };
    let loaded = Command::new("/bin/true")
        .env_clear()
        .env("KAKEHI_DISABLE", "1")
        .env(LD_PRELOAD, library::preloading(&Environment::default(), &path))
        .stdin(Stdio::null())
        .output();
    let found = path.display();
    match loaded {
        // The loader goes on without a library it cannot load, and says so.
        Ok(ended) if ended.status.success() && ended.stderr.is_empty() => {
            Finding::ok(NAME, found, MEANING)
        }
        Ok(ended) if ended.status.success() => {
            let text = String::from_utf8_lossy(&ended.stderr);
            let why = text.lines().next().unwrap_or_default();
            Finding::problem(NAME, why, MEANING).advise(format!("build {found} on this machine"))
        }
        Ok(ended) => Finding::problem(NAME, format_args!("{found}: {}", ended.status), MEANING)
            .advise("report this: a program failed with the library loaded".to_owned()),
        Err(why) => Finding::note(NAME, format_args!("{found}: not loaded: {why}"), MEANING),
    }
}

/// Creates the job's folder as `run` does, and removes it again if it was not there before.
pub(super) fn socket_folder(config: &Config, environment: &Environment) -> Finding {
    const NAME: &str = "socket folder";
    const MEANING: &str = "the job's daemon listens here, for this user only";
    let job = Job::find(config, environment);
    let result = job.and_then(|job| {
        let created = job.create()?;
        Ok((job, created))
    });
    match result {
        Ok((job, created)) => {
            if created {
                // A daemon that moved in meanwhile keeps it: a folder in use is not empty.
                fs::remove_dir(&job.folder).ok();
            }
            Finding::ok(NAME, job.folder.display(), MEANING)
        }
        Err(why) => Finding::problem(NAME, why.text(), MEANING),
    }
}

pub(super) fn ucx(loader: &Loader, environment: &Environment) -> Finding {
    const NAME: &str = "UCX";
    const MEANING: &str = "optional; carries remote files over ucx:// addresses";
    let Some(path) = loader.find("libucp.so.0", &[], &[], |_| true) else {
        return Finding::note(NAME, "no libucp.so.0", MEANING)
            .advise("to use it, install UCX (Debian: libucx0)");
    };
    match ucx_version(&path, environment) {
        Some(version) => Finding::ok(NAME, format_args!("{version}, {}", path.display()), MEANING),
        None => Finding::ok(NAME, format_args!("{}, version unknown", path.display()), MEANING),
    }
}

/// The version by UCX's own tool or by its package file beside the library, whose name has only
/// the version of the interface.
fn ucx_version(library: &Path, environment: &Environment) -> Option<String> {
    if let Some(line) = first_line(environment, "ucx_info", &["-v"]) {
        return line.rsplit_once(' ').map(|(_, version)| version.to_owned());
    }
    let description = fs::read_to_string(library.parent()?.join("pkgconfig/ucx.pc")).ok()?;
    let version = description.lines().find_map(|line| line.strip_prefix("Version:"))?;
    Some(version.trim().to_owned())
}

pub(super) fn mpi(environment: &Environment) -> Finding {
    const NAME: &str = "MPI";
    const MEANING: &str = "any MPI works: 'kakehi run -- mpirun …'";
    let launcher = ["mpirun", "mpiexec"].into_iter().find_map(|program| {
        let path = environment.find_program(OsStr::new(program))?;
        Some((path, first_line(environment, program, &["--version"]).unwrap_or_default()))
    });
    match launcher {
        Some((path, line)) => {
            Finding::ok(NAME, format_args!("{} ({})", path.display(), line.trim()), MEANING)
        }
        None => Finding::note(NAME, "neither mpirun nor mpiexec in PATH", MEANING)
            .advise("load an MPI module, or install one (Debian: openmpi-bin)"),
    }
}

pub(super) fn scheduler(environment: &Environment) -> Finding {
    const NAME: &str = "scheduler";
    const MEANING: &str = "its job id names the daemon's job; 'srun kakehi run -- ./app' works";
    let current =
        SCHEDULERS.iter().find_map(|known| Some((known, environment.get(known.variable)?)));
    if let Some((known, id)) = current {
        let found = format_args!("{}, job {}", known.name, id.to_string_lossy()).to_string();
        return Finding::ok(NAME, found, MEANING);
    }
    match environment.find_program(OsStr::new("srun")) {
        Some(path) => Finding::ok(NAME, path.display(), MEANING),
        None => Finding::ok(NAME, "no job", "not needed; jobs are named without it"),
    }
}

/// The first line a program of `PATH` prints; `None` when it is absent, fails, or takes longer
/// than [`ANSWER_TIMEOUT`].
fn first_line(environment: &Environment, program: &str, arguments: &[&str]) -> Option<String> {
    let path = environment.find_program(OsStr::new(program))?;
    let mut child = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    if !ends_in_time(&child) {
        child.kill().ok()?;
        child.wait().ok()?;
        return None;
    }
    let ended = child.wait_with_output().ok().filter(|ended| ended.status.success())?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(ToOwned::to_owned)
}

/// Waits for the end of `child` by its pidfd; where there is none, its output's end is waited for.
fn ends_in_time(child: &Child) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(ended)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
    else {
        return true;
    };
    let wait = &mut [PollFd::new(&ended, PollFlags::IN)];
    rustix::event::poll(wait, Some(&ANSWER_TIMEOUT)).is_ok_and(|ready| ready == 1)
}
