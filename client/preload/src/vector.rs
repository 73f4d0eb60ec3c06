//! Reads and writes of several buffers in one call.

use core::{array, slice};

use client::{Client, Errno, Reason};
use libc::{c_int, iovec, off_t, ssize_t};

use crate::{
    bits::{counted, returned},
    data::{count_read, count_written, unexamined},
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask_blocking, blocking, cancellation_point},
    pointers::{Buffer, Data},
    process_client::client,
};

/// Buffers that most programs pass at a time, and the most that anybody may.
const FEW: usize = 16;
const MOST: usize = 1024;

interpose! {
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t =>
        read(fd, buffers, count, None);
    fn writev(fd: c_int, data: *const iovec, count: c_int) -> ssize_t =>
        write(fd, data, count, None);
    fn preadv|preadv64(fd: c_int, buffers: *const iovec, count: c_int, at: off_t) -> ssize_t =>
        read(fd, buffers, count, Some(at));
    fn pwritev|pwritev64(fd: c_int, data: *const iovec, count: c_int, at: off_t) -> ssize_t =>
        write(fd, data, count, Some(at));

    fn preadv2|preadv64v2(
        fd: c_int, buffers: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        if flags == 0 {
            answer(read(fd, buffers, count, (at != -1).then_some(at)))
        } else {
            if leave(fd).is_err() {
                return answer(Err::<isize, _>(Errno::OPNOTSUPP));
            }
            answer(blocking!(SYS_preadv2, fd, buffers, count, at, 0, flags))
        }
    }

    fn pwritev2|pwritev64v2(
        fd: c_int, data: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        if flags == 0 {
            answer(write(fd, data, count, (at != -1).then_some(at)))
        } else {
            if leave(fd).is_err() {
                return answer(Err::<isize, _>(Errno::OPNOTSUPP));
            }
            let written = blocking!(SYS_pwritev2, fd, data, count, at, 0, flags);
            if let (Some(client), Ok(len)) = (client(), written) {
                client.count_undelegated(fd, Reason::Unsupported, counted(len));
            }
            answer(written)
        }
    }
}

/// Flags ask for what only the kernel can do: append here, do not wait, wait for the device. For a
/// remote file nobody does it.
fn leave(fd: c_int) -> Outcome<()> {
    let Some(client) = client() else { return Ok(()) };
    if client.is_remote_file(fd) {
        return Err(Errno::OPNOTSUPP);
    }
    client.detach(fd, Reason::Unsupported);
    Ok(())
}

/// As `readv(2)`, or `preadv(2)` with an offset.
///
/// # Safety
///
/// There are `count` buffers, each with the room it says.
unsafe fn read(fd: c_int, buffers: *const iovec, count: c_int, at: Option<off_t>) -> Outcome {
    let ask = || match at {
        // SAFETY: the kernel writes to no more than the buffers, each of which has its room.
        None => unsafe { blocking!(SYS_readv, fd, buffers, count) },
        // SAFETY: the kernel writes to no more than the buffers, each of which has its room.
        Some(at) => unsafe { blocking!(SYS_preadv, fd, buffers, count, at, 0) },
    };
    if let Some(client) = unexamined(fd) {
        return count_read(client, fd, ask());
    }
    // SAFETY: `count` buffers, as this was promised.
    match unsafe { Checked::new(fd, buffers, count, at, Client::leave_read) }? {
        // SAFETY: few buffers, and each has the room it says.
        Some(checked) if checked.list.len() <= FEW => unsafe { checked.read::<FEW>() },
        // SAFETY: `new` takes no more buffers than these, and each has the room it says.
        Some(checked) => unsafe { checked.read_many() },
        None => ask(),
    }
}

/// As `writev(2)`, or `pwritev(2)` with an offset.
///
/// # Safety
///
/// There are `count` buffers, each with the data it says.
unsafe fn write(fd: c_int, data: *const iovec, count: c_int, at: Option<off_t>) -> Outcome {
    let leaves = if at.is_some() { Client::leave_write_at } else { Client::leave_write };
    // SAFETY: `count` buffers, as this was promised.
    match (unsafe { Checked::new(fd, data, count, at, leaves) }?, at) {
        // SAFETY: few buffers, and each has the bytes it says.
        (Some(checked), _) if checked.list.len() <= FEW => unsafe { checked.write::<FEW>() },
        // SAFETY: `new` takes no more buffers than these, and each has the bytes it says.
        (Some(checked), _) => unsafe { checked.write_many() },
        (None, None) => count_written(fd, ask_blocking!(SYS_writev, fd, data, count)),
        (None, Some(at)) => count_written(fd, ask_blocking!(SYS_pwritev, fd, data, count, at, 0)),
    }
}

