//! Transfers in flight, reported in the order they were started.
//!
//! The daemon does those that it can; every other is done at once, and what came of it waits here
//! for its turn to be reported. A child of `fork` has the queue's memory and nothing of what is in
//! flight, which stays its parent's: it may only give the queue up.

use std::{
    collections::VecDeque,
    ffi::{c_int, c_uint, c_void},
    process,
    ptr::{self, NonNull},
};

use seam::{Calls, Transfer};

use crate::{
    client::client,
    error::{answer, last, set},
};

const DEPTH_MAX: c_uint = 64;

/// A queue, as C has it.
pub(crate) struct Queue {
    process: u32,
    depth: usize,
    requests: VecDeque<Request>,
    daemons: Option<Daemons>,
}

struct Request {
    tag: u64,
    /// `None`: the daemon was asked.
    result: Option<i64>,
}

/// Result of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    tag: u64,
    /// Bytes, or a negated errno.
    result: i64,
}

/// The client's end of it.
struct Daemons {
    calls: &'static Calls,
    queue: NonNull<c_void>,
}

#[unsafe(no_mangle)]
extern "C" fn kakehi_queue_create(depth: c_uint) -> *mut Queue {
    match usize::try_from(depth) {
        Ok(depth) if (1..=DEPTH_MAX as usize).contains(&depth) => {
            Box::into_raw(Box::new(Queue::new(depth, Daemons::new())))
        }
        _ => {
            set(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kakehi_queue_read(
    queue: *mut Queue,
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
    tag: u64,
) -> c_int {
    let wanted = Wanted { fd, memory: buffer, len: bytes, offset, is_write: 0 };
    // SAFETY: the caller's queue, and memory.
    answer(unsafe { enter(queue) }.and_then(|queue| unsafe { queue.start(&wanted, tag) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kakehi_queue_write(
    queue: *mut Queue,
    fd: c_int,
    buffer: *const c_void,
    bytes: usize,
    offset: i64,
    tag: u64,
) -> c_int {
    let wanted = Wanted { fd, memory: buffer.cast_mut(), len: bytes, offset, is_write: 1 };
    // SAFETY: the caller's queue, and memory.
    answer(unsafe { enter(queue) }.and_then(|queue| unsafe { queue.start(&wanted, tag) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kakehi_queue_wait(
    queue: *mut Queue,
    at_least: c_uint,
    completions: *mut Completion,
    max: c_uint,
) -> c_int {
    // SAFETY: the caller's queue.
    let queue = match unsafe { enter(queue) } {
        Ok(queue) if at_least <= max => queue,
        outcome => return answer(outcome.and(Err(libc::EINVAL))),
    };
    let mut count = 0;
    while let Some(completion) = (count < max).then(|| queue.finish(count < at_least)).flatten() {
        // SAFETY: fewer than the `max` that the caller has room for.
        let place = unsafe { completions.add(count as usize) };
        // SAFETY: one of the places that the caller gives for completions.
        unsafe { place.write(completion) };
        count += 1;
    }
    // No more than the depth.
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kakehi_queue_destroy(queue: *mut Queue) -> c_int {
    if queue.is_null() {
        return 0;
    }
    // SAFETY: the caller's, who does not use it again.
    let mut queue = unsafe { Box::from_raw(queue) };
    if queue.process != process::id() {
        // What is in flight is the parent's.
        queue.daemons = None;
        return 0;
    }
    let mut first = Ok(());
    while let Some(completion) = queue.finish(true) {
        let failed = c_int::try_from(-completion.result).ok().filter(|errno| *errno > 0);
        first = first.and(failed.map_or(Ok(()), Err));
    }
    if let Some(daemons) = queue.daemons.take() {
        // SAFETY: the client's own queue, which is not used again.
        unsafe { (daemons.calls.end)(daemons.queue.as_ptr()) };
    }
    answer(first)
}

/// The queue that a call is about.
///
/// # Safety
///
/// It is null or a queue that no other thread uses meanwhile.
unsafe fn enter<'a>(queue: *mut Queue) -> Result<&'a mut Queue, c_int> {
    // SAFETY: null, or a queue that the caller lends to this call.
    let queue = unsafe { queue.as_mut() }.ok_or(libc::EINVAL)?;
    if queue.process == process::id() { Ok(queue) } else { Err(libc::EPERM) }
}

/// A transfer as the program asked for it.
struct Wanted {
    fd: c_int,
    memory: *mut c_void,
    len: usize,
    offset: i64,
    /// 1, or 0 to read.
    is_write: c_int,
}

impl Queue {
    fn new(depth: usize, daemons: Option<Daemons>) -> Self {
        let requests = VecDeque::with_capacity(depth);
        Self { process: process::id(), depth, requests, daemons }
    }

    /// Starts a transfer; or does it, if it is none for the daemon.
    ///
    /// # Safety
    ///
    /// The memory is there, and stays so until the transfer is reported.
    unsafe fn start(&mut self, wanted: &Wanted, tag: u64) -> Result<(), c_int> {
        let Wanted { fd, memory, len, offset, is_write } = *wanted;
        if self.requests.len() >= self.depth {
            return Err(libc::EAGAIN);
        }
        let is_started = u64::try_from(offset).is_ok_and(|at| {
            let transfer = Transfer { memory, len, at, fd, is_write };
            self.daemons.as_ref().is_some_and(|daemons| daemons.start(&transfer))
        });
        let result = (!is_started).then(|| {
            let moved = if is_write == 1 {
                // SAFETY: the transfer's memory has `len` bytes to read.
                unsafe { libc::pwrite(fd, memory, len, offset) }
            } else {
                // SAFETY: the transfer's memory has room for `len` bytes.
                unsafe { libc::pread(fd, memory, len, offset) }
            };
            if moved < 0 { -i64::from(last()) } else { moved as i64 }
        });
        self.requests.push_back(Request { tag, result });
        Ok(())
    }

    /// Takes the oldest request, if it is finished or is to be waited for.
    fn finish(&mut self, waits: bool) -> Option<Completion> {
        let &Request { tag, result } = self.requests.front()?;
        let result = match (result, &self.daemons) {
            (Some(result), _) => result,
            (None, Some(daemons)) => daemons.finish(waits)?,
            // Only a client is asked.
            (None, None) => -i64::from(libc::EIO),
        };
        self.requests.pop_front();
        Some(Completion { tag, result })
    }
}

impl Daemons {
    fn new() -> Option<Self> {
        let calls = client()?;
        NonNull::new((calls.queue)()).map(|queue| Self { calls, queue })
    }

    fn start(&self, transfer: &Transfer) -> bool {
        // SAFETY: the client's own queue, and a transfer; what memory it names is looked at only if
        // it is the client's.
        unsafe { (self.calls.start)(self.queue.as_ptr(), transfer) == 1 }
    }

    /// The oldest result, if it is there or is to be waited for.
    fn finish(&self, waits: bool) -> Option<i64> {
        // SAFETY: the client's own queue.
        if !waits && unsafe { (self.calls.is_finished)(self.queue.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the queue of these calls, which only this thread uses.
        Some(unsafe { (self.calls.finish)(self.queue.as_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    };

    use super::*;

    /// As C calls it.
    struct Called(*mut Queue);

    impl Called {
        fn write(&self, fd: c_int, data: &'static [u8], offset: i64, tag: u64) -> c_int {
            let buffer = data.as_ptr().cast();
            // SAFETY: the text stays for ever.
            unsafe { kakehi_queue_write(self.0, fd, buffer, data.len(), offset, tag) }
        }

        /// Reads into memory that is never freed.
        fn read(&self, fd: c_int, len: usize, offset: i64, tag: u64) -> (c_int, &'static [u8]) {
            let buffer = vec![0; len].leak();
            let place = buffer.as_mut_ptr().cast();
            // SAFETY: there is room, for ever.
            (unsafe { kakehi_queue_read(self.0, fd, place, len, offset, tag) }, buffer)
        }

        /// Waits; returns how many were reported, and which.
        fn wait(&self, at_least: c_uint, max: c_uint) -> (c_int, Vec<(u64, i64)>) {
            let mut found = vec![Completion { tag: 0, result: 0 }; max as usize];
            // SAFETY: there is room for as many.
            let count = unsafe { kakehi_queue_wait(self.0, at_least, found.as_mut_ptr(), max) };
            found.truncate(usize::try_from(count).unwrap_or(0));
            (count, found.iter().map(|one| (one.tag, one.result)).collect())
        }

        fn destroy(self) -> c_int {
            // SAFETY: it is not used again.
            unsafe { kakehi_queue_destroy(self.0) }
        }
    }

    /// A file in memory.
    fn file() -> File {
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(c"queue".as_ptr(), 0) };
        // SAFETY: a number that was just made, or -1, at which this ends.
        File::from(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn requests_are_reported_in_order_with_their_tags() {
        let file = file();
        let (fd, queue) = (file.as_raw_fd(), Called(kakehi_queue_create(3)));
        assert_eq!(queue.write(fd, b"0123456789", 5, 7), 0);
        let (started, back) = queue.read(fd, 4, 8, 9);
        assert_eq!((started, back), (0, &b"3456"[..]));
        assert_eq!(queue.write(-1, b"x", 0, 8), 0);
        assert_eq!(queue.write(fd, b"x", 0, 1), -1, "as many as fit are not reported");
        assert_eq!(last(), libc::EAGAIN);
        assert_eq!(queue.wait(1, 2), (2, vec![(7, 10), (9, 4)]));
        assert_eq!(queue.wait(4, 4), (1, vec![(8, -i64::from(libc::EBADF))]));
        assert_eq!(queue.wait(1, 4), (0, vec![]));
        assert_eq!(queue.wait(5, 4), (-1, vec![]));
        assert_eq!(last(), libc::EINVAL);
        assert_eq!(queue.destroy(), 0);
        assert_eq!(file.metadata().expect("open").len(), 15);
    }

    #[test]
    fn failure_that_nobody_asked_for_is_told_at_the_end() {
        let file = file();
        let queue = Called(kakehi_queue_create(64));
        for fd in [file.as_raw_fd(), -1, file.as_raw_fd()] {
            assert_eq!(queue.write(fd, b"x", 0, 0), 0);
        }
        assert_eq!(queue.destroy(), -1);
        assert_eq!(last(), libc::EBADF);
    }

    #[test]
    fn depth_is_from_1_to_64() {
        assert!(kakehi_queue_create(0).is_null());
        assert!(kakehi_queue_create(65).is_null());
        assert_eq!(last(), libc::EINVAL);
        let none = Called(ptr::null_mut());
        assert_eq!(none.write(0, b"x", 0, 0), -1);
        assert_eq!(none.wait(0, 0).0, -1);
        assert_eq!(none.destroy(), 0);
    }
}
