//! Which job this process belongs to, and the folder where its daemon listens.
//!
//! # Trust
//!
//! The owner of the folder can pose as the daemon and is handed every file a program opens. So it
//! must be a real folder (no symbolic link) of this user that nobody else can enter; anything else
//! is refused, never repaired. `/tmp` is safe to pass through because its sticky bit keeps others
//! from moving our folder away.

mod asked;
mod base;
mod deserted;
mod identity;
mod joined;

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use daemon::{
    caller,
    socket_folder::{self, is_made},
};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, statat},
    io::Errno,
};

pub(crate) use self::{asked::Served, deserted::sweep, identity::SCHEDULERS, joined::Joined};
use self::{
    base::{base, is_ours},
    identity::{given_name, numbered, own_name},
    joined::{JOINED, RECORDS},
};
use crate::{
    config::{Config, Environment},
    failure::{Code, Failure},
    remote::SOCKET_PATH_LEN_MAX,
};

/// The daemon's socket in the job's folder.
const SOCKET: &str = "socket";
/// The file that starters of daemons lock there.
const LOCK: &str = "lock";
/// The file there that the run which started the daemon has locked until its program has ended, and
/// the daemon, too.
const PROGRAMS: &str = "programs";
/// The daemon's link to the job's segment there.
const LINK: &str = "job";
/// The root of the server that a daemon is for its own node.
const OWN_SERVER: &str = "own";
/// Mode of a folder that we made.
const MADE: Mode = Mode::from_bits_retain(socket_folder::MADE);
/// How often the level above may vanish while a job's folder is created.
const RACES_MAX: u32 = 100;
/// Longest wait for the lock: a daemon whose server is away gives up starting before that.
const LOCK_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time from one try to lock to the next.
const LOCK_RETRY_MAX: Duration = Duration::from_millis(20);
/// How long a run waits to say that its program lives.
const ATTEND_TIME_MAX: Duration = Duration::from_secs(1);

/// A job on this node: all processes that share one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) name: String,
    /// Mode 0700 once [`create`](Self::create) or [`verify`](Self::verify) returned.
    pub(crate) folder: PathBuf,
}

