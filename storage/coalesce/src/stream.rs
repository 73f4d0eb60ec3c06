//! The streams of a multifile that is being written: where their bytes go, and how long they are.
//!
//! # Order
//!
//! Bytes are in the physical file before the journal says so, and the stream is as long as the
//! journal says: so whatever dies when, what was completed is found again. Of writes that lengthen
//! it together each waits for those before it ([`Extensions`]). What a stream does not reach reads
//! as zeros in the physical file: who cuts it makes them so once it is shorter, and before it may
//! be longer again; whoever dies in between leaves that to the next daemon.

mod space;

use std::{
    cell::{Cell, OnceCell},
    io,
    rc::Rc,
};

use executor::Notify;
use multifile::{
    journal::{Slot, SlotBytes, SlotKey},
    layout::ChunkPlace,
};
use rustix::io::Errno;
use storage::{Machine, Storage as _, turns::Turns};
use uring::{Buffer, Buffers, Heap};

pub(super) use self::space::{punch, zero};
pub(super) use super::turn::Turn;
use super::{
    extensions::{Extension, Extensions},
    member::Member,
    piece::Piece,
    streams::Reach,
};

/// Slots of the journal that are written one by one; more are left to an engine thread.
const SLOTS_MAX: u64 = 8;
/// The same of slots that stand next to each other, which are one write.
const SLOTS_MAX_BESIDE: u64 = 4096;

/// One task's bytes.
#[derive(Debug)]
pub(super) struct Stream {
    member: Rc<Member>,
    place: Cell<ChunkPlace>,
    /// Of its first block.
    key: SlotKey,
    len: Cell<u64>,
    /// Where each of its blocks ends in it, if these are not full.
    ends: OnceCell<Vec<u64>>,
    /// The longest that it gets where it is.
    bound: Cell<u64>,
    /// True if the rest of its chunk may hold anything: it is zeroed before the stream grows.
    is_soiled: Cell<bool>,
    /// Another stream has the bytes of its file now.
    is_moved: Cell<bool>,
    /// Bytes of it may be on the disk that are to stay there: synced, or older than this daemon.
    is_synced: Cell<bool>,
    /// To change the length.
    turn: Turn,
    /// Shared by writes; exclusive to zero bytes.
    turns: Turns,
    turned: Notify,
    extensions: Extensions,
}

/// A share of a stream's turns, or all of them, until it is dropped.
pub(super) struct Held<'a>(&'a Stream);

/// A write that has begun. Of those that make the stream longer the first is done first.
pub(super) struct Entered<'a> {
    held: Held<'a>,
    extension: Option<Extension<'a>>,
    at: u64,
    from: &'a Buffers,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.turns.leave() {
            self.0.turned.notify_all();
        }
    }
}

impl Entered<'_> {
    /// Writes the bytes that it has begun with; on return the journal says so.
    pub(super) async fn write(self, machine: &Machine) -> io::Result<usize> {
        let Self { held: Held(stream), extension, at, from } = &self;
        let wanted = from.len() as u64;
        debug_assert!(!stream.turns.is_free(), "it holds the stream");
        stream.lengthen(machine, at + wanted).await?;
        let mut done = 0;
        while done < wanted {
            let piece = stream.piece(at + done, wanted - done)?;
            let part = part(from, done, piece.len)?;
            match machine.write(&stream.member.data, piece.at, part).await {
                Ok(len) if len > 0 => done += len as u64,
                Err(error) if done == 0 => return Err(error),
                _ => break,
            }
        }
        if done > 0 {
            if let Some(extension) = extension {
                extension.turn().await;
            }
            let extended = stream.extend(machine, at + done).await;
            if extended.is_err() {
                let _taken = stream.turn.take().await;
                // It is not to be seen when the stream gets longer some day.
                stream.clear(machine, (*at).max(stream.len()), at + done).await.ok();
            }
            extended?;
        }
        Ok(usize::try_from(done).unwrap_or(usize::MAX))
    }
}

