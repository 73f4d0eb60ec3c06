//! Reads and writes of several buffers in one call.

use client::{Client, Errno, Reason};
use libc::{c_int, iovec, off_t, ssize_t};

use crate::{
    data::{bytes, is_foreign, room},
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, blocking},
    start::client,
};

/// Buffers that most programs pass at a time, and the most that anybody may.
const FEW: usize = 16;
const MOST: usize = 1024;

interpose! {
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
        answer(read(fd, buffers, count, None))
    }

    fn writev(fd: c_int, data: *const iovec, count: c_int) -> ssize_t {
        answer(write(fd, data, count, None))
    }

    fn preadv|preadv64(fd: c_int, buffers: *const iovec, count: c_int, at: off_t) -> ssize_t {
        answer(read(fd, buffers, count, Some(at)))
    }

    fn pwritev|pwritev64(fd: c_int, data: *const iovec, count: c_int, at: off_t) -> ssize_t {
        answer(write(fd, data, count, Some(at)))
    }

    fn preadv2|preadv64v2(
        fd: c_int, buffers: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        if flags == 0 {
            answer(read(fd, buffers, count, (at != -1).then_some(at)))
        } else {
            leave(fd);
            answer(blocking!(SYS_preadv2, fd, buffers, count, at, 0, flags))
        }
    }

    fn pwritev2|pwritev64v2(
        fd: c_int, data: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        if flags == 0 {
            answer(write(fd, data, count, (at != -1).then_some(at)))
        } else {
            leave(fd);
            let written = blocking!(SYS_pwritev2, fd, data, count, at, 0, flags);
            if let (Some(client), Ok(len)) = (client(), written) {
                client.count_undelegated(fd, Reason::Unsupported, len.cast_unsigned());
            }
            answer(written)
        }
    }
}

/// Flags ask for what only the kernel can do: append here, do not wait, wait for the device.
fn leave(fd: c_int) {
    if let Some(client) = client() {
        client.leave(fd, Reason::Unsupported);
    }
}

/// As `readv(2)`, or `preadv(2)` with an offset.
///
/// # Safety
///
/// There are `count` buffers.
pub(crate) unsafe fn read(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Outcome {
    // SAFETY: the caller promises `count` buffers.
    let list = unsafe { buffers_of(fd, buffers, count, at) };
    match (list, at) {
        // SAFETY: the list was checked, and the caller promises its buffers.
        (Some((client, list)), _) if list.len() <= FEW => unsafe {
            read_list::<FEW>(client, fd, list, at)
        },
        // SAFETY: as above.
        (Some((client, list)), _) => unsafe { read_list::<MOST>(client, fd, list, at) },
        // SAFETY: the caller's own call.
        (None, None) => unsafe { blocking!(SYS_readv, fd, buffers, count) },
        // SAFETY: the caller's own call.
        (None, Some(at)) => unsafe { blocking!(SYS_preadv, fd, buffers, count, at, 0) },
    }
}

/// As `writev(2)`, or `pwritev(2)` with an offset.
///
/// # Safety
///
/// There are `count` buffers.
pub(crate) unsafe fn write(
    fd: c_int,
    data: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Outcome {
    // SAFETY: the caller promises `count` buffers.
    let list = unsafe { buffers_of(fd, data, count, at) };
    match (list, at) {
        // SAFETY: the list was checked, and the caller promises its buffers.
        (Some((client, list)), _) if list.len() <= FEW => unsafe {
            write_list::<FEW>(client, fd, list, at)
        },
        // SAFETY: as above.
        (Some((client, list)), _) => unsafe { write_list::<MOST>(client, fd, list, at) },
        // SAFETY: the caller's own call.
        (None, None) => unsafe { blocking!(SYS_writev, fd, data, count) },
        // SAFETY: the caller's own call.
        (None, Some(at)) => unsafe { blocking!(SYS_pwritev, fd, data, count, at, 0) },
    }
}

/// The buffers, when the call is one for the client: every one can be made a slice, their lengths
/// add up to a length, and the number may be a regular file.
///
/// # Safety
///
/// `buffers` is null or holds `count` buffers.
unsafe fn buffers_of<'a>(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Option<(&'static Client, &'a [iovec])> {
    let client = client()?;
    let count = usize::try_from(count).ok().filter(|count| (1..=MOST).contains(count))?;
    if buffers.is_null() || at.is_some_and(|at| at < 0) || is_foreign(client, fd) {
        return None;
    }
    // SAFETY: not null, and the caller promises the count.
    let list = unsafe { core::slice::from_raw_parts(buffers, count) };
    let mut total = 0_isize;
    for buffer in list {
        total = total.checked_add(isize::try_from(buffer.iov_len).ok()?)?;
        if buffer.iov_base.is_null() && buffer.iov_len > 0 {
            return None;
        }
    }
    Some((client, list))
}

/// # Safety
///
/// Every buffer of the list, at most `N`, passed [`buffers_of`].
unsafe fn read_list<const N: usize>(
    client: &'static Client,
    fd: c_int,
    list: &[iovec],
    at: Option<off_t>,
) -> Outcome {
    let mut slices: [&mut [u8]; N] = core::array::from_fn(|_| &mut [][..]);
    for (slice, buffer) in slices.iter_mut().zip(list).filter(|(_, buffer)| buffer.iov_len > 0) {
        // SAFETY: checked by `buffers_of`; the program gives the room.
        *slice = unsafe { room(buffer.iov_base, buffer.iov_len) };
    }
    let slices = slices.get_mut(..list.len()).ok_or(Errno::INVAL)?;
    client.read_vectored(fd, slices, at.map(off_t::cast_unsigned)).map(usize::cast_signed)
}

/// # Safety
///
/// Every buffer of the list, at most `N`, passed [`buffers_of`].
unsafe fn write_list<const N: usize>(
    client: &'static Client,
    fd: c_int,
    list: &[iovec],
    at: Option<off_t>,
) -> Outcome {
    let mut slices: [&[u8]; N] = [&[]; N];
    for (slice, buffer) in slices.iter_mut().zip(list).filter(|(_, buffer)| buffer.iov_len > 0) {
        // SAFETY: checked by `buffers_of`; the program gives the data.
        *slice = unsafe { bytes(buffer.iov_base, buffer.iov_len) };
    }
    let slices = slices.get(..list.len()).ok_or(Errno::INVAL)?;
    client.write_vectored(fd, slices, at.map(off_t::cast_unsigned)).map(usize::cast_signed)
}
