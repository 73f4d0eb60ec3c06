//! POSIX asynchronous I/O. libc's own threads carry it out, where nobody sees it: the file is left
//! to the kernel.

use client::Reason;
use libc::{aiocb, c_int, c_void};

use crate::{
    interpose::{interpose, next},
    start::client,
};

interpose! {
    fn aio_read|aio_read64(request: *mut aiocb) -> c_int {
        leave(request);
        next!(aio_read(request => *mut aiocb) -> c_int)
    }

    fn aio_write|aio_write64(request: *mut aiocb) -> c_int {
        leave(request);
        next!(aio_write(request => *mut aiocb) -> c_int)
    }

    fn aio_fsync|aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int {
        leave(request);
        next!(aio_fsync(operation => c_int, request => *mut aiocb) -> c_int)
    }

    fn lio_listio|lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, signal: *mut c_void,
    ) -> c_int {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            leave(*list.add(index));
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
unsafe fn leave(request: *const aiocb) {
    // SAFETY: as the caller promises.
    if let (Some(client), Some(request)) = (client(), unsafe { request.as_ref() }) {
        client.leave(request.aio_fildes, Reason::Unsupported);
    }
}
