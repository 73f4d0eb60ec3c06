//! The control socket: whole messages of at most 64 bytes each way, with descriptors beside them.

use std::{
    fs,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use wire::MESSAGE_LEN;

/// Descriptors one message can bring; the protocol never sends more than two.
const FDS_MAX: usize = 4;
/// All clients there may be come at once where ranks start together. The kernel allows 4,096.
const BACKLOG: i32 = 1024;
const _: () = assert!(BACKLOG as usize >= shm::SESSIONS_MAX);

/// One message.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: [u8; MESSAGE_LEN],
    len: usize,
    /// Descriptors that came with it.
    pub(crate) fds: Vec<OwnedFd>,
    /// The message or its descriptors did not fit.
    pub(crate) is_cut: bool,
}

impl Packet {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Where the socket of `folder` is.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// Connects to the socket of `folder`. That, and each message, takes so long at most: then the
/// error is `WouldBlock`.
pub(crate) fn connect_to(folder: &Path, time: Duration) -> io::Result<OwnedFd> {
    let socket = create(SocketFlags::CLOEXEC)?;
    set_socket_timeout(&socket, Timeout::Send, Some(time))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(time))?;
    // With a limit of time it is not begun again by the kernel.
    let address = SocketAddrUnix::new(path(folder))?;
    rustix::io::retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
}

/// True if somebody listens on the socket of `folder`, and may be too busy to let anybody in. Never
/// blocks.
pub(crate) fn is_listened_at(folder: &Path) -> bool {
    try_to_connect(folder).map_or_else(|why| why.kind() == io::ErrorKind::WouldBlock, |()| true)
}

/// True if there is the socket of `folder`, and nobody listens on it. Never blocks.
pub(crate) fn is_deserted(folder: &Path) -> bool {
    try_to_connect(folder).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
}

fn try_to_connect(folder: &Path) -> io::Result<()> {
    let socket = create(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok(connect(&socket, &SocketAddrUnix::new(path(folder))?)?)
}

/// Listens on the socket of `folder`. The socket never blocks.
pub(crate) fn listen_in(folder: &Path) -> io::Result<OwnedFd> {
    listen_at(&path(folder))
}

/// As [`listen_in`], where another process listens until then.
pub(crate) fn listen_instead(folder: &Path) -> io::Result<OwnedFd> {
    // As long as the other name, which just fits where the folder's is long.
    let name = folder.join("daemon");
    let socket = listen_at(&name)?;
    fs::rename(name, path(folder))?;
    Ok(socket)
}

fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = create(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next connection; `WouldBlock` when none waits. It never blocks either.
pub(crate) fn accept_from(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Sends one message. Never blocks, whatever socket it is: `WouldBlock` where it has no room.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    let bytes = [IoSlice::new(bytes)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &bytes, &mut ancillary, flags))?;
    Ok(())
}

/// Receives one message; `None` when the other side has closed. `WouldBlock` when none waits.
///
/// What the other side had sent before it closed is received first, also where it left something
/// unread: the kernel says that once, before all that is here.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    match receive_or_fail(&socket) {
        Err(Errno::CONNRESET) => Ok(receive_or_fail(&socket)?),
        received => Ok(received?),
    }
}

fn receive_or_fail(socket: impl AsFd) -> rustix::io::Result<Option<Packet>> {
    let mut packet = Packet { bytes: [0; MESSAGE_LEN], len: 0, fds: Vec::new(), is_cut: false };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let bytes = &mut [IoSliceMut::new(&mut packet.bytes)];
        recvmsg(&socket, bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            packet.fds.extend(fds);
        }
    }
    packet.len = received.bytes;
    packet.is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let is_closed = packet.len == 0 && packet.fds.is_empty() && !packet.is_cut;
    Ok((!is_closed).then_some(packet))
}

/// Both ends of a connection, which never block.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn create(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    /// One that a stranger lends may be such.
    #[test]
    fn a_full_socket_that_blocks_is_not_waited_for() {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (here, _there) = pair.expect("sockets");
        let full = loop {
            if let Err(error) = send(&here, &[0; MESSAGE_LEN], &[]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_was_sent_is_received_also_from_who_left_something_unread() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (here, there) = pair.expect("sockets");
        send(&here, b"unread", &[]).expect("room");
        send(&there, b"first", &[there.as_fd()]).expect("room");
        send(&there, b"second", &[]).expect("room");
        drop(there);

        let first = receive(&here).expect("a message").expect("a message");
        let second = receive(&here).expect("a message").expect("a message");

        assert_eq!((first.bytes(), first.fds.len()), (&b"first"[..], 1));
        assert_eq!(second.bytes(), b"second");
        drop(first); // Its descriptor is the other side's last.
        assert!(receive(&here).expect("the end").is_none());
    }
}
