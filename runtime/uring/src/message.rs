//! Whole messages of a device: one system call each, head and data apart.
//!
//! For `/dev/fuse`, where a read takes one request and a write gives one reply. The data lies where
//! a file operation has put it, or will take it from, so it is copied by the kernel alone.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

use crate::memory::Buffer;

/// Reads one message: its first bytes into `head`, what is left into `body`. Returns its length.
///
/// # Errors
///
/// The device's own; `WouldBlock` if it is nonblocking and there is no message.
pub fn read_message(fd: impl AsFd, head: &mut [u8], body: &Buffer) -> io::Result<usize> {
    let places = [vector(head.as_mut_ptr(), head.len()), of(body)];
    // SAFETY: both name memory that is borrowed during the call, `head` alone; the bytes of `body`
    // are atomics, which may change under shared references.
    let len = unsafe { libc::readv(fd.as_fd().as_raw_fd(), places.as_ptr(), 2) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Writes one message: `head`, and then `body`.
///
/// # Errors
///
/// The device's own.
pub fn write_message(fd: impl AsFd, head: &[u8], body: &Buffer) -> io::Result<usize> {
    let places = [vector(head.as_ptr().cast_mut(), head.len()), of(body)];
    // SAFETY: as in `read_message`; the kernel only reads these bytes.
    let len = unsafe { libc::writev(fd.as_fd().as_raw_fd(), places.as_ptr(), 2) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

fn of(buffer: &Buffer) -> libc::iovec {
    let bytes = buffer.bytes();
    vector(bytes.as_ptr().cast_mut().cast(), bytes.len())
}

fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::memory::Heap;

    #[test]
    fn message_crosses_in_one_piece_with_its_data_apart() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)
                .expect("sockets");
        let data = Heap::buffer(8);
        data.store(b"12345678");
        assert_eq!(write_message(&here, b"head", &data.prefix(5)).expect("room"), 9);
        let (mut head, body) = ([0; 4], Heap::buffer(8));
        assert_eq!(read_message(&there, &mut head, &body).expect("a message"), 9);
        let mut bytes = [0; 5];
        body.load(&mut bytes);
        assert_eq!((&head, &bytes), (b"head", b"12345"));
        let none = read_message(&there, &mut head, &body).expect_err("no message");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }
}