/// The right to start a job's daemon, or to remove its folder; or that these stay.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Job {
    /// The job of this process. Touches no file, unless a stranger has the folder of this user's
    /// jobs: then these get another one.
    ///
    /// # Errors
    ///
    /// `Usage` when the job's name cannot be the name of a folder, or the socket's path is too
    /// long for the kernel.
    pub(crate) fn find(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let name = given_name(config, environment)?;
        let name = name.unwrap_or_else(|| numbered(process::id()));
        Self::named(name, config, environment)
    }

    /// The job of a server, which is none of the launcher's: its programs want a daemon of their
    /// own on a node that serves, too.
    pub(crate) fn of_server(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let name = own_name(config)?.unwrap_or_else(|| process::id().to_string());
        Self::named(name, config, environment)
    }

    fn named(name: String, config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let folder = match &config.socket {
            // Behind a slash at its end a link would be followed.
            Some(folder) => folder.components().collect(),
            None => base(environment, &name).join(&name),
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
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Err(unreachable(&self.socket(), why))
            }
            result => result.map_err(|why| refused(&self.folder, why)),
        }
    }

    /// Removes the folder of a daemon that has ended.
    ///
    /// It stays where somebody starts the next daemon or has started it, has put something else
    /// there, or made it.
    pub(crate) fn remove(&self) {
        let Ok(lock) = self.take_lock() else { return };
        if !caller::is_there(&self.folder) {
            self.remove_locked(&lock);
        }
    }

    /// Says that a program of the job lives, until the result is dropped: what its daemon has there
    /// stays, should that be killed. `None`: it cannot be said.
    ///
    /// The lock is held for a moment by a command that looks for programs; one that was stopped
    /// then is waited for no longer than 1 s.
    #[expect(clippy::disallowed_methods, reason = "a lock can be waited for with no limit only")]
    pub(crate) fn attend(&self) -> Option<Lock> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let (begun, mut pause) = (Instant::now(), Duration::from_millis(1));
        loop {
            let file = self.open(PROGRAMS, flags).ok()?;
            match locked(file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::AGAIN) if begun.elapsed() < ATTEND_TIME_MAX => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(LOCK_RETRY_MAX);
                }
                lock => return lock.ok(),
            }
        }
    }

    /// Held by whoever starts the job's daemon, until it listens, and by whoever removes the
    /// folder.
    ///
    /// # Errors
    ///
    /// `Failure` when the folder cannot be created, or the file in it not be locked within 60 s:
    /// who starts the daemon may have been stopped.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        self.lock_unless(LOCK_TIME_MAX, || false).and_then(|lock| lock.ok_or_else(|| self.held()))
    }

    /// As [`lock`](Self::lock), or `None` once the job's daemon listens: whoever comes to use it
    /// needs no lock, and its starter may be slow to release it.
    pub(crate) fn lock_to_start(&self) -> Result<Option<Lock>, Failure> {
        let mut is_there = false;
        let lock = self.lock_unless(LOCK_TIME_MAX, || {
            is_there = caller::is_there(&self.folder);
            is_there
        })?;
        if lock.is_none() && !is_there { Err(self.held()) } else { Ok(lock) }
    }

    /// Tries to take the lock until `is_needless` or `time` has passed; `None` then.
    #[expect(clippy::disallowed_methods, reason = "a lock can be waited for with no limit only")]
    fn lock_unless(
        &self,
        time: Duration,
        mut is_needless: impl FnMut() -> bool,
    ) -> Result<Option<Lock>, Failure> {
        let begun = Instant::now();
        let (mut races, mut pause) = (0, Duration::from_millis(1));
        while !is_needless() {
            match self.take_lock() {
                Err(Errno::AGAIN) if begun.elapsed() < time => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(LOCK_RETRY_MAX);
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The folder was removed meanwhile, and the lock with it.
                Err(Errno::NOENT) if races < RACES_MAX => {
                    races += 1;
                    self.create()?;
                }
                lock => return lock.map(Some).map_err(|why| refused(&self.folder, why.into())),
            }
        }
        Ok(None)
    }

    fn held(&self) -> Failure {
        Failure::new(
            Code::Ours,
            format_args!("lock {}", self.folder.join(LOCK).display()),
            format_args!("held for {} s by the start of the job's daemon", LOCK_TIME_MAX.as_secs()),
            "send the 'kakehi run' or 'kakehi serve' that starts it SIGCONT if it was stopped, or \
             SIGKILL",
        )
    }

    /// Locks the file that is the lock once it is held: `NOENT` for one that was removed meanwhile,
    /// `AGAIN` where somebody else has it.
    fn take_lock(&self) -> rustix::io::Result<Lock> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let lock = locked(self.open(LOCK, flags)?, FlockOperation::NonBlockingLockExclusive)?;
        let held = fstat(&lock.0)?;
        let there = statat(CWD, self.folder.join(LOCK), AtFlags::empty())?;
        if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino) {
            return Err(Errno::NOENT);
        }
        Ok(lock)
    }

    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<File> {
        let path = self.folder.join(name);
        unmasked(|| openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)).map(File::from)
    }

    /// As [`remove`](Self::remove), for whoever has the lock.
    pub(crate) fn remove_locked(&self, _: &Lock) {
        if is_made(&self.own_server()) {
            fs::remove_dir_all(self.own_server()).ok();
        }
        for name in [JOINED, RECORDS, PROGRAMS, LOCK] {
            fs::remove_file(self.folder.join(name)).ok();
        }
        if is_made(&self.folder) {
            fs::remove_dir(&self.folder).ok();
        }
        if let Some(parent) = self.folder.parent().filter(|parent| is_ours(parent)) {
            fs::remove_dir(parent).ok();
        }
    }

    /// Removes the folder of a daemon that was killed, with what it has left there, and no more.
    pub(crate) fn clear(&self, lock: &Lock) {
        for path in [self.socket(), self.folder.join(LINK)] {
            let found = fs::symlink_metadata(&path).map(|found| found.file_type());
            if found.is_ok_and(|found| found.is_socket() || found.is_symlink()) {
                fs::remove_file(path).ok();
            }
        }
        self.remove_locked(lock);
    }

    /// Makes the folder of what a daemon serves to its own node.
    ///
    /// # Errors
    ///
    /// It cannot be made, or is there and somebody else's.
    pub(crate) fn create_own_server(&self) -> Result<PathBuf, Failure> {
        let folder = self.own_server();
        let made = match unmasked(|| rustix::fs::mkdirat(CWD, &folder, MADE)) {
            Err(Errno::EXIST) if is_made(&folder) => Ok(()),
            made => made,
        };
        made.map_err(|why| refused(&folder, why.into()))?;
        Ok(folder)
    }

    fn own_server(&self) -> PathBuf {
        self.folder.join(OWN_SERVER)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }
}

