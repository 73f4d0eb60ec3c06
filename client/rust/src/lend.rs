//! Remote files that a child was given which its parent had open with close-on-exec: by `dup2`, as
//! standard output, or by clearing the flag.
//!
//! Before the fork nobody can know that the child will want the file, so it stays the parent's
//! (`stays_over_fork`). The child then asks the parent's daemon over the parent's socket, with a
//! socket of its own for the answer. From then on the position is the child's, until the parent
//! next needs it: then it is taken back, if no child has the file any more, or the parent joins
//! them.

use core::{mem::MaybeUninit, sync::atomic::Ordering};

use rustix::{
    fd::{AsFd, OwnedFd, RawFd},
    io::{self, Errno, IoSlice, IoSliceMut},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
        sockopt,
    },
};
use wire::{Loan, MESSAGE_LEN, Message, Reason, Request, SEEK_CUR};

use crate::{client::Client, locked::Locked};

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
        match ask(lender.connection.socket(), loan) {
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [far.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let data = [IoSlice::new(&message)];
    io::retry_on_intr(|| sendmsg(&socket, &data, &mut control, SendFlags::NOSIGNAL))?;
    drop(far);
    let mut bytes = [0; MESSAGE_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    io::retry_on_intr(|| {
        let mut data = [IoSliceMut::new(&mut bytes)];
        recvmsg(&near, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or(Errno::BADF)
}
