//! Calling on a daemon, for processes that are not its clients: questions by its socket, and an
//! attachment that keeps it alive.

use std::{
    fs, io,
    os::fd::{OwnedFd, RawFd},
    path::Path,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, retry_on_intr},
    net::{
        RecvFlags, recv,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use uring::{Peer, peer_process};
use wire::{Greeting, Message, Refusal, Role, Welcome};

pub use wire::Control;

use crate::{Error, socket, view::apart};

/// Longest answer to a question, bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;
/// Longest wait for the answer to a question that takes a daemon no time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest wait of whoever comes to stay: a node where many start is slow.
const WELCOME_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a daemon's end is waited for before it is asked again.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Numbers below the first of these are the program's, which may close them all, or a client's,
/// which its program does not see in use. The others are for where there are not so many.
const INHERITED_MIN: [RawFd; 4] = [1000, 200, 50, 20];

/// Keeps the daemon of a folder alive until dropped.
#[derive(Debug)]
pub struct Attachment {
    socket: OwnedFd,
    has_own_mounts: bool,
}

impl Attachment {
    /// Gives this process, which has one thread, the mounts that the job has of its own.
    ///
    /// # Errors
    ///
    /// As `setns(2)`.
    pub fn enter_mounts(&self) -> io::Result<()> {
        let daemon = Peer::of(&self.socket)?.process.ok_or(Errno::SRCH)?.as_raw_pid();
        let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
        if !self.has_own_mounts || mounts(&daemon.to_string())? == mounts("self")? {
            return Ok(());
        }
        apart::enter(daemon)
    }

    /// Lets the attachment outlive an `exec`: the program that this process becomes keeps it, and
    /// so does whatever that program starts, until the last of them has ended. If they close it,
    /// the daemon stays for this process until that has ended.
    ///
    /// # Errors
    ///
    /// As `fcntl(2)`.
    pub fn inherit(&mut self) -> io::Result<()> {
        self.leave_to_programs()?;
        // Where the daemon is gone the program does without.
        socket::send(&self.socket, &Message::Doorbell.encode(), &[]).ok();
        Ok(())
    }

    /// The same for a program that this process starts: it does not stay for this one.
    ///
    /// # Errors
    ///
    /// As `fcntl(2)`.
    pub fn leave_to_programs(&mut self) -> io::Result<()> {
        let mut places = INHERITED_MIN.into_iter();
        if let Some(moved) = places.find_map(|min| fcntl_dupfd_cloexec(&self.socket, min).ok()) {
            self.socket = moved;
        }
        Ok(fcntl_setfd(&self.socket, FdFlags::empty())?)
    }
}

/// True if a daemon listens in `folder`, if only one that stands still. Never blocks.
#[must_use]
pub fn is_there(folder: &Path) -> bool {
    socket::is_listened_at(folder)
}

/// True if a daemon has left its socket in `folder`, on which nobody of this machine listens. Never
/// blocks.
#[must_use]
pub fn is_deserted(folder: &Path) -> bool {
    socket::is_deserted(folder)
}

/// Asks the daemon in `folder` and returns its answer, one JSON document.
///
/// Blocks until the daemon has done what is asked, however long that takes; its state it tells at
/// once.
///
/// # Errors
///
/// - [`Error::Unreachable`]: nobody listens in `folder`.
/// - [`Error::Silent`]: who listens does not answer for 5 s.
/// - [`Error::Refused`], [`Error::Protocol`]: what listens does not serve this caller.
/// - [`Error::Lost`]: the daemon went away before it answered.
pub fn ask(folder: &Path, question: Control) -> Result<String, Error> {
    let line = Line { folder, time: ANSWER_TIME_MAX };
    let (socket, _) = line.greet(Role::Control(question))?;
    if question != Control::Status {
        let unlimited = set_socket_timeout(&socket, Timeout::Recv, None);
        unlimited.map_err(|errno| Error::Lost(errno.into()))?;
    }
    let mut answer = vec![0; ANSWER_LEN_MAX];
    let received = retry_on_intr(|| recv(&socket, &mut *answer, RecvFlags::empty()));
    let (len, _) = received.map_err(|errno| line.failed(&socket, errno.into()))?;
    if len == 0 {
        return Err(Error::Lost(io::ErrorKind::UnexpectedEof.into()));
    }
    answer.truncate(len);
    String::from_utf8(answer).map_err(|_| Error::Lost(io::ErrorKind::InvalidData.into()))
}

/// Attaches to the daemon of a process that this one is about to start, by the other end of the
/// connection. The daemon counts that at once, and waits for no greeting.
///
/// # Errors
///
/// As `socketpair(2)`.
pub fn attached() -> io::Result<(Attachment, OwnedFd)> {
    let (socket, other) = socket::pair()?;
    Ok((Attachment { socket, has_own_mounts: false }, other))
}

/// Attaches to the daemon in `folder`: it stays as long as the result lives.
///
/// One that is stopping takes nobody in any more: then blocks until its process has ended, however
/// long it drains. Where its end cannot be watched, that it is stopping is an error.
///
/// # Errors
///
/// Those of [`ask`], the second after 10 s; [`Error::Unreachable`] also when it has ended.
pub fn attach(folder: &Path) -> Result<Attachment, Error> {
    let line = Line { folder, time: WELCOME_TIME_MAX };
    let mut was_lost = false;
    loop {
        let why = match line.greet(Role::Run) {
            Err(why @ Error::Refused(Refusal::Stopping)) => why,
            // It is about to end, or did not hear the greeting in time.
            Err(why @ Error::Lost(_)) if !was_lost => {
                was_lost = true;
                why
            }
            greeted => {
                let (socket, has_own_mounts) = greeted?;
                return Ok(Attachment { socket, has_own_mounts });
            }
        };
        if !await_end(folder).map_err(Error::Lost)? {
            return Err(why);
        }
    }
}

/// Waits until the process that listens in `folder`, if there is one, has ended, or [`PATIENCE`] is
/// over. Returns whether its end can be seen from here.
fn await_end(folder: &Path) -> io::Result<bool> {
    let Ok(socket) = socket::connect_to(folder, ANSWER_TIME_MAX) else { return Ok(true) };
    let process = match peer_process(socket) {
        Err(why) if Errno::from_io_error(&why) == Some(Errno::SRCH) => return Ok(true),
        process => process?,
    };
    let Some(process) = process else { return Ok(false) };
    // While it listens, its number is nobody else's.
    if socket::is_listened_at(folder) {
        retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&PATIENCE)))?;
    }
    Ok(true)
}

