//! The first block of the arena: files for which there is no room for a window or a log read and
//! write through it, one call at a time. That is slower, and always possible.

use rustix::io;
use shm::{
    copy::{copy_in, copy_out},
    staging::{APPEND, doubt::Record},
};
use wire::{Counter, Reason, Request};

use crate::{
    arena,
    buffers::{behind, partial, total},
    connection::{Connection, Lost},
    locked_file::Locked,
    slot::Link,
    staging::append,
    write_kernel::write_rest,
};

/// A part of a transfer, in the block.
struct Part {
    arena_at: u64,
    len: usize,
}

impl Part {
    /// Returns the part of `len` bytes that fits.
    fn of(arena_at: u64, len: usize) -> Self {
        let most = usize::try_from(arena::BLOCK).unwrap_or(usize::MAX);
        Self { arena_at, len: len.min(most) }
    }

    fn bytes(
        &self,
        connection: &'static Connection,
    ) -> Result<&'static [core::sync::atomic::AtomicU8], Lost> {
        let start = usize::try_from(self.arena_at).map_err(|_| Lost)?;
        let bytes = connection.session.arena().get(start..start.saturating_add(self.len));
        Ok(invariant!(some bytes, "the block is in the arena", else return Err(Lost)))
    }

    /// Fills it with what stands in `data` behind the first `skip` bytes.
    fn gather(
        &self,
        connection: &'static Connection,
        data: &[&[u8]],
        skip: usize,
    ) -> Result<(), Lost> {
        let mut room = self.bytes(connection)?;
        for rest in behind(data, skip) {
            let len = rest.len().min(room.len());
            copy_in(room, rest.get(..len).unwrap_or_default());
            room = room.get(len..).unwrap_or_default();
        }
        invariant!(room.is_empty(), "a part is as long as its bytes", else return Err(Lost));
        Ok(())
    }

    /// Has the daemon execute a request on it; returns the bytes that it moved.
    fn ask(&self, link: Link, request: Request) -> Result<io::Result<usize>, Lost> {
        let moved = link.connection.call(request)?;
        Ok(moved.map(|moved| usize::try_from(moved).unwrap_or(usize::MAX).min(self.len)))
    }
}

impl Locked {
    /// The way to the block, for who cannot have a log for this reason; `None`: the kernel writes.
    pub(crate) fn link_to_block(&self, reason: Reason) -> Option<Link> {
        let link = self.state.daemons_link().filter(|_| reason == Reason::Credit)?;
        // A handler does not wait for what its own thread holds.
        Some(link).filter(|link| !link.connection.block.is_mine())
    }

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
                    let bytes = part.bytes(link.connection)?.get(..moved).unwrap_or_default();
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
    /// without a log. What is appended others see in one piece, up to [`arena::BLOCK`] bytes.
    ///
    /// # Errors
    ///
    /// What the file system says. `EIO` when the daemon is lost, of a remote file and of what was
    /// about to be appended if it cannot be told whether it is there.
    pub(crate) fn write_by_block(
        &mut self,
        link: Link,
        data: &[&[u8]],
        start: u64,
    ) -> io::Result<usize> {
        let mut done = 0;
        let moved = self.write_parts(link, data, start, &mut done);
        self.client.count(Counter::BytesWritten, done as u64);
        // Read before the slot is another file's.
        let begun = link.shared.last_append().filter(|_| start == APPEND);
        match moved {
            Ok(moved) => {
                if start == APPEND && done > 0 {
                    self.settle_position();
                }
                moved.map_or_else(|errno| partial(done, errno), |()| Ok(done))
            }
            Err(Lost) => {
                self.detach(Reason::DaemonLost);
                if self.state.is_remote() || self.state.is_lost() {
                    return partial(done, io::Errno::IO);
                }
                // Its last write may be under way.
                link.connection.await_exit();
                if let Some((before, len)) = begun {
                    match self.appended(data, done, before, len) {
                        Ok(len) => done += len,
                        Err(_) => return partial(done, io::Errno::IO),
                    }
                }
                let wrote = write_rest(self.borrow(), data, start, done)?;
                self.client.count_written(Reason::DaemonLost, wrote - done);
                if start == APPEND {
                    self.settle_position();
                }
                Ok(wrote)
            }
        }
    }

    /// How much of `data` behind the first `skip` bytes a daemon has appended that died over `len`
    /// bytes of it, when the file was `before` bytes long.
    fn appended(&self, data: &[&[u8]], skip: usize, before: u64, len: u64) -> io::Result<usize> {
        let part = total(data).saturating_sub(skip).min(usize::try_from(len).unwrap_or(usize::MAX));
        let mut record = |at: u64, into: &mut [u8]| {
            let at = usize::try_from(at).map_err(|_| io::Errno::IO)?;
            let most = into.len().min(part - at.min(part));
            Ok(copy_from(data, skip + at, into.get_mut(..most).unwrap_or_default()))
        };
        // A block begins at a page.
        let record = Record { read: &mut record, len: part as u64, page_at: Some(0) };
        let done = append::landed(self.borrow(), before, record)?;
        Ok(usize::try_from(done).unwrap_or(usize::MAX).min(part))
    }

    /// Writes as many blocks as it takes, and counts the bytes that are `done`.
    fn write_parts(
        &self,
        link: Link,
        data: &[&[u8]],
        start: u64,
        done: &mut usize,
    ) -> Result<io::Result<()>, Lost> {
        let Ok(block) = link.connection.block.lock() else { return Ok(Err(io::Errno::NOMEM)) };
        let len = data.iter().map(|buffer| buffer.len()).sum();
        while *done < len {
            let part = Part::of(*block, len - *done);
            part.gather(link.connection, data, *done)?;
            let at = if start == APPEND { 0 } else { start + *done as u64 };
            // The daemon records what it begins to append.
            link.shared.no_write_begins();
            let part_len = u32::try_from(part.len).unwrap_or(u32::MAX);
            let request =
                Request::Write { file: link.slot, at, len: part_len, arena_at: part.arena_at };
            match part.ask(link, request)? {
                Ok(moved) => {
                    *done += moved;
                    if moved < part.len {
                        break;
                    }
                }
                Err(errno) => return Ok(Err(errno)),
            }
        }
        Ok(Ok(()))
    }
}

/// Copies what stands in `data` behind the first `skip` bytes; returns how many fit.
fn copy_from(data: &[&[u8]], skip: usize, into: &mut [u8]) -> usize {
    let bytes = into.iter_mut().zip(behind(data, skip).flatten());
    bytes.map(|(to, from)| *to = *from).count()
}
