//! Received bytes that stay in the kernel: in a pipe, from which they are written to a file.
//!
//! Bytes received into memory and written from there are copied twice. A pipe takes the pages that
//! a socket has, and a file in the page cache copies from those: once. To whoever wants them as
//! bytes they are ordinary memory, into which they are read at that moment.
//!
//! # Order
//!
//! A pipe gives its bytes once, from the first on. They are written in this order, each once, or
//! read as a whole before any is written: what a write has taken is nobody's any more.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU8},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_setfl},
    io::{Errno, retry_on_intr},
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};

use crate::memory::{Buffer, Heap, InPipe, Memory};

/// Length below which receiving into memory is as fast.
pub(super) const PIPED_LEN_MIN: usize = 32 << 10;
/// Pieces of a pipe, in bytes as the kernel counts them: one for each page of a packet from a
/// network, of which the longest payload has some more than pages.
const PIPE_LEN: usize = 512 << 10;
/// Pipes of all connections that share these. Who finds none receives into memory.
const PIPES_MAX: usize = 32;

/// Pipes for what connections receive. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pipes(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    empty: Vec<Pipe>,
    /// Pipes there are, with those that are in use.
    count: usize,
}

#[derive(Debug)]
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipes {
    /// An empty pipe; `None` when as many as may be are in use, or no more descriptors are to be
    /// had.
    pub(super) fn take(&self) -> Option<Filling> {
        let mut kept = lock(&self.0);
        let pipe = match kept.empty.pop() {
            Some(pipe) => pipe,
            None if kept.count == PIPES_MAX => return None,
            None => {
                let pipe = Pipe::new().ok()?;
                kept.count += 1;
                pipe
            }
        };
        drop(kept);
        Some(Filling { pipe: Some(pipe), len: 0, pipes: self.clone() })
    }

    /// Takes back a pipe; one that is not empty is closed.
    fn give_back(&self, pipe: Option<Pipe>) {
        let mut kept = lock(&self.0);
        match pipe {
            Some(pipe) => kept.empty.push(pipe),
            None => kept.count -= 1,
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only what is taken from a socket may be waited for; whoever reads knows what is there.
        fcntl_setfl(&to, OFlags::NONBLOCK)?;
        // A user who has many pipes gets short ones, into which less goes at a time.
        fcntl_setpipe_size(&to, PIPE_LEN).ok();
        Ok(Self { from, to })
    }

    fn is_full(&self) -> bool {
        let mut end = [PollFd::new(&self.to, PollFlags::OUT)];
        poll(&mut end, Some(&Timespec::default())).is_ok_and(|count| count == 0)
    }
}

/// Data from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// So many bytes; 0 at the end of the stream.
    Bytes(usize),
    /// The pipe has no piece left.
    Full,
}

/// A pipe into which a body is received.
#[derive(Debug)]
pub(super) struct Filling {
    /// Until it is given away.
    pipe: Option<Pipe>,
    len: usize,
    pipes: Pipes,
}

impl Filling {
    /// Takes at most `len` bytes from a socket. Never blocks.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: none have come. `InvalidInput`: such a socket gives none this way.
    pub(super) fn take(&mut self, socket: BorrowedFd<'_>, len: usize) -> io::Result<Taken> {
        let Some(pipe) = &self.pipe else { return Ok(Taken::Full) };
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match retry_on_intr(|| splice(socket, None, &pipe.to, None, len, flags)) {
            Ok(len) => {
                self.len += len;
                Ok(Taken::Bytes(len))
            }
            Err(Errno::AGAIN) if pipe.is_full() => Ok(Taken::Full),
            Err(why) => Err(why.into()),
        }
    }

    /// Bytes that it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads its data into memory.
    pub(super) fn into_buffer(mut self) -> Buffer {
        let state = Mutex::new(State { pipe: self.pipe.take(), taken: 0 });
        let (len, pipes, read) = (self.len, self.pipes.clone(), OnceLock::new());
        Buffer::of_piped(Arc::new(Piped { len, state, read, pipes }), len)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pipes.give_back((self.len == 0).then_some(pipe));
        }
    }
}

/// A body that is in a pipe, until somebody wants to see it.
pub struct Piped {
    len: usize,
    state: Mutex<State>,
    read: OnceLock<Heap>,
    pipes: Pipes,
}

struct State {
    pipe: Option<Pipe>,
    /// Bytes that it has given.
    taken: usize,
}

impl Piped {
    /// Reads what no write has taken, to where it belongs in memory.
    fn read(&self) -> io::Result<Heap> {
        let (heap, mut state) = (Heap::new(self.len), lock(&self.state));
        while state.taken < self.len {
            let rest = heap.bytes().get(state.taken..).unwrap_or_default();
            let (start, len) = (rest.as_ptr().cast_mut().cast(), rest.len());
            let Some(pipe) = &state.pipe else { return Err(Errno::BADF.into()) };
            // SAFETY: so many bytes are there, which may change under shared references.
            let len = unsafe { libc::read(pipe.from.as_raw_fd(), start, len) };
            match usize::try_from(len) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => state.taken += len,
                Err(_) => {
                    let why = io::Error::last_os_error();
                    if why.kind() != io::ErrorKind::Interrupted {
                        return Err(why);
                    }
                }
            }
        }
        Ok(heap)
    }
}

impl Memory for Piped {
    fn bytes(&self) -> &[AtomicU8] {
        self.read.get_or_init(|| self.read().expect("a pipe gives what was put in it")).bytes()
    }

    fn piped(&self) -> Option<&dyn InPipe> {
        Some(self)
    }
}

impl InPipe for Piped {
    fn write(
        &self,
        file: &OwnedFd,
        (from, len): (usize, usize),
        at: u64,
    ) -> Option<io::Result<usize>> {
        let mut state = lock(&self.state);
        // Once it was read, all is taken.
        let (pipe, mut to) = (state.pipe.as_ref().filter(|_| state.taken == from)?, at);
        let written =
            retry_on_intr(|| splice(&pipe.from, None, file, Some(&mut to), len, SpliceFlags::MOVE));
        match written {
            Ok(0) | Err(Errno::INVAL) => None,
            Ok(len) => {
                state.taken += len;
                Some(Ok(len))
            }
            Err(why) => Some(Err(why.into())),
        }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.pipes.give_back(state.pipe.take().filter(|_| state.taken == self.len));
    }
}

impl fmt::Debug for Piped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piped").field("len", &self.len).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
