//! `kakehi mount` and `kakehi umount`: a folder's view by hand, by a daemon of its own.
//!
//! The daemon is a `kakehi serve --background` of a job that is named after the folder, so it is
//! found again by that.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use daemon::{
    HiddenFolder,
    caller::{self, Control},
};

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    job::Job,
    library,
    remote::real,
};

/// Names the job of the daemon to it.
const JOB: &str = "KAKEHI_JOB";
/// How long a daemon that has answered may take to be gone.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Mounts a multifile, or the folder of a server, for every program
///
///     kakehi mount ckpt.sion DIR
///     kakehi mount --remote tcp://io1:7777 --key ~/.kakehi-key DIR
///
/// DIR is made when it is missing. Root mounts for all users, others by fusermount3 (Debian: fuse3)
/// for themselves. A daemon serves DIR until 'kakehi umount DIR'; a multifile stays open as long.
///
/// Exit status: 0 when it is mounted.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, override_usage = "kakehi mount [OPTIONS] [MULTIFILE] <DIR>")]
pub(crate) struct Args {
    /// The multifile, made when it is missing, and the folder; with --remote the folder alone.
    #[arg(required = true, num_args = 1..=2, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The server whose root is mounted, as of 'kakehi run'.
    #[arg(long, value_name = "URL|DIR")]
    remote: Option<PathBuf>,
    /// File with the key that server and client share.
    #[arg(long, value_name = "FILE", requires = "remote")]
    key: Option<PathBuf>,
    /// The folder below the server's root that is mounted. Default: the root.
    #[arg(long, value_name = "DIR", requires = "remote")]
    path: Option<PathBuf>,
    /// Nothing can be changed; others may read the multifile at the same time.
    #[arg(long)]
    read_only: bool,
}

/// Unmounts what 'kakehi mount' has mounted, and waits until everything is written
///
/// Exit status: 0 when it is unmounted; 1 when a program uses it, it was not mounted, or something
/// could not be written.
#[derive(clap::Args, Debug)]
pub(crate) struct Unmount {
    /// Unmounts it under programs that use it: they lose what they have not written yet.
    #[arg(long)]
    force: bool,
    /// The folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Becomes the daemon's starter.
pub(crate) fn mount(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::usage("mount", why, "see 'kakehi mount --help'");
    let (multifile, folder) = match (&*args.paths, &args.remote) {
        ([multifile, folder], None) => (Some(multifile), folder),
        ([folder], Some(_)) => (None, folder),
        ([_], None) => return Err(wrong("no folder was named to mount it at")),
        _ => return Err(wrong("a server's folder and a multifile are not mounted at once")),
    };
    let folder = absolute(folder, environment);
    daemon::clear_view(&real(&folder)).ok(); // Whoever mounts over it says why it cannot.
    // What is mounted is there, whether it says so or not.
    if !daemon::is_barred(&real(&folder)) {
        fs::create_dir_all(&folder).map_err(|why| {
            Failure::new(Code::Failure, folder.display(), why, "name a folder that can be made")
        })?;
    }
    let folder = real(&folder);
    let named = environment.with(JOB, name_of(&folder));
    let job = Job::asked(&Config::load(&named, &Flags::default())?, &named)?;
    if caller::is_there(&job.folder) {
        let advice = "use it, or unmount it first: 'kakehi umount DIR'";
        return Err(Failure::new(Code::Failure, folder.display(), "it is mounted already", advice));
    }
    let program = library::own_program()?;
    let mut command = Command::new(program);
    command.args(["serve", "--background", "--view", "always"]).env(JOB, name_of(&folder));
    if args.read_only {
        command.arg("--read-only");
    }
    let pair = |left: &Path, right: &Path| {
        let mut pair = left.as_os_str().to_owned();
        pair.push("=");
        pair.push(right);
        pair
    };
    if let Some(multifile) = multifile {
        let multifile = absolute(multifile, environment);
        command.arg("--coalesce").arg(pair(&folder, &multifile));
    }
    if let Some(remote) = &args.remote {
        let path = args.path.as_deref().unwrap_or(Path::new("/"));
        command.arg("--remote").arg(remote).arg("--map").arg(pair(&folder, path));
        if let Some(key) = &args.key {
            command.arg("--key").arg(key);
        }
    }
    Err(failed(&folder, &command.exec()))
}

/// Ends the daemon of a folder.
pub(crate) fn unmount(args: &Unmount, environment: &Environment) -> Result<(), Failure> {
    let folder = real(&absolute(&args.folder, environment));
    let named = environment.with(JOB, name_of(&folder));
    let config = Config::load(&named, &Flags::default())?;
    let job = Job::asked(&config, &named)?;
    let is_served = caller::is_there(&job.folder);
    let is_mounted = is_served || daemon::has_view(&folder);
    // A folder that a killed daemon has hidden shows so by its mode. A dead mount has none, and one
    // whose daemon was stopped tells none.
    let found = || if is_mounted { None } else { folder.metadata().ok() };
    let mode = || found().map(|found| found.mode());
    let before = mode();
    if is_served && !args.force {
        if let Err(why) = daemon::take_view_away(&folder) {
            let advice = "end the programs that use it ('fuser -vm DIR'), or add --force";
            return Err(Failure::new(Code::Failure, folder.display(), why, advice));
        }
    }
    let stopped = match is_served {
        true => caller::ask(&job.folder, Control::Stop).map(drop),
        false => Ok(()),
    };
    if is_served && stopped.is_ok() {
        await_end(&job.folder);
    }
    let is_left = daemon::clear_view(&folder).is_err();
    HiddenFolder::take(&folder).ok(); // What a killed daemon left is mended by that.
    stopped.map_err(|why| Failure::of_daemon(&why))?;
    if !is_mounted && mode() == before {
        let advice = "name the folder that 'kakehi mount' was given";
        return Err(Failure::new(Code::Failure, folder.display(), "it is not mounted", advice));
    }
    if is_left {
        let advice = "unmount it as who has mounted it: fusermount3 -u DIR, or umount DIR";
        return Err(Failure::new(Code::Failure, folder.display(), "it is still mounted", advice));
    }
    Ok(())
}

/// Waits until a daemon that has said its last word is gone, so that the folder can be mounted
/// again at once.
#[expect(clippy::disallowed_methods, reason = "nothing tells when nobody listens any more")]
fn await_end(job: &Path) {
    let begun = Instant::now();
    while caller::is_there(job) && begun.elapsed() < END_TIME_MAX {
        thread::sleep(Duration::from_millis(1));
    }
}

fn absolute(path: &Path, environment: &Environment) -> PathBuf {
    match &environment.folder {
        Some(folder) => folder.join(path),
        None => path.to_owned(),
    }
}

/// The job of a folder's daemon: the same in every release, for the one that unmounts may be newer.
fn name_of(folder: &Path) -> String {
    let bytes = folder.as_os_str().as_bytes();
    // FNV-1a.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("mount-{hash:016x}")
}

fn failed(folder: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Failure, folder.display(), why, "try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_its_job_for_ever() {
        assert_eq!(name_of(Path::new("/data/out")), "mount-d38cc76d5bc96175");
        assert_ne!(name_of(Path::new("/data/out2")), name_of(Path::new("/data/out")));
    }
}
