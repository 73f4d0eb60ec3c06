//! The streams of a multifile that is being written: where their bytes go, and how long they are.
//!
//! # Order
//!
//! Bytes are in the physical file before the journal says so, and the stream is as long as the
//! journal says: so whatever dies when, what was completed is found again. What a stream does not
//! reach reads as zeros in the physical file: who cuts it makes them so once it is shorter, and
//! before it may be longer again; whoever dies in between leaves that to the next daemon.

use std::{cell::Cell, io, rc::Rc};

use executor::Notify;
use multifile::{
    journal::{Slot, SlotKey},
    layout::Place,
};
use rustix::{fs::FallocateFlags, io::Errno};
use uring::{Buffer, Buffers, Heap};

use super::rest::Chunks;
use crate::{
    storage::{Machine, Storage as _},
    turns::Turns,
};

/// Slots of the journal that are written one by one; more are left to an engine thread.
const SLOTS_MAX: u64 = 8;
/// Zeros that are written at a time where no hole can be made.
const ZEROS_LEN: usize = 1 << 20;

/// The right to do what one task at a time may do.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_taken: Cell<bool>,
    given_back: Notify,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(super) async fn take(&self) -> Taken<'_> {
        self.given_back.until(|| !self.is_taken.get()).await;
        self.is_taken.set(true);
        Taken(self)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        self.0.given_back.notify_all();
    }
}

/// A physical file.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) data: uring::File,
    /// Once there is one: nothing is written before.
    journal: std::cell::RefCell<Option<uring::File>>,
    data_at: u64,
    skip: u64,
    /// Blocks of every task that the file is long enough for.
    rows: Cell<u64>,
    turn: Turn,
}

impl Member {
    pub(super) fn new(data: uring::File, (data_at, skip): (u64, u64), rows: u64) -> Self {
        let (journal, rows, turn) =
            (std::cell::RefCell::default(), Cell::new(rows), Turn::default());
        Self { data, journal, data_at, skip, rows, turn }
    }

    /// Its chunks, with what its streams reach of them.
    pub(super) fn chunks(&self, reaches: impl Iterator<Item = (u64, u64, u64)>) -> Chunks {
        Chunks { data_at: self.data_at, skip: self.skip, tasks: reaches.collect() }
    }

    pub(super) fn begin(&self, journal: uring::File) {
        *self.journal.borrow_mut() = Some(journal);
    }

    /// Makes the file long enough for so many blocks: what nobody writes there is to read as zeros.
    async fn lengthen(&self, machine: &Machine, rows: u64) -> io::Result<()> {
        if self.rows.get() >= rows {
            return Ok(());
        }
        let _taken = self.turn.take().await;
        if self.rows.get() < rows {
            let len = rows.checked_mul(self.skip).and_then(|len| len.checked_add(self.data_at));
            let len = len.filter(|len| i64::try_from(*len).is_ok()).ok_or(Errno::FBIG)?;
            machine.truncate(&self.data, len).await?;
            self.rows.set(rows);
        }
        Ok(())
    }

    pub(super) async fn sync(&self, machine: &Machine, data_only: bool) -> io::Result<()> {
        machine.sync(&self.data, data_only).await?;
        let journal = self.journal.borrow().clone();
        match journal {
            Some(journal) => machine.sync(&journal, data_only).await,
            None => Ok(()),
        }
    }
}

/// One task's bytes.
#[derive(Debug)]
pub(super) struct Stream {
    member: Rc<Member>,
    place: Place,
    /// Of its first block.
    key: SlotKey,
    len: Cell<u64>,
    /// To change the length.
    turn: Turn,
    /// Who writes shares these; who makes bytes zeros has them alone.
    turns: Turns,
    turned: Notify,
}

/// A share of a stream's turns, or all of them, until it is dropped.
struct Held<'a>(&'a Stream);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.turns.leave() {
            self.0.turned.notify_all();
        }
    }
}

/// A stretch of a stream that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Offset in the physical file.
    at: u64,
    len: u64,
}

impl Stream {
    pub(super) fn new(member: Rc<Member>, (place, key): (Place, SlotKey), len: u64) -> Self {
        let (len, turn, turns) = (Cell::new(len), Turn::default(), Turns::default());
        Self { member, place, key, len, turn, turns, turned: Notify::new() }
    }

