//! Remote files that a child was given which its parent had open with close-on-exec: by `dup2`, as
//! standard output, or by clearing the flag.
//!
//! Before the fork nobody can know that the child will want the file, so it stays the parent's
//! (`stays_over_fork`). The child then asks the parent's daemon over the parent's socket, with a
//! socket of its own for the answer. From then on the position is the child's, until the parent
//! next needs it: then it is taken back, if no child has the file any more, or the parent joins
//! them.

use core::sync::atomic::Ordering;

use rustix::{
    fd::{AsFd, OwnedFd, RawFd},
    io::{self, Errno},
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair, sockopt},
};
use wire::{Loan, MESSAGE_LEN, Message, Reason, Request, SEEK_CUR};

use crate::{
    client::Client,
    locked::Locked,
    passing::{receive_with, send_with},
};

impl Client {
    /// Before a number gets a duplicate, or stays open in another program: if its file is a
    /// parent's, it is replaced by what stands for that. Also when the kernel has refused a call on
    /// the placeholder. Returns whether it was a parent's.
    ///
    /// # Errors
    ///
    /// `EIO`: it is remote, and its daemon is lost.
    pub fn borrow_file(&'static self, fd: RawFd) -> io::Result<bool> {
        let Some(mut file) = self.locked_fd(fd) else { return Ok(false) };
        if file.is_gone() {
            return Err(Errno::IO);
        }
        let Some(lender) = file.lender.take() else { return Ok(false) };
        let at = file.entry.position.load(Ordering::Relaxed);
        let loan = Loan { file: lender.slot, at, is_copy: !file.access.writable };
        match lender.connection.socket.with(|socket| ask(socket, loan)) {
            Ok(real) => self.replace_numbers(fd, &real),
            Err(errno) => file.owed = Some(errno),
        }
        Ok(true)
    }
}

impl Locked {
    /// The parent goes on with a file that it has lent.
    pub(crate) fn take_back(&mut self) {
        let Some(link) = self.link.filter(|_| self.take_lent()) else { return };
        self.empty_window();
        let request = Request::SetPosition { file: link.slot, offset: 0, whence: SEEK_CUR };
        match link.connection.call(request) {
            Ok(Ok(at)) => self.entry.position.store(at, Ordering::Relaxed),
            Ok(Err(Errno::BUSY)) => self.leave(Reason::PassedOn),
            // An end is an end: nobody has written. A lost daemon is found by what comes next.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Asks for a file over a socket that is the parent's, and waits for it.
fn ask(socket: impl AsFd, loan: Loan) -> io::Result<OwnedFd> {
    // The child may have closed it, and opened something else with that number.
    if sockopt::socket_type(&socket)? != SocketType::SEQPACKET {
        return Err(Errno::BADF);
    }
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let message = Message::Lend(loan).encode();
    io::retry_on_intr(|| send_with(&socket, &message, &far))?;
    drop(far);
    let mut bytes = [0; MESSAGE_LEN];
    let receive = || receive_with(&near, &mut bytes, RecvFlags::empty());
    let (_, [fd, _]) = io::retry_on_intr(receive)?;
    fd.ok_or(Errno::BADF)
}
