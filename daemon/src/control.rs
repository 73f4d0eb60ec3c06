//! The callers' side of a daemon's socket: questions, and staying attached.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::net::{RecvFlags, recv};
use wire::{Greeting, Role, Welcome};

pub use wire::Control;

use crate::{Error, socket};

/// Longest answer to a question, bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;

/// Keeps the daemon of a folder alive until dropped.
#[derive(Debug)]
pub struct Attachment {
    socket: OwnedFd,
}

impl Attachment {
    /// Lets the attachment outlive an `exec`: the program that this process becomes keeps it, and
    /// so does whatever that program starts, until the last of them has ended.
    ///
    /// # Errors
    ///
    /// As `fcntl(2)`.
    pub fn inherit(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.socket, rustix::io::FdFlags::empty())?)
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
    let received = rustix::io::retry_on_intr(|| recv(&socket, &mut *answer, RecvFlags::empty()));
    let (len, _) = received.map_err(|errno| Error::Lost(errno.into()))?;
    if len == 0 {
        return Err(Error::Lost(io::ErrorKind::UnexpectedEof.into()));
    }
    answer.truncate(len);
    String::from_utf8(answer).map_err(|_| Error::Lost(io::ErrorKind::InvalidData.into()))
}

/// Attaches to the daemon in `folder`: it stays as long as the result lives.
///
/// # Errors
///
/// Those of [`ask`].
pub fn attach(folder: &Path) -> Result<Attachment, Error> {
    Ok(Attachment { socket: greet(folder, Role::Run)? })
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