    /// To write, beside others who do.
    async fn shared(&self) -> Held<'_> {
        self.turned.until(|| self.turns.join()).await;
        Held(self)
    }

    /// To make bytes zeros: a write is before that, or after it, and not between.
    async fn alone(&self) -> Held<'_> {
        let _claim = self.turns.claim();
        self.turned.until(|| self.turns.take()).await;
        Held(self)
    }

    pub(super) fn len(&self) -> u64 {
        self.len.get()
    }

    /// Where its first chunk begins, bytes of its chunks, and its length.
    pub(super) fn reach(&self) -> (u64, u64, u64) {
        (self.place.start_at, self.place.chunk_len, self.len())
    }

    pub(super) fn member(&self) -> &Rc<Member> {
        &self.member
    }

    /// The first stretch of `len` bytes at `at`.
    fn piece(&self, at: u64, len: u64) -> io::Result<Piece> {
        let chunk_len = self.place.chunk_len;
        let (block, skip) =
            at.checked_div(chunk_len).zip(at.checked_rem(chunk_len)).ok_or(Errno::FBIG)?;
        let block = usize::try_from(block).map_err(|_| Errno::FBIG)?;
        let block_at = self.place.block_at(block).map_err(|_| Errno::FBIG)?;
        Ok(Piece { at: block_at + skip, len: len.min(chunk_len - skip) })
    }

    /// Reads at `at`, as far as the stream goes.
    pub(super) async fn read(
        &self,
        machine: &Machine,
        at: u64,
        into: &Buffers,
    ) -> io::Result<usize> {
        let wanted = (into.len() as u64).min(self.len().saturating_sub(at));
        let mut done = 0;
        while done < wanted {
            let piece = self.piece(at + done, wanted - done)?;
            let part = part(into, done, piece.len)?;
            match machine.read(&self.member.data, piece.at, part).await {
                // It was cut meanwhile.
                Ok(0) => break,
                Ok(len) => done += len as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(usize::try_from(done).unwrap_or(usize::MAX))
    }

    /// Writes at `at`; on return the journal says so.
    pub(super) async fn write(
        &self,
        machine: &Machine,
        at: u64,
        from: &Buffers,
    ) -> io::Result<usize> {
        let held = self.shared().await;
        self.write_held(&held, machine, at, from).await
    }

    /// Writes where the stream ends, which nobody else moves meanwhile; on return the journal says
    /// so.
    pub(super) async fn append(&self, machine: &Machine, from: &Buffers) -> io::Result<usize> {
        let held = self.alone().await;
        self.write_held(&held, machine, self.len(), from).await
    }

    async fn write_held(
        &self,
        _: &Held<'_>,
        machine: &Machine,
        at: u64,
        from: &Buffers,
    ) -> io::Result<usize> {
        let wanted = from.len() as u64;
        let end = at.checked_add(wanted).ok_or(Errno::FBIG)?;
        self.lengthen(machine, end).await?;
        let mut done = 0;
        while done < wanted {
            let piece = self.piece(at + done, wanted - done)?;
            let part = part(from, done, piece.len)?;
            match machine.write(&self.member.data, piece.at, part).await {
                Ok(len) if len > 0 => done += len as u64,
                Err(error) if done == 0 => return Err(error),
                _ => break,
            }
        }
        if done > 0 {
            let extended = self.extend(machine, at + done).await;
            if extended.is_err() {
                let _taken = self.turn.take().await;
                // It is not to be seen when the stream gets longer some day.
                self.clear(machine, at.max(self.len()), at + done).await.ok();
            }
            extended?;
        }
        Ok(usize::try_from(done).unwrap_or(usize::MAX))
    }

    async fn lengthen(&self, machine: &Machine, end: u64) -> io::Result<()> {
        if end == 0 {
            return Ok(());
        }
        self.piece(end - 1, 1)?;
        self.member.lengthen(machine, end.div_ceil(self.place.chunk_len)).await
    }

    /// Makes the stream `len` bytes long; what is cut reads as zeros if it grows again.
    pub(super) async fn resize(&self, machine: &Machine, len: u64) -> io::Result<()> {
        if len > self.len() {
            self.lengthen(machine, len).await?;
            return self.extend(machine, len).await;
        }
        let _held = self.alone().await;
        let _taken = self.turn.take().await;
        let old = self.len();
        if len >= old {
            return Ok(());
        }
        self.change_len(machine, (old, len)).await?;
        let cleared = self.clear(machine, len, old).await;
        if cleared.is_err() {
            // What is left there would be seen if it got longer again.
            self.change_len(machine, (len, old)).await?;
        }
        cleared
    }

    /// The stream is at least so long.
    async fn extend(&self, machine: &Machine, len: u64) -> io::Result<()> {
        while self.len() < len {
            let _taken = self.turn.take().await;
            let old = self.len();
            if old < len {
                self.change_len(machine, (old, len)).await?;
            }
        }
        Ok(())
    }

    /// The stream has another length, or where the journal cannot say so the one it had.
    async fn change_len(&self, machine: &Machine, (old, len): (u64, u64)) -> io::Result<()> {
        let between = (old.min(len), old.max(len));
        let told = self.tell(machine, len, between).await;
        match told {
            Ok(()) => self.len.set(len),
            // It may say so of some blocks.
            Err(_) => drop(self.tell(machine, old, between).await),
        }
        told
    }

    /// Has the journal say, of the blocks that bytes `from` to `to` are in, what a stream of `len`
    /// bytes uses of them: the last one first if it got shorter, so that at no time one that is not
    /// full has others behind it, whatever dies.
    async fn tell(&self, machine: &Machine, len: u64, (from, to): (u64, u64)) -> io::Result<()> {
        let journal = self.member.journal.borrow().clone().ok_or(Errno::ROFS)?;
        let (key, chunk_len) = (self.key, self.place.chunk_len);
        let blocks = from / chunk_len..to.div_ceil(chunk_len);
        let (first, count) = (blocks.start, blocks.end - blocks.start);
        let slot = move |step| -> io::Result<(u64, Vec<u8>)> {
            let block = first + if len < to { count - 1 - step } else { step };
            let key = SlotKey { block, ..key };
            let used = len.saturating_sub(block * chunk_len).min(chunk_len);
            Ok((key.at().ok_or(Errno::FBIG)?, Slot::of(used, None).encode(&key)))
        };
        if count <= SLOTS_MAX {
            for step in 0..count {
                let (at, slot) = slot(step)?;
                write_all(machine, &journal, at, &slot.into()).await?;
            }
            return Ok(());
        }
        let write = move || {
            (0..count).try_for_each(|step| {
                let (at, slot) = slot(step)?;
                match rustix::io::retry_on_intr(|| rustix::io::pwrite(journal.fd(), &slot, at))? {
                    len if len == slot.len() => Ok(()),
                    _ => Err(Errno::NOSPC.into()),
                }
            })
        };
        machine.call(write).await
    }

    /// Makes bytes that the stream has read as zeros.
    pub(super) async fn zero(&self, machine: &Machine, from: u64, to: u64) -> io::Result<()> {
        let _held = self.alone().await;
        let _taken = self.turn.take().await;
        self.clear(machine, from, to.min(self.len())).await
    }

    /// Bytes that there are blocks for in the physical file.
    pub(super) fn room(&self) -> u64 {
        self.member.rows.get().saturating_mul(self.place.chunk_len)
    }

    /// Gives back space that was reserved, as far as the stream does not reach it.
    pub(super) async fn give_back(&self, machine: &Machine, from: u64, to: u64) -> io::Result<()> {
        self.clear(machine, from.max(self.len()), to).await
    }

    async fn clear(&self, machine: &Machine, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let piece = self.piece(at, to - at)?;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let data = &self.member.data;
            match machine.allocate(data, hole.bits(), piece.at, piece.len).await {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                    self.write_zeros(machine, piece).await?;
                }
                done => done?,
            }
            at += piece.len;
        }
        Ok(())
    }

    async fn write_zeros(&self, machine: &Machine, piece: Piece) -> io::Result<()> {
        let mut done = 0;
        while done < piece.len {
            let len = usize::try_from(piece.len - done).unwrap_or(ZEROS_LEN).min(ZEROS_LEN);
            write_all(machine, &self.member.data, piece.at + done, &Heap::buffer(len)).await?;
            done += len as u64;
        }
        Ok(())
    }

    /// Has the file system find space for bytes, so that writing them does not fail for want of it.
    pub(super) async fn reserve(&self, machine: &Machine, from: u64, to: u64) -> io::Result<()> {
        let (mut at, end) = (from, to);
        self.lengthen(machine, end).await?;
        while at < end {
            let piece = self.piece(at, end - at)?;
            let keep = FallocateFlags::KEEP_SIZE.bits();
            match machine.allocate(&self.member.data, keep, piece.at, piece.len).await {
                // It cannot be known here.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                    return Ok(());
                }
                done => done?,
            }
            at += piece.len;
        }
        Ok(())
    }
}

fn part(buffers: &Buffers, at: u64, len: u64) -> io::Result<Buffers> {
    let (at, len) = (usize::try_from(at), usize::try_from(len));
    let part = at.ok().zip(len.ok()).and_then(|(at, len)| buffers.part(at, len));
    part.ok_or_else(|| Errno::INVAL.into())
}

async fn write_all(
    machine: &Machine,
    file: &uring::File,
    at: u64,
    bytes: &Buffer,
) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match machine.write(file, at + done as u64, bytes.suffix(done).into()).await? {
            0 => return Err(Errno::NOSPC.into()),
            len => done += len,
        }
    }
    Ok(())
}