/// The way to a daemon, and how long it may take for each step.
struct Line<'a> {
    folder: &'a Path,
    time: Duration,
}

impl Line<'_> {
    /// Connects and exchanges greetings. A process that stood by for the daemon closes without a
    /// word once that serves: then connects again.
    fn greet(&self, role: Role) -> Result<(OwnedFd, bool), Error> {
        match self.greet_once(role) {
            Err(Error::Lost(_)) => self.greet_once(role),
            greeted => greeted,
        }
    }

    fn greet_once(&self, role: Role) -> Result<(OwnedFd, bool), Error> {
        let socket =
            socket::connect_to(self.folder, self.time).map_err(|why| match why.kind() {
                io::ErrorKind::WouldBlock => self.silent(None),
                _ => Error::Unreachable { folder: self.folder.to_owned(), source: why },
            })?;
        let greeting = Greeting::new(role).encode();
        socket::send(&socket, &greeting, &[]).map_err(|why| self.failed(&socket, why))?;
        let answer = socket::receive(&socket).map_err(|why| self.failed(&socket, why))?;
        let answer = answer.ok_or_else(|| Error::Lost(io::ErrorKind::UnexpectedEof.into()))?;
        let welcome = Welcome::decode(answer.bytes()).map_err(Error::Protocol)?;
        welcome.outcome().map_err(Error::Refused)?;
        Ok((socket, welcome.has_view))
    }

    fn failed(&self, socket: &OwnedFd, why: io::Error) -> Error {
        match why.kind() {
            io::ErrorKind::WouldBlock => self.silent(Some(socket)),
            _ => Error::Lost(why),
        }
    }

    fn silent(&self, socket: Option<&OwnedFd>) -> Error {
        let process = socket.and_then(|socket| Peer::of(socket).ok()?.process);
        let process = process.map(|process| process.as_raw_pid());
        Error::Silent { folder: self.folder.to_owned(), process, time: self.time }
    }
}