fn locked(file: File, how: FlockOperation) -> rustix::io::Result<Lock> {
    rustix::io::retry_on_intr(|| flock(&file, how))?;
    Ok(Lock(file))
}

fn unreachable(place: &Path, why: impl fmt::Display) -> Failure {
    Failure::new(
        Code::Unreachable,
        format_args!("no daemon at {}", place.display()),
        why,
        "start one with 'kakehi run' or 'kakehi serve'; 'kakehi jobs' lists those there are",
    )
}

fn create_private(folder: &Path) -> io::Result<bool> {
    let created = match unmasked(|| rustix::fs::mkdirat(CWD, folder, MADE)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(why) => return Err(why.into()),
    };
    check_private(folder)?;
    Ok(created)
}

/// Makes something with the mode that it is given. Whoever withholds rights by the umask means none
/// that the owner cannot enter or open.
pub(crate) fn unmasked<T>(make: impl FnOnce() -> T) -> T {
    let mask = rustix::process::umask(Mode::empty());
    let made = make();
    rustix::process::umask(mask);
    made
}

/// The folder is checked through a descriptor: what is checked is what was there, no link. One that
/// cannot be entered is opened all the same, to say whose it is.
fn check_private(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(openat(CWD, folder, flags, Mode::empty())?);
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
    Failure::of_call(
        Code::Failure,
        format_args!("socket folder {}", folder.display()),
        &why,
        "name another with --socket, or correct it where it is yours",
    )
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt as _,
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

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
                        assert!(!job.folder.exists());
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_the_user_made_stays() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        rustix::fs::mkdirat(CWD, &job.folder, Mode::RWXU).expect("a folder");
        assert!(job.create().is_ok_and(|created| !created));
        job.remove();
        assert_eq!(fs::read_dir(&job.folder).expect("the folder").count(), 0);
        fs::remove_dir(&job.folder).expect("empty");
        assert!(job.create().is_ok_and(|created| created));
        job.remove();
        assert!(!job.folder.exists());
    }

    #[test]
    fn what_the_user_has_in_a_folder_named_as_ours_stays() {
        let base = tempfile::tempdir().expect("temporary folder");
        // Folders hand their group down to those in them, and the bit that does it.
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o2700)).expect("ours");
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        job.create().expect("a folder");
        fs::create_dir(job.own_server()).expect("a folder");
        fs::write(job.own_server().join("file"), "precious").expect("a file");
        job.create_own_server().expect_err("it is the user's");
        job.remove();
        assert!(job.own_server().join("file").exists());
        fs::remove_dir_all(job.own_server()).expect("there");
        let root = job.create_own_server().expect("ours");
        fs::write(root.join("file"), "").expect("a file");
        // One that was killed has left its own.
        job.create_own_server().expect("ours");
        job.remove();
        assert!(!job.folder.exists());
    }

    #[test]
    fn what_the_user_has_stays_when_a_daemon_was_killed() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        rustix::fs::mkdirat(CWD, &job.folder, Mode::RWXU).expect("a folder");
        let all = ["file", LINK, SOCKET].map(|name| job.folder.join(name));
        all.iter().for_each(|path| fs::write(path, "precious").expect("a file"));
        job.clear(&job.lock().unwrap_or_else(|_| panic!("free")));
        assert!(all.iter().all(|path| path.exists()));
    }

    #[test]
    fn lock_of_a_starter_that_stands_still_is_not_waited_for_without_end() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        job.create().expect("a folder");
        let held = job.lock().expect("free");
        let short = Duration::from_millis(50);
        assert!(job.lock_unless(short, || false).is_ok_and(|lock| lock.is_none()));
        drop(held);
        assert!(job.lock_unless(short, || false).is_ok_and(|lock| lock.is_some()));
    }

    /// As daemons of one job that come and go: what one starter holds, no other does.
    #[test]
    fn one_at_a_time_has_the_lock_though_the_folder_comes_and_goes() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = Job { name: "a".to_owned(), folder: base.path().join("kakehi").join("a") };
        let holders = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(lock) = job.lock() else { panic!("not locked") };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                        job.remove();
                    }
                });
            }
        });
    }
}
