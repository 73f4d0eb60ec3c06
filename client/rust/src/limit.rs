//! A limit of file sizes (`ulimit -f`). The kernel holds the process to it that makes the system
//! call, which is not to be the daemon: files of this node are left to the kernel. Remote ones
//! cannot be, so whatever makes one longer is held to it here.

use core::sync::atomic::Ordering;

use rustix::{
    io::{self, Errno},
    process::{Resource, Signal, getpid, getrlimit, kill_process},
};
use wire::{Reason, SEEK_END};

use crate::{client::Client, locked_file::Locked};

impl Client {
    /// The process may have changed its limit of file sizes: if there is one, what the daemon has
    /// of this node goes back.
    pub fn limited(&'static self) {
        let is_limited = size_limit().is_some();
        self.is_limited.store(is_limited, Ordering::Relaxed);
        if !is_limited || self.active().is_none() {
            return;
        }
        self.each_linked(|file| {
            if !file.state.is_remote() {
                file.detach(Reason::Unsupported);
            }
        });
    }
}

impl Locked {
    /// Detaches the file if its size is limited: the kernel then does what the daemon would.
    pub(crate) fn detach_if_limited(&mut self) {
        if self.state.is_delegated() && size_limit().is_some() {
            self.detach(Reason::Unsupported);
        }
    }

    /// How much may be written of what a program wants to write to a remote file, at the position
    /// when `at` is `None`; `None`: all of it.
    pub(crate) fn limited_room(&mut self, at: Option<u64>, len: usize) -> io::Result<Option<u64>> {
        let is_limited = self.client.is_limited.load(Ordering::Relaxed);
        if !self.state.is_remote() || !is_limited {
            return Ok(None);
        }
        let Some(limit) = size_limit() else { return Ok(None) };
        let from = match at {
            _ if self.access.append => self.seek_in_file(0, SEEK_END)?,
            Some(at) => at,
            None => self.entry.cursor.at(),
        };
        Ok(Some(limit.saturating_sub(from)).filter(|room| *room < len as u64))
    }

    /// True if a remote file would become longer than it may be.
    pub(crate) fn is_beyond_limit(&mut self, len: u64) -> io::Result<bool> {
        let exceeds = self.state.is_remote() && size_limit().is_some_and(|limit| len > limit);
        Ok(exceeds && len > self.seek_in_file(0, SEEK_END)?)
    }
}

pub(crate) fn size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Raises the signal of a program that exceeds the limit, which it may survive, and returns the
/// error. Nothing is locked.
pub(crate) fn exceeded() -> Errno {
    match kill_process(getpid(), Signal::XFSZ) {
        Ok(()) | Err(_) => Errno::FBIG,
    }
}

/// The buffers of `data` that fit into `room` bytes, or else the part of the first that does, of
/// those that are not empty.
pub(crate) fn fitting<'a>(data: &'a [&'a [u8]], room: u64) -> (&'a [&'a [u8]], &'a [u8]) {
    let empty = data.iter().take_while(|buffer| buffer.is_empty()).count();
    let data = data.get(empty..).unwrap_or_default();
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut len = 0_usize;
    let fits = |buffer: &&&[u8]| {
        len = len.saturating_add(buffer.len());
        len <= room
    };
    let whole = data.iter().take_while(fits).count();
    let part = data.first().and_then(|buffer| buffer.get(..room)).unwrap_or_default();
    (data.get(..whole).unwrap_or_default(), part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_fit_whole_or_the_first_in_part() {
        let data: [&[u8]; 3] = [b"one", b"", b"three"];
        assert_eq!(fitting(&data, 2), (&data[..0], &b"on"[..]));
        assert_eq!(fitting(&data, 3).0, &data[..2]);
        assert_eq!(fitting(&data, 7).0, &data[..2]);
        assert_eq!(fitting(&data, 8).0, &data[..]);
        let data: [&[u8]; 2] = [b"", b"three"];
        assert_eq!(fitting(&data, 2), (&data[..0], &b"th"[..]));
    }
}
