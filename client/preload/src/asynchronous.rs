//! Asynchronous I/O: POSIX's, which libc's own threads carry out, and the kernel's, as libaio and
//! rings ask for it. Nobody sees what is done: the file is left to the kernel. Of a remote file the
//! kernel has a copy to read, or a pipe to write, in which nothing has a place: that is refused.

use client::{Errno, Reason};
use libc::{aiocb, c_int, c_void, iocb};

use crate::{
    descriptor::is_writable,
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, kernel},
    start::client,
};

interpose! {
    fn aio_read|aio_read64(request: *mut aiocb) -> c_int {
        if let Err(errno) = leave(request) {
            return answer(Err::<isize, _>(errno));
        }
        next!(aio_read(request => *mut aiocb) -> c_int)
    }

    fn aio_write|aio_write64(request: *mut aiocb) -> c_int {
        if let Err(errno) = leave(request) {
            return answer(Err::<isize, _>(errno));
        }
        next!(aio_write(request => *mut aiocb) -> c_int)
    }

    fn aio_fsync|aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int {
        if let Err(errno) = leave(request) {
            return answer(Err::<isize, _>(errno));
        }
        next!(aio_fsync(operation => c_int, request => *mut aiocb) -> c_int)
    }

    fn lio_listio|lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, signal: *mut c_void,
    ) -> c_int {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            if let Err(errno) = leave(*list.add(index)) {
                return answer(Err::<isize, _>(errno));
            }
        }
        next!(
            lio_listio(
                mode => c_int, list => *const *mut aiocb, count => c_int, signal => *mut c_void,
            ) -> c_int
        )
    }
}

/// As `io_submit(2)`.
///
/// # Safety
///
/// There are `count` requests in `list`, each null or one.
pub(crate) unsafe fn submit(context: usize, count: usize, list: *const *const iocb) -> Outcome {
    // The kernel refuses a negative count, and no list.
    let is_list = isize::try_from(count).is_ok() && !list.is_null();
    for index in 0..if is_list { count } else { 0 } {
        // SAFETY: the caller promises that many.
        let place = unsafe { list.add(index) };
        // SAFETY: one of them.
        let request = unsafe { place.read() };
        // SAFETY: as the caller promises.
        if let Some(request) = unsafe { request.as_ref() } {
            leave_number(c_int::try_from(request.aio_fildes).unwrap_or(-1))?;
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_io_submit, context, count, list) }
}

/// As `io_uring_setup(2)`. Of a ring that a thread of the kernel's looks at there will be no call.
///
/// # Safety
///
/// `settings` are null or a ring's.
pub(crate) unsafe fn set_up(entries: usize, settings: *const [u32; 3]) -> Outcome {
    const IS_POLLED: u32 = 2;
    // SAFETY: the program's own call.
    let ring = unsafe { kernel!(SYS_io_uring_setup, entries, settings) }?;
    // SAFETY: the kernel has read them, and written what else there is.
    let [_, _, flags] = unsafe { settings.read() };
    if let Some(client) = client().filter(|_| flags & IS_POLLED != 0) {
        client.leave_all();
    }
    Ok(ring)
}

/// # Safety
///
/// `request` is null or a request.
unsafe fn leave(request: *const aiocb) -> Outcome<()> {
    // SAFETY: as the caller promises.
    unsafe { request.as_ref() }.map_or(Ok(()), |request| leave_number(request.aio_fildes))
}

fn leave_number(fd: c_int) -> Outcome<()> {
    let Some(client) = client() else { return Ok(()) };
    if client.is_remote_file(fd) && is_writable(client, fd) {
        return Err(Errno::NOSYS);
    }
    client.leave(fd, Reason::Unsupported);
    Ok(())
}
