//! The two calls that move bytes.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
    ptr,
};

use crate::{inline::INLINE_LEN_MAX, memory::Buffers, vectors::Vectors};

/// Most bytes one call moves: as many as an inline call on a file.
pub const SOCKET_LEN_MAX: usize = INLINE_LEN_MAX;

/// Most bytes one call receives: besides, the head of what follows, which would cost another call.
pub(super) const RECEIVE_LEN_MAX: usize = SOCKET_LEN_MAX + 64;

/// Receives what has arrived, 0 bytes when the peer sends no more; and whether the kernel stopped
/// there for descriptors that came along, which it closed.
pub(crate) fn receive(socket: impl AsFd, into: &Buffers) -> io::Result<(usize, bool)> {
    let vectors = Vectors::of(into, RECEIVE_LEN_MAX);
    let fd = socket.as_fd().as_raw_fd();
    let mut flags = 0;
    let len = transfer(&vectors, |message| {
        // SAFETY: the message names the buffers of `into`, which are borrowed, and whose bytes are
        // atomics that may change under shared references.
        let len = unsafe { libc::recvmsg(fd, message, libc::MSG_DONTWAIT) };
        flags = message.msg_flags;
        len
    })?;
    Ok((len, flags & libc::MSG_CTRUNC != 0))
}

/// Sends what there is room for.
pub(crate) fn send(socket: impl AsFd, from: &Buffers) -> io::Result<usize> {
    let vectors = Vectors::of(from, SOCKET_LEN_MAX);
    let fd = socket.as_fd().as_raw_fd();
    transfer(&vectors, |message| {
        // SAFETY: as in `receive`; the kernel only reads these bytes.
        unsafe { libc::sendmsg(fd, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    })
}

/// Calls with a message of these vectors, and again after a signal.
fn transfer(
    vectors: &Vectors,
    mut call: impl FnMut(&mut libc::msghdr) -> isize,
) -> io::Result<usize> {
    let list = vectors.as_slice();
    let mut message = libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: list.as_ptr().cast_mut(),
        msg_iovlen: list.len(),
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    loop {
        if let Ok(len) = usize::try_from(call(&mut message)) {
            return Ok(len);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
