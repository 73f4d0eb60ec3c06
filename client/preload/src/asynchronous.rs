//! Asynchronous I/O: POSIX's, which libc's own threads carry out, and the kernel's, as libaio asks
//! for it. Nobody sees what is done: the file is left to the kernel.
//!
//! Of a remote file the kernel has a copy to read, or a pipe to write, in which nothing has a
//! place. POSIX's requests to it are done before the call returns, which POSIX allows; the kernel's
//! are refused.

use core::mem::offset_of;

use client::{Errno, Reason};
use libc::{aiocb, c_int, c_long, c_void, iocb, off_t};

use crate::{
    data::{pread, pwrite},
    descriptor::is_writable,
    errno::{answer, last},
    interpose::interpose,
    kernel::{Outcome, Word as _, ignore, kernel},
    process_client::client,
    sync::{fdatasync, fsync},
};

interpose! {
    // libaio's, which makes the system call by instruction, and returns its error.
    fn io_submit(context: *mut c_void, count: c_long, list: *const *const iocb) -> c_int {
        match submit(context.word(), count.word(), list) {
            Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
            Err(errno) => -errno.raw_os_error(),
        }
    }

    fn aio_read|aio_read64(request: *mut aiocb) -> c_int, next {
        if let Some(served) = serve(request, Work::Read) {
            return answer(served);
        }
        next()
    }

    fn aio_write|aio_write64(request: *mut aiocb) -> c_int, next {
        if let Some(served) = serve(request, Work::Write) {
            return answer(served);
        }
        next()
    }

    fn aio_fsync|aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int, next {
        let work = match operation {
            libc::O_SYNC => Work::Sync,
            libc::O_DSYNC => Work::SyncData,
            _ => return answer(Err::<isize, _>(Errno::INVAL)),
        };
        if let Some(served) = serve(request, work) {
            return answer(served);
        }
        next()
    }

    fn lio_listio|lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, signal: *mut c_void,
    ) -> c_int, next {
        if let Some(served) = serve_list(list, count, signal) {
            return answer(served);
        }
        next()
    }
}

/// The beginning of glibc's `struct aiocb`, which its headers make part of every program, with what
/// `aio_error` and `aio_return` answer.
#[repr(C)]
struct Head {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    len: usize,
    event: libc::sigevent,
    next: *mut c_void,
    scheduling: [c_int; 2],
    error: c_int,
    returned: isize,
    at: off_t,
}

const _: () = {
    assert!(offset_of!(Head, error) == 112);
    assert!(offset_of!(Head, at) == offset_of!(aiocb, aio_offset));
};

/// Operation of a request.
#[derive(Clone, Copy)]
enum Work {
    Read,
    Write,
    Sync,
    SyncData,
}

/// Serves a request to a remote file; `None`: libc does, and the file is left to the kernel.
///
/// # Safety
///
/// `request` is null or a request.
unsafe fn serve(request: *mut aiocb, work: Work) -> Option<Outcome> {
    let client = client()?;
    // SAFETY: as the caller promises; libc's structure begins so.
    let head = unsafe { request.cast::<Head>().as_mut() }?;
    if !client.is_remote_file(head.fd) {
        client.detach(head.fd, Reason::Unsupported);
        return None;
    }
    if head.event.sigev_notify == libc::SIGEV_THREAD {
        return Some(Err(Errno::NOSYS)); // Only libc can start that thread.
    }
    // SAFETY: as the caller promises.
    unsafe { head.carry_out(work) };
    head.tell();
    Some(Ok(0))
}

/// Serves requests that are all to remote files; `None`: libc serves them.
///
/// # Errors
///
/// `ENOSYS`: some are to remote files and others are not, or somebody wants to be told of the end.
///
/// # Safety
///
/// There are `count` requests in `list`, each null or one; `signal` is null or an event.
unsafe fn serve_list(
    list: *const *mut aiocb,
    count: c_int,
    signal: *const c_void,
) -> Option<Outcome> {
    let client = client()?;
    let requests = || {
        (0..usize::try_from(count).unwrap_or(0)).filter_map(|index| {
            // SAFETY: as the caller promises.
            let request = unsafe { list.wrapping_add(index).read() };
            // SAFETY: as the caller promises; libc's structure begins so.
            unsafe { request.cast::<Head>().as_mut() }
        })
    };
    let mut remote_count = 0;
    for head in requests() {
        if client.is_remote_file(head.fd) {
            remote_count += 1;
        } else {
            client.detach(head.fd, Reason::Unsupported);
        }
    }
    if remote_count == 0 {
        return None;
    }
    // SAFETY: as the caller promises.
    let event = unsafe { signal.cast::<libc::sigevent>().as_ref() };
    let is_told = event.is_some_and(|event| event.sigev_notify != libc::SIGEV_NONE);
    let is_thread = |head: &Head| head.event.sigev_notify == libc::SIGEV_THREAD;
    if is_told || remote_count < requests().count() || requests().any(|head| is_thread(head)) {
        return Some(Err(Errno::NOSYS));
    }
    for head in requests() {
        let work = match head.operation {
            libc::LIO_READ => Work::Read,
            libc::LIO_WRITE => Work::Write,
            _ => continue,
        };
        // SAFETY: as the caller promises.
        unsafe { head.carry_out(work) };
        head.tell();
    }
    Some(Ok(0))
}

impl Head {
    /// Does what is asked for, and notes the result.
    ///
    /// # Safety
    ///
    /// The buffer has the room, or the data, that the request says.
    unsafe fn carry_out(&mut self, work: Work) {
        self.returned = match work {
            // SAFETY: as the caller promises.
            Work::Read => unsafe { pread(self.fd, self.buffer, self.len, self.at) },
            // SAFETY: as the caller promises.
            Work::Write => unsafe { pwrite(self.fd, self.buffer, self.len, self.at) },
            Work::Sync => fsync(self.fd) as isize,
            Work::SyncData => fdatasync(self.fd) as isize,
        };
        self.error = if self.returned < 0 { last().raw_os_error() } else { 0 };
    }

    /// Sends the signal that the program wants to have.
    fn tell(&self) {
        /// The beginning of the kernel's `siginfo_t`.
        #[repr(C)]
        struct Info {
            signal: c_int,
            error: c_int,
            code: c_int,
            process: c_int,
            user: u32,
            value: libc::sigval,
            rest: [u64; 12],
        }
        if self.event.sigev_notify != libc::SIGEV_SIGNAL {
            return;
        }
        // SAFETY: no arguments.
        let process =
            unsafe { kernel!(SYS_getpid) }.map_or(0, |id| c_int::try_from(id).unwrap_or(0));
        // SAFETY: no arguments.
        let user = unsafe { kernel!(SYS_getuid) }.map_or(0, |id| u32::try_from(id).unwrap_or(0));
        let (signal, value) = (self.event.sigev_signo, self.event.sigev_value);
        let code = libc::SI_ASYNCIO;
        let info = Info { signal, error: 0, code, process, user, value, rest: [0; 12] };
        // SAFETY: the kernel reads a `siginfo_t`. The request is done whether the signal comes.
        ignore(unsafe { kernel!(SYS_rt_sigqueueinfo, process, signal, &raw const info) });
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
            detach_number(c_int::try_from(request.aio_fildes).unwrap_or(-1))?;
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_io_submit, context, count, list) }
}

fn detach_number(fd: c_int) -> Outcome<()> {
    let Some(client) = client() else { return Ok(()) };
    if client.is_remote_file(fd) && is_writable(client, fd) {
        return Err(Errno::NOSYS);
    }
    client.detach(fd, Reason::Unsupported);
    Ok(())
}
