//! The other end of a session's control socket.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Pid,
};
use storage::Machine;
use wire::{FileFlags, Message, Registration};

use crate::{mounts::Located, socket};

/// A message of a client.
#[derive(Debug)]
pub(crate) enum Incoming<F> {
    /// Nothing waits to be read.
    Nothing,
    /// A doorbell, which has done its work by being read.
    Doorbell,
    /// A file; `Err` when the descriptor cannot be used.
    File(Registration, io::Result<F>),
    /// The other end is closed.
    Gone,
    /// A message that no client sends.
    Nonsense,
}

/// The control connection of a session.
pub(crate) trait Peer<F> {
    /// Takes the next message. Never blocks.
    fn receive(&self) -> Incoming<F>;

    /// True if the process has ended, or has become another program. Never blocks.
    fn is_gone(&self) -> bool;

    /// The process, if it has a number here.
    fn process(&self) -> Option<Pid>;

    /// Sends an open file, for slot `slot`. Never blocks.
    fn send_file(&self, slot: u32, file: &F) -> io::Result<()>;

    /// Sends a descriptor that has this number among those that are shared. Never blocks.
    fn send_shared(&self, number: u32, fd: BorrowedFd<'_>) -> io::Result<()>;
}

/// A client process: its socket, and its pidfd; and the machine that closes what it sends.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) socket: Rc<OwnedFd>,
    pub(crate) process: Rc<OwnedFd>,
}

impl Peer<Located> for Process {
    fn receive(&self) -> Incoming<Located> {
        let packet = match socket::receive(&self.socket) {
            Ok(Some(packet)) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Incoming::Nothing,
            Ok(None) | Err(_) => return Incoming::Gone,
        };
        let message = Message::decode(packet.bytes()).ok().filter(|_| !packet.is_cut);
        let mut fds = self.machine.all_foreign(packet.fds).into_iter();
        match (message, fds.next(), fds.next()) {
            (Some(Message::Doorbell), None, _) => Incoming::Doorbell,
            (Some(Message::Register(registration)), Some(file), None) => {
                Incoming::File(registration, file.into_file().map(Located::Here))
            }
            _ => Incoming::Nonsense,
        }
    }

    /// The socket alone does not tell: a child that was forked may have it, too.
    fn is_gone(&self) -> bool {
        let mut ends = [
            PollFd::new(&self.socket, PollFlags::empty()), // Its hang-up is told unasked.
            PollFd::new(&self.process, PollFlags::IN),
        ];
        poll(&mut ends, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    fn process(&self) -> Option<Pid> {
        uring::Peer::of(&*self.socket).ok()?.process
    }

    fn send_file(&self, slot: u32, file: &Located) -> io::Result<()> {
        send(self.socket.as_fd(), slot, file.here().ok_or(Errno::NOTSUP)?)
    }

    fn send_shared(&self, number: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        send(self.socket.as_fd(), number, fd)
    }
}

/// Sends a descriptor. The message is a registration the other way round: `file` is a number, the
/// rest is zero.
fn send(socket: BorrowedFd<'_>, number: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = FileFlags::default();
    let message = Message::Register(Registration { file: number, flags, log_at: 0, log_len: 0 });
    socket::send(socket, &message.encode(), &[fd])
}
