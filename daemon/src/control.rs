//! The callers' side of a daemon's socket: questions, and staying attached.

use std::{
    io,
    os::fd::{OwnedFd, RawFd},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, retry_on_intr},
    net::{RecvFlags, recv},
};
use uring::peer_process;
use wire::{Greeting, Message, Refusal, Role, Welcome};

pub use wire::Control;

use crate::{Error, socket};

/// Longest answer to a question, bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;
/// Longest wait for the end of a daemon that closes a connection without a word.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Numbers below the first of these are the program's, which may close them all. The others are for
/// where there are not so many. A client has its socket there, too.
const INHERITED_MIN: [RawFd; 4] = [900, 200, 50, 20];

/// Keeps the daemon of a folder alive until dropped.
#[derive(Debug)]
pub struct Attachment {
    socket: OwnedFd,
}

impl Attachment {
    /// Lets the attachment outlive an `exec`: the program that this process becomes keeps it, and
    /// so does whatever that program starts, until the last of them has ended. If they close it,
    /// the daemon stays for this process until that has ended.
    ///
    /// # Errors
    ///
    /// As `fcntl(2)` and `sendmsg(2)`.
    pub fn inherit(&mut self) -> io::Result<()> {
        let mut places = INHERITED_MIN.into_iter();
        if let Some(moved) = places.find_map(|min| fcntl_dupfd_cloexec(&self.socket, min).ok()) {
            self.socket = moved;
        }
        fcntl_setfd(&self.socket, FdFlags::empty())?;
        socket::send(&self.socket, &Message::Doorbell.encode(), &[])
    }
}

/// Asks the daemon in `folder` and returns its answer, one JSON document.
///
/// Blocks until the daemon has done what is asked, however long that takes.
///
/// # Errors
///
/// - [`Error::Unreachable`]: nobody listens in `folder`.
/// - [`Error::Refused`], [`Error::Protocol`]: what listens does not serve this caller.
/// - [`Error::Lost`]: the daemon went away before it answered.
pub fn ask(folder: &Path, question: Control) -> Result<String, Error> {
    let socket = greet(folder, Role::Control(question))?;
    let mut answer = vec![0; ANSWER_LEN_MAX];
    let received = retry_on_intr(|| recv(&socket, &mut *answer, RecvFlags::empty()));
    let (len, _) = received.map_err(|errno| Error::Lost(errno.into()))?;
    if len == 0 {
        return Err(Error::Lost(io::ErrorKind::UnexpectedEof.into()));
    }
    answer.truncate(len);
    String::from_utf8(answer).map_err(|_| Error::Lost(io::ErrorKind::InvalidData.into()))
}

/// Attaches to the daemon in `folder`: it stays as long as the result lives.
///
/// One that is stopping takes nobody in any more: then blocks until its process has ended, however
/// long it drains. Where its end cannot be watched, that it is stopping is an error.
///
/// # Errors
///
/// Those of [`ask`]; [`Error::Unreachable`] also when it has ended.
pub fn attach(folder: &Path) -> Result<Attachment, Error> {
    let mut was_lost = false;
    loop {
        let (why, time) = match greet(folder, Role::Run) {
            Err(why @ Error::Refused(Refusal::Stopping)) => (why, None),
            // It is about to end, or did not hear the greeting in time.
            Err(why @ Error::Lost(_)) if !was_lost => {
                was_lost = true;
                (why, Some(&PATIENCE))
            }
            greeted => return Ok(Attachment { socket: greeted? }),
        };
        if !await_end(folder, time).map_err(Error::Lost)? {
            return Err(why);
        }
    }
}

/// Waits until the process that listens in `folder`, if there is one, has ended, or `time` is over.
/// Returns whether its end can be seen from here.
fn await_end(folder: &Path, time: Option<&Timespec>) -> io::Result<bool> {
    let Ok(socket) = socket::connect_to(folder) else { return Ok(true) };
    let process = match peer_process(socket) {
        Err(why) if Errno::from_io_error(&why) == Some(Errno::SRCH) => return Ok(true),
        process => process?,
    };
    let Some(process) = process else { return Ok(false) };
    // While it listens, its number is nobody else's.
    if socket::connect_to(folder).is_ok() {
        retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], time))?;
    }
    Ok(true)
}

/// Connects and exchanges greetings.
fn greet(folder: &Path, role: Role) -> Result<OwnedFd, Error> {
    let unreachable = |source| Error::Unreachable { folder: folder.to_owned(), source };
    let socket = socket::connect_to(folder).map_err(unreachable)?;
    socket::send(&socket, &Greeting::new(role).encode(), &[]).map_err(Error::Lost)?;
    let answer = socket::receive(&socket).map_err(Error::Lost)?;
    let answer = answer.ok_or_else(|| Error::Lost(io::ErrorKind::UnexpectedEof.into()))?;
    let welcome = Welcome::decode(answer.bytes()).map_err(Error::Protocol)?;
    welcome.outcome().map_err(Error::Refused)?;
    Ok(socket)
}
