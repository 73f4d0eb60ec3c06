//! Remote files that a pipe stands for, in the process that has opened them.
//!
//! At a fork, and before another program is started, an inherited file becomes a pipe in both
//! processes: so the child has it from the beginning, whatever its parent does meanwhile, as it has
//! the file natively. The daemon keeps the parent's file beside the pipe. What no pipe can do the
//! parent asks for by requests: to read, to write in places, to tell the status. Before each,
//! the daemon takes in what is in the pipe. The one position is the pipe's.

use rustix::{
    fd::RawFd,
    io::{self, Errno},
};
use wire::{Reason, Request, SEEK_CUR, STAND_IN};

use crate::{client::Client, file::Link, locked::Locked, table::FileId};

impl Client {
    /// Reads what the kernel has refused to read. `None`: it is no file for which a pipe stands, or
    /// this thread was interrupted while it had it.
    pub(crate) fn read_refused(
        &'static self,
        fd: RawFd,
        id: FileId,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let mut file = self.locked(fd, id)?;
        if file.is_placeholder() {
            // Another thread's child is made.
            drop(file);
            return Some(self.read_staged(fd, id, buffers, at));
        }
        file.read_beside_pipe(buffers, at)
    }
}

impl Locked {
    /// Reads a file that a pipe stands for; `None`: it is none, or another process has opened it.
    pub(crate) fn read_beside_pipe(
        &mut self,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let link = self.link.filter(|_| self.is_piped())?;
        let read = match at {
            Some(at) => self.read_delegated(buffers, at),
            None if self.access.readable => self.read_at_pipe(link, buffers),
            None => Err(Errno::BADF),
        };
        Some(if self.is_gone() { Err(Errno::IO) } else { read })
    }

    fn read_at_pipe(&mut self, link: Link, buffers: &mut [&mut [u8]]) -> io::Result<usize> {
        let from = seek_pipe(link, 0, SEEK_CUR)?;
        let len = self.read_delegated(buffers, from)?;
        seek_pipe(link, i64::try_from(len).map_err(|_| Errno::OVERFLOW)?, SEEK_CUR)?;
        Ok(len)
    }

    pub(crate) fn is_left_for_child(&self) -> bool {
        matches!(self.left, Some(Reason::Forked | Reason::PassedOn))
    }
}

/// Moves the position of who has the pipe.
fn seek_pipe(link: Link, offset: i64, whence: u32) -> io::Result<u64> {
    let request = Request::SetPosition { file: link.slot, offset, whence: whence + STAND_IN };
    match link.connection.call(request) {
        // The daemon has given the pipe up: what was in it is lost, and told of.
        Ok(Err(Errno::SPIPE)) | Err(_) => Err(Errno::IO),
        Ok(sought) => sought,
    }
}