impl Stream {
    pub(super) fn new(member: Rc<Member>, place: ChunkPlace, key: SlotKey, len: u64) -> Self {
        let bound = if member.is_packed { place.chunk_len } else { u64::MAX };
        let is_soiled = Cell::new(member.is_packed);
        let (place, bound, len) = (Cell::new(place), Cell::new(bound), Cell::new(len));
        let (turn, turns, turned) = (Turn::default(), Turns::default(), Notify::new());
        let (is_moved, is_synced) = (Cell::new(false), Cell::new(false));
        let (ends, extensions) = (OnceCell::new(), Extensions::default());
        Self {
            member,
            place,
            key,
            len,
            ends,
            bound,
            is_soiled,
            is_moved,
            is_synced,
            turn,
            turns,
            turned,
            extensions,
        }
    }

    /// It gets no longer than its chunk is: further blocks would be far from each other, and few
    /// bytes each.
    pub(super) fn keep_within_chunk(&self) {
        self.bound.set(self.place.get().chunk_len);
    }

    /// It has got a chunk, which holds zeros unless it `is_soiled`.
    pub(super) fn settle(&self, place: ChunkPlace, is_soiled: bool) {
        debug_assert!(self.member.is_packed && self.len() == 0, "chunks are given to new streams");
        self.place.set(place);
        self.keep_within_chunk();
        self.is_soiled.set(is_soiled);
    }

    /// True if it can be so long where it is, and is its file's.
    pub(super) fn has_room(&self, len: u64) -> bool {
        len <= self.bound.get() && !self.is_moved.get()
    }

    /// Another stream has the bytes of its file from now on: who waits to write here writes there.
    pub(super) fn leave(&self, _: Held<'_>) {
        debug_assert!(!self.is_moved.get(), "a stream moves once");
        self.is_moved.set(true);
    }

    /// It is nobody's, and so the next one's.
    pub(super) fn hand_on(&self) {
        self.is_moved.set(false);
        self.is_synced.set(false);
    }

    /// Before it is synced: from here on who moves it syncs the copy first. False: it has moved.
    pub(super) async fn begin_sync(&self) -> bool {
        // One that is being moved may not know yet.
        let _held = self.shared().await;
        self.is_synced.set(true);
        !self.is_moved.get()
    }

    /// It is to be on the disk wherever it is.
    pub(super) fn keep_synced(&self) {
        self.is_synced.set(true);
    }

    pub(super) fn is_synced(&self) -> bool {
        self.is_synced.get()
    }

