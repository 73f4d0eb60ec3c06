//! Calls on several buffers: how long they are, and what came of a part of them.

use rustix::io::{self, Errno};

pub(crate) fn total(data: &[&[u8]]) -> usize {
    data.iter().map(|buffer| buffer.len()).sum()
}

/// The bytes of `data` behind its first `skip` ones, buffer by buffer.
pub(crate) fn behind<'a>(data: &'a [&'a [u8]], mut skip: usize) -> impl Iterator<Item = &'a [u8]> {
    let rests = data.iter().map(move |buffer| {
        let skipped = skip.min(buffer.len());
        skip -= skipped;
        buffer.get(skipped..).unwrap_or_default()
    });
    rests.filter(|rest| !rest.is_empty())
}

/// Returns the result of a call that fails after `done` bytes: those, if there are any.
pub(crate) fn partial(done: usize, errno: Errno) -> io::Result<usize> {
    if done > 0 { Ok(done) } else { Err(errno) }
}
