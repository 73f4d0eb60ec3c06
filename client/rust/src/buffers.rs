//! Calls on several buffers: how long they are, and what came of a part of them.

use rustix::io::{self, Errno};

pub(crate) fn total(data: &[&[u8]]) -> usize {
    data.iter().map(|buffer| buffer.len()).sum()
}

/// Returns the result of a call that fails after `done` bytes: those, if there are any.
pub(crate) fn partial(done: usize, errno: Errno) -> io::Result<usize> {
    if done > 0 { Ok(done) } else { Err(errno) }
}
