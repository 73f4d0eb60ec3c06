//! POSIX asynchronous I/O. libc's own threads carry it out, where nobody sees it: the file is left
//! to the kernel. Of a remote file the kernel has a copy to read, or a pipe to write, in which
//! nothing has a place: that is refused.

use client::{Errno, Reason};
use libc::{aiocb, c_int, c_void};

use crate::{
    descriptor::is_writable,
    errno::answer,
    interpose::{interpose, next},
    kernel::Outcome,
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

/// # Safety
///
/// `request` is null or a request.
unsafe fn leave(request: *const aiocb) -> Outcome<()> {
    // SAFETY: as the caller promises.
    if let (Some(client), Some(request)) = (client(), unsafe { request.as_ref() }) {
        let fd = request.aio_fildes;
        if client.is_remote_file(fd) && is_writable(client, fd) {
            return Err(Errno::NOSYS);
        }
        client.leave(fd, Reason::Unsupported);
    }
    Ok(())
}