/// A call that is one for the client: its buffers can be made slices, their lengths add up to a
/// length, and the number may be a regular file.
struct Checked<'a> {
    client: &'static Client,
    fd: c_int,
    list: &'a [iovec],
    at: Option<u64>,
}

impl Checked<'_> {
    /// `None`: the kernel is asked.
    ///
    /// # Errors
    ///
    /// `EINVAL` and `EFAULT`, as the kernel says to such buffers, but not of a placeholder.
    ///
    /// # Safety
    ///
    /// `buffers` is null or holds `count` buffers.
    unsafe fn new(
        fd: c_int,
        buffers: *const iovec,
        count: c_int,
        at: Option<off_t>,
        is_kernels: fn(&'static Client, c_int) -> bool,
    ) -> Outcome<Option<Self>> {
        let Some(client) = client().filter(|client| !is_kernels(client, fd)) else {
            return Ok(None);
        };
        let Ok(at) = at.map(u64::try_from).transpose() else { return Ok(None) };
        cancellation_point();
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST);
        if count.is_none() && !client.is_placeholder(fd) {
            return Ok(None);
        }
        let list = match count.ok_or(Errno::INVAL)? {
            // Whether the file is open for that is asked first.
            0 if !client.is_placeholder(fd) => return Ok(None),
            0 => &[],
            _ if buffers.is_null() => return Err(Errno::FAULT),
            // SAFETY: not null, and the caller promises the count.
            count => unsafe { slice::from_raw_parts(buffers, count) },
        };
        let (mut total, mut used) = (0_isize, list.len());
        for (index, buffer) in list.iter().enumerate() {
            let len = isize::try_from(buffer.iov_len).map_err(|_| Errno::INVAL)?;
            if buffer.iov_base.is_null() && len > 0 {
                used = used.min(index);
            }
            // The kernel does a part of what is longer than any call can be.
            let Some(sum) = total.checked_add(len) else { return Ok(None) };
            total = sum;
        }
        // What comes before a buffer that is nowhere is read or written.
        let whole = list.len();
        let list = list.get(..used).unwrap_or_default();
        if used < whole && list.iter().all(|buffer| buffer.iov_len == 0) {
            return Err(Errno::FAULT);
        }
        Ok(Some(Self { client, fd, list, at }))
    }

    /// Apart: the list is longer than many a stack.
    ///
    /// # Safety
    ///
    /// As [`read`](Self::read).
    #[cold]
    #[inline(never)]
    unsafe fn read_many(&self) -> Outcome {
        // SAFETY: the buffers of `read`, of which `new` takes no more than these.
        unsafe { self.read::<MOST>() }
    }

    /// As [`read_many`](Self::read_many).
    ///
    /// # Safety
    ///
    /// As [`write`](Self::write).
    #[cold]
    #[inline(never)]
    unsafe fn write_many(&self) -> Outcome {
        // SAFETY: the data of `write`, of which `new` takes no more than these.
        unsafe { self.write::<MOST>() }
    }

    /// # Safety
    ///
    /// There are at most `N` buffers, each with the room it says.
    unsafe fn read<const N: usize>(&self) -> Outcome {
        let mut slices: [&mut [u8]; N] = array::from_fn(|_| &mut [][..]);
        for (slice, buffer) in slices.iter_mut().zip(self.list).filter(|(_, b)| b.iov_len > 0) {
            // SAFETY: the caller promises that the buffer has the room it says.
            *slice = unsafe { Buffer::new(buffer.iov_base, buffer.iov_len) }.into_slice()?;
        }
        let slices = slices.get_mut(..self.list.len()).ok_or(Errno::INVAL)?;
        self.client.read_vectored(self.fd, slices, self.at).map(returned)
    }

    /// # Safety
    ///
    /// There are at most `N` buffers, each with the data it says.
    unsafe fn write<const N: usize>(&self) -> Outcome {
        let mut slices: [&[u8]; N] = [&[]; N];
        for (slice, buffer) in slices.iter_mut().zip(self.list).filter(|(_, b)| b.iov_len > 0) {
            // SAFETY: the caller promises that the buffer has the data it says.
            *slice = unsafe { Data::new(buffer.iov_base, buffer.iov_len) }.slice()?;
        }
        let slices = slices.get(..self.list.len()).ok_or(Errno::INVAL)?;
        self.client.write_vectored(self.fd, slices, self.at).map(returned)
    }
}