    /// To write, beside others who do.
    async fn shared(&self) -> Held<'_> {
        self.turned.until(|| self.turns.join()).await;
        Held(self)
    }

    /// To make bytes zeros: a write is before that, or after it, and not between.
    pub(super) async fn alone(&self) -> Held<'_> {
        let _claim = self.turns.claim();
        self.turned.until(|| self.turns.take()).await;
        Held(self)
    }

    pub(super) fn len(&self) -> u64 {
        self.len.get()
    }

    /// Its place and its length.
    pub(super) fn reach(&self) -> Reach {
        let ChunkPlace { start_at, chunk_len, .. } = self.place.get();
        (start_at, chunk_len, self.len())
    }

    pub(super) fn member(&self) -> &Rc<Member> {
        &self.member
    }

    /// Where it begins in the physical file, if all of it follows there.
    pub(super) fn whole_at(&self) -> Option<u64> {
        let all = self.piece(0, self.len()).ok()?;
        Some(all.at).filter(|_| all.len == self.len())
    }

    /// The first stretch of `len` bytes at `at`.
    fn piece(&self, at: u64, len: u64) -> io::Result<Piece> {
        let piece = match self.ends.get() {
            None => Piece::in_full_blocks(self.place.get(), at, len),
            Some(ends) => Piece::by_ends(self.place.get(), ends, at, len),
        };
        Ok(piece.ok_or(Errno::FBIG)?)
    }

    /// Its blocks are not full: it ends there in each of them.
    pub(super) fn ends_at(&self, ends: Vec<u64>) {
        debug_assert_eq!(ends.last().copied().unwrap_or(0), self.len(), "its length");
        self.ends.set(ends).ok(); // Said once, when it is opened.
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

    /// Writes at `at`; on return the journal says so. `None`: it has [no room](Self::has_room).
    pub(super) async fn write(
        &self,
        machine: &Machine,
        at: u64,
        from: &Buffers,
    ) -> io::Result<Option<usize>> {
        let Some(entered) = self.enter(machine, at, from).await? else { return Ok(None) };
        entered.write(machine).await.map(Some)
    }

    /// Begins to write at `at`, behind those who have begun before. `None`: it has
    /// [no room](Self::has_room).
    pub(super) async fn enter<'a>(
        &'a self,
        machine: &Machine,
        at: u64,
        from: &'a Buffers,
    ) -> io::Result<Option<Entered<'a>>> {
        let end = at.checked_add(from.len() as u64).ok_or(Errno::FBIG)?;
        if self.is_soiled.get() && end > self.len() {
            let held = self.alone().await;
            if self.has_room(end) {
                self.clean(&held, machine).await?;
            }
        }
        let held = self.shared().await;
        if !self.has_room(end) {
            return Ok(None);
        }
        let extension = (end > self.len()).then(|| self.extensions.begin(at));
        Ok(Some(Entered { held, extension, at, from }))
    }

    /// Begins to write where the stream ends, which nobody else moves meanwhile. `None`: it has
    /// [no room](Self::has_room).
    pub(super) async fn enter_at_end<'a>(
        &'a self,
        machine: &Machine,
        from: &'a Buffers,
    ) -> io::Result<Option<Entered<'a>>> {
        let held = self.alone().await;
        let at = self.len();
        let end = at.checked_add(from.len() as u64).ok_or(Errno::FBIG)?;
        if !self.has_room(end) {
            return Ok(None);
        }
        self.clean(&held, machine).await?;
        Ok(Some(Entered { held, extension: None, at, from }))
    }

    /// Makes zeros of what it does not reach of its chunk.
    async fn clean(&self, _: &Held<'_>, machine: &Machine) -> io::Result<()> {
        if self.is_soiled.get() {
            self.clear(machine, self.len(), self.place.get().chunk_len).await?;
            self.is_soiled.set(false);
        }
        Ok(())
    }

    /// Has the physical file long enough for so many bytes.
    async fn lengthen(&self, machine: &Machine, end: u64) -> io::Result<()> {
        if end == 0 || self.member.is_packed {
            return Ok(());
        }
        self.piece(end - 1, 1)?;
        self.member.lengthen(machine, end.div_ceil(self.place.get().chunk_len)).await
    }

    /// Makes the stream `len` bytes long; what is cut reads as zeros if it grows again. False: it
    /// has [no room](Self::has_room).
    pub(super) async fn resize(&self, machine: &Machine, len: u64) -> io::Result<bool> {
        if len > self.len() && self.bound.get() == u64::MAX {
            self.lengthen(machine, len).await?;
            return self.extend(machine, len).await.map(|()| true);
        }
        let held = self.alone().await;
        if !self.has_room(len) {
            return Ok(false);
        }
        if len > self.len() {
            self.clean(&held, machine).await?;
            self.lengthen(machine, len).await?;
            if self.member.is_packed {
                // Others lengthen the file meanwhile, which must not cut what they write.
                let last = self.piece(len - 1, 1)?;
                write_all(machine, &self.member.data, last.at, &vec![0].into()).await?;
            }
            return self.extend(machine, len).await.map(|()| true);
        }
        let _taken = self.turn.take().await;
        let old = self.len();
        if len >= old {
            return Ok(true);
        }
        self.change_len(machine, old, len).await?;
        let cleared = self.clear(machine, len, old).await;
        if cleared.is_err() {
            // What is left there would be seen if it got longer again.
            self.change_len(machine, len, old).await?;
        }
        cleared.map(|()| true)
    }

    /// The stream is at least so long.
    async fn extend(&self, machine: &Machine, len: u64) -> io::Result<()> {
        while self.len() < len {
            let _taken = self.turn.take().await;
            let old = self.len();
            if old < len {
                self.change_len(machine, old, len).await?;
            }
        }
        Ok(())
    }

    /// The stream has another length, or where the journal cannot say so the one it had.
    async fn change_len(&self, machine: &Machine, old: u64, len: u64) -> io::Result<()> {
        debug_assert_eq!(self.len(), old, "one call changes the length");
        let (from, to) = (old.min(len), old.max(len));
        let told = self.tell(machine, len, from, to).await;
        match told {
            Ok(()) => self.len.set(len),
            // It may say so of some blocks.
            Err(_) => drop(self.tell(machine, old, from, to).await),
        }
        told
    }

    /// Has the journal say, of the blocks that bytes `from` to `to` are in, what a stream of `len`
    /// bytes uses of them: the last one first if it got shorter, so that at no time one that is not
    /// full has others behind it, whatever dies.
    async fn tell(&self, machine: &Machine, len: u64, from: u64, to: u64) -> io::Result<()> {
        let journal = self.member.journal()?;
        let (key, chunk_len) = (self.key, self.place.get().chunk_len);
        debug_assert!(from <= to);
        invariant!(chunk_len > 0, "a stream with bytes has a chunk",
            else return Err(Errno::FBIG.into()));
        let blocks = from / chunk_len..to.div_ceil(chunk_len);
        let (first, count) = (blocks.start, blocks.end - blocks.start);
        let slot = move |step| -> io::Result<(u64, SlotBytes)> {
            let block = first + if len < to { count - 1 - step } else { step };
            let key = SlotKey { block, ..key };
            let used = len.saturating_sub(block * chunk_len).min(chunk_len);
            Ok((key.at().ok_or(Errno::FBIG)?, Slot::of(used, None).encode(&key)))
        };
        if key.task_count == 1 && len >= to && count <= SLOTS_MAX_BESIDE {
            let slots = (0..count).map(|step| slot(step).map(|(_, slot)| slot));
            let slots = slots.collect::<io::Result<Vec<_>>>()?.concat();
            return write_all(machine, &journal, slot(0)?.0, &slots.into()).await;
        }
        if count <= SLOTS_MAX {
            for step in 0..count {
                let (at, slot) = slot(step)?;
                write_all(machine, &journal, at, &slot.to_vec().into()).await?;
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

    /// Makes bytes that the stream has read as zeros. False: it is not its file's any more.
    pub(super) async fn zero(&self, machine: &Machine, from: u64, to: u64) -> io::Result<bool> {
        let _held = self.alone().await;
        if self.is_moved.get() {
            return Ok(false);
        }
        let _taken = self.turn.take().await;
        let to = to.min(self.len());
        if from < to {
            self.clear(machine, from, to).await?;
        }
        Ok(true)
    }

    /// Bytes that there are blocks for in the physical file.
    pub(super) fn room(&self) -> u64 {
        self.member.rows().saturating_mul(self.place.get().chunk_len)
    }

    /// Writes its bytes to another stream, which is empty, so many at a time.
    pub(super) async fn copy_to(
        &self,
        other: &Self,
        machine: &Machine,
        step: usize,
    ) -> io::Result<()> {
        let buffer = Heap::buffer(step);
        let mut at = 0;
        while at < self.len() {
            let len = self.read(machine, at, &buffer.clone().into()).await?;
            let bytes = buffer.prefix(len).into();
            match other.write(machine, at, &bytes).await? {
                Some(done @ 1..) => at += done as u64,
                _ => return Err(Errno::NOSPC.into()),
            }
        }
        Ok(())
    }

    /// Sets the length after its bytes were written to its chunk, before the journal has it.
    pub(super) fn extend_to(&self, len: u64) {
        debug_assert!(len <= self.place.get().chunk_len, "a kept file is in one chunk");
        self.len.set(len);
    }
}

fn part(buffers: &Buffers, at: u64, len: u64) -> io::Result<Buffers> {
    let (at, len) = (usize::try_from(at), usize::try_from(len));
    let part = at.ok().zip(len.ok()).and_then(|(at, len)| buffers.part(at, len));
    part.ok_or_else(|| Errno::INVAL.into())
}

pub(super) async fn write_all(
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
