//! Which job this process belongs to, and the folder where its daemon listens.
//!
//! # Trust
//!
//! Whoever owns the folder can pose as the daemon and is handed every file a program opens. So it
//! must be a real folder (no symbolic link) of this user that nobody else can enter; anything else
//! is refused, never repaired. `/tmp` is safe to pass through because its sticky bit keeps others
//! from moving our folder away.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};

use crate::{
    config::{Config, Environment},
    failure::{Code, Failure},
};

/// The daemon's socket in the job's folder.
const SOCKET: &str = "socket";
/// The daemon's link to the job's segment there.
const LINK: &str = "job";
/// What `sockaddr_un` holds, without the final NUL.
const SOCKET_PATH_LEN_MAX: usize = 107;
/// Folders that stand for remote ones there.
const MIRROR: &str = "mirror";
const NAME_LEN_MAX: usize = 64;
/// How often the level above may vanish while a job's folder is created.
const RACES_MAX: u32 = 100;

/// A job on this node: all processes that share one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) name: String,
    /// Mode 0700 once [`create`](Self::create) or [`verify`](Self::verify) returned.
    pub(crate) folder: PathBuf,
}

impl Job {
    /// The job of this process. Touches no file.
    ///
    /// # Errors
    ///
    /// `Usage` when the job's name cannot be the name of a folder, or the socket's path is too
    /// long for the kernel.
    pub(crate) fn find(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let name = name(config, environment)?;
        let folder = match &config.socket {
            Some(folder) => folder.clone(),
            None => base(environment).join(&name),
        };
        let job = Self { name, folder };
        if job.socket().as_os_str().len() > SOCKET_PATH_LEN_MAX {
            return Err(Failure::usage(
                job.socket().display(),
                format_args!("a socket's path has at most {SOCKET_PATH_LEN_MAX} bytes"),
                "name a shorter folder with --socket",
            ));
        }
        Ok(job)
    }

    /// Creates the folder, or checks the one that is there. Returns whether it was created.
    ///
    /// # Errors
    ///
    /// `Failure` when the folder cannot be created, or belongs to or is open to somebody else.
    pub(crate) fn create(&self) -> Result<bool, Failure> {
        let mut races = 0;
        loop {
            match self.try_create() {
                // Another job has ended, and removed the level above while it was empty.
                Err((_, why)) if why.kind() == io::ErrorKind::NotFound && races < RACES_MAX => {
                    races += 1;
                }
                result => return result.map_err(|(folder, why)| refused(folder, why)),
            }
        }
    }

    fn try_create(&self) -> Result<bool, (&Path, io::Error)> {
        // Only our own level above the job is made; anything higher has to be there.
        if let Some(parent) = self.folder.parent().filter(|parent| is_ours(parent)) {
            create_private(parent).map_err(|why| (parent, why))?;
        }
        create_private(&self.folder).map_err(|why| (&*self.folder, why))
    }

    /// Checks the folder of a daemon that ought to be running.
    ///
    /// # Errors
    ///
    /// `Unreachable` when there is no folder; else as [`create`](Self::create).
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        match check_private(&self.folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Err(self.unreachable(&why)),
            result => result.map_err(|why| refused(&self.folder, why)),
        }
    }

    /// Removes the folder of a daemon that has ended.
    pub(crate) fn remove(&self) {
        // Somebody may have put something else there, or be starting the next daemon: then it stays.
        fs::remove_file(self.folder.join("lock")).ok();
        fs::remove_dir(&self.folder).ok();
        if let Some(parent) = self.folder.parent().filter(|parent| is_ours(parent)) {
            fs::remove_dir(parent).ok();
        }
    }

    /// Removes the folder of a daemon that was killed, with what it has left there.
    pub(crate) fn clear(&self) {
        for name in [SOCKET, LINK] {
            fs::remove_file(self.folder.join(name)).ok();
        }
        fs::remove_dir_all(self.folder.join(MIRROR)).ok();
        self.remove();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    fn unreachable(&self, why: &io::Error) -> Failure {
        Failure::new(
            Code::Unreachable,
            format_args!("no daemon of job {} at {}", self.name, self.socket().display()),
            why,
            "start one with 'kakehi run' or 'kakehi serve', or name its folder with --socket",
        )
    }
}

fn name(config: &Config, environment: &Environment) -> Result<String, Failure> {
    if let Some(name) = &config.job {
        return checked("KAKEHI_JOB", name);
    }
    for variable in ["SLURM_JOB_ID", "PMIX_NAMESPACE"] {
        if let Some(name) = environment.get(variable) {
            return checked(variable, &name.to_string_lossy());
        }
    }
    Ok(process::id().to_string())
}

/// A name that is one path component and prints as itself.
fn checked(variable: &str, name: &str) -> Result<String, Failure> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+:,".contains(&byte);
    let fits = (1..=NAME_LEN_MAX).contains(&name.len()) && !name.starts_with('.');
    if fits && name.bytes().all(harmless) {
        return Ok(name.to_owned());
    }
    Err(Failure::usage(
        variable,
        format_args!("'{name}' cannot name a job's folder"),
        format_args!("set KAKEHI_JOB to at most {NAME_LEN_MAX} letters, digits, and . _ - @ + : ,"),
    ))
}

/// `$XDG_RUNTIME_DIR/kakehi`, or `/tmp/kakehi-UID` where that folder is missing or not ours, as
/// on compute nodes that were entered without a login.
fn base(environment: &Environment) -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let runtime = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usable = |folder: &PathBuf| {
        folder.is_absolute()
            && fs::metadata(folder).is_ok_and(|folder| folder.is_dir() && folder.uid() == uid)
    };
    match runtime.filter(usable) {
        Some(folder) => folder.join("kakehi"),
        None => PathBuf::from(format!("/tmp/kakehi-{uid}")),
    }
}

fn is_ours(folder: &Path) -> bool {
    let uid = rustix::process::getuid().as_raw();
    folder.file_name().is_some_and(|name| name == "kakehi" || *name == *format!("kakehi-{uid}"))
}

fn create_private(folder: &Path) -> io::Result<bool> {
    let created = match rustix::fs::mkdirat(CWD, folder, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(why) => return Err(why.into()),
    };
    check_private(folder)?;
    Ok(created)
}

/// The folder is checked through a descriptor: what is checked is what was there, no link. One that
/// cannot be entered is opened all the same, to say whose it is.
fn check_private(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::openat(CWD, folder, flags, Mode::empty())?);
    let found = opened.metadata()?;
    let uid = rustix::process::getuid().as_raw();
    if found.uid() != uid {
        return Err(io::Error::other(format!("it belongs to user {}, not {uid}", found.uid())));
    }
    if found.mode() & 0o777 != 0o700 {
        let mode = found.mode() & 0o777;
        return Err(io::Error::other(format!("its mode is {mode:04o}, it has to be 0700")));
    }
    Ok(())
}

fn refused(folder: &Path, why: io::Error) -> Failure {
    Failure::new(
        Code::Failure,
        format_args!("socket folder {}", folder.display()),
        why,
        "remove or correct it, or name another with --socket",
    )
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn jobs_that_come_and_go_do_not_take_each_others_folder_away() {
        let base = tempfile::tempdir().expect("temporary folder");
        thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let folder = base.path().join("kakehi").join(name);
                let job = Job { name: name.to_owned(), folder };
                scope.spawn(move || {
                    for _ in 0..300 {
                        assert!(job.create().is_ok_and(|created| created));
                        job.remove();
                    }
                });
            }
        });
    }
}
