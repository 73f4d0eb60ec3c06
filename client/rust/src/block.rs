//! The last block of the arena: files for which there is no room for a window or a log read and
//! write through it, one call at a time. That is slower, and always possible.

use rustix::io;
use shm::{
    copy::{copy_in, copy_out},
    staging::APPEND,
};
use wire::{Counter, Reason, Request};

use crate::{
    arena,
    connection::{Connection, Lost},
    file::Link,
    locked::Locked,
    read::partial,
};

/// A part of a transfer, in the block.
struct Part {
    arena_at: u64,
    len: usize,
}

impl Part {
    /// What fits of `len` bytes.
    fn of(arena_at: u64, len: usize) -> Self {
        let most = usize::try_from(arena::BLOCK).unwrap_or(usize::MAX);
        Self { arena_at, len: len.min(most) }
    }

    fn bytes(&self, connection: &'static Connection) -> &'static [core::sync::atomic::AtomicU8] {
        let start = usize::try_from(self.arena_at).unwrap_or(usize::MAX);
        connection.session.arena().get(start..start.saturating_add(self.len)).unwrap_or_default()
    }

    /// Has the daemon execute a request on it; returns the bytes that it moved.
    fn ask(&self, link: Link, request: Request) -> Result<io::Result<usize>, Lost> {
        let moved = link.connection.call(request)?;
        Ok(moved.map(|moved| usize::try_from(moved).unwrap_or(usize::MAX).min(self.len)))
    }
}

impl Locked {
    /// Reads through the daemon, without a window.
    pub(crate) fn read_by_block(
        &self,
        link: Link,
        buffer: &mut [u8],
        from: u64,
    ) -> Result<io::Result<usize>, Lost> {
        let Ok(block) = link.connection.block.lock() else { return Ok(Err(io::Errno::NOMEM)) };
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let part = Part::of(*block, rest.len());
            let (at, arena_at) = (from + done as u64, part.arena_at);
            let len = u32::try_from(part.len).unwrap_or(u32::MAX);
            let request = Request::Read { file: link.slot, at, len, arena_at };
            match part.ask(link, request)? {
                Ok(moved) => {
                    let bytes = part.bytes(link.connection).get(..moved).unwrap_or_default();
                    done += copy_out(rest, bytes);
                    if moved < part.len {
                        break;
                    }
                }
                Err(errno) => return Ok(partial(done, errno)),
            }
        }
        Ok(Ok(done))
    }

    /// Writes `data` to `start`, or to the end of the file for [`APPEND`], through the daemon and
    /// without a log.
    ///
    /// # Errors
    ///
    /// What the file system says. `EIO` when the daemon is lost: what it was about to append may be
    /// in the file.
    pub(crate) fn write_by_block(
        &mut self,
        link: Link,
        data: &[&[u8]],
        start: u64,
    ) -> io::Result<usize> {
        let mut done = 0;
        for piece in data {
            match self.write_piece(link, piece, (start, &mut done)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break,
                Ok(Err(errno)) => return partial(done, errno),
                Err(Lost) => {
                    self.leave(Reason::DaemonLost);
                    return partial(done, io::Errno::IO);
                }
            }
        }
        self.client.count(Counter::BytesWritten, done as u64);
        Ok(done)
    }

    /// Writes one buffer, behind the bytes that are `done`; returns whether all of it was written.
    fn write_piece(
        &self,
        link: Link,
        piece: &[u8],
        (start, done): (u64, &mut usize),
    ) -> Result<io::Result<bool>, Lost> {
        let Ok(block) = link.connection.block.lock() else { return Ok(Err(io::Errno::NOMEM)) };
        let mut rest = piece;
        while !rest.is_empty() {
            let part = Part::of(*block, rest.len());
            copy_in(part.bytes(link.connection), rest.get(..part.len).unwrap_or_default());
            let at = if start == APPEND { 0 } else { start + *done as u64 };
            let len = u32::try_from(part.len).unwrap_or(u32::MAX);
            let request = Request::Write { file: link.slot, at, len, arena_at: part.arena_at };
            match part.ask(link, request)? {
                Ok(moved) => {
                    *done += moved;
                    rest = rest.get(moved..).unwrap_or_default();
                    if moved < part.len {
                        return Ok(Ok(false));
                    }
                }
                Err(errno) => return Ok(Err(errno)),
            }
        }
        Ok(Ok(true))
    }
}
