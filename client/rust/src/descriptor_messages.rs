//! Messages over a control socket, with descriptors beside them.

use core::mem::MaybeUninit;

use rustix::{
    fd::{AsFd, OwnedFd},
    io::{self, IoSlice, IoSliceMut},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// Descriptors that come with one message: the protocol never sends more.
pub(crate) type Passed = [Option<OwnedFd>; 2];

/// Sends one message with a descriptor; a signal may interrupt it.
pub(crate) fn send_with(socket: impl AsFd, bytes: &[u8], fd: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives one message; returns its length, and the descriptors that came with it. A signal may
/// interrupt it.
pub(crate) fn receive_with(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Passed)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => Some([fds.next(), fds.next()]),
        _ => None,
    });
    Ok((received.bytes, passed.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::fstat,
        net::{AddressFamily, SocketFlags, SocketType, socketpair},
    };

    use super::*;

    #[test]
    fn a_message_brings_what_was_sent_beside_it() {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (here, there) = pair.expect("sockets");
        send_with(&here, b"message", &there).expect("room");

        let mut bytes = [0; 64];
        let flags = RecvFlags::DONTWAIT;
        let (len, passed) = receive_with(&there, &mut bytes, flags).expect("a message");

        assert_eq!(bytes[..len], *b"message");
        let [Some(fd), None] = passed else { panic!("not one: {passed:?}") };
        let number = |fd: &OwnedFd| fstat(fd).expect("open").st_ino;
        assert_eq!(number(&fd), number(&there));
        assert!(receive_with(&there, &mut bytes, flags).is_err(), "no other message");
    }
}
