//! Room for streams that have none: small ones get a chunk of their own length in a *dense* file,
//! one after the other, and long ones a task of a *wide* one.
//!
//! A small stream that outgrows its chunk moves: its bytes are copied to another task, and then a
//! record says that this one has them. Its old chunk is left for another small file.
//!
//! # Order
//!
//! The daemon writes the data of a chunk and its size in the header before its length in the
//! journal, and that before a name. A kill in between leaves a chunk without a name, which the next
//! small file may get, or bytes behind all chunks, which the next daemon cuts off before it writes.

use std::{io, ops::RangeInclusive, rc::Rc};

use executor::lock;
use multifile::Untold;
use rustix::io::Errno;

use super::{
    freeing::GONE_LEN,
    inodes::Live,
    member::Member,
    shape::DENSE_UNIT,
    stream::{Stream, write_all},
    volume::{Changing, Volume},
};

/// A small file gets a chunk that another one has left, if it fills so much of that (one in so
/// many bytes).
const FILLED_PART: u64 = 2;
/// Chunks left by small files that are worth an `fsync` to have them free, at least.
const LEFT_MIN: usize = if cfg!(test) { 8 } else { 1024 };
/// Part of all tasks that they have to be for it.
const LEFT_PART: usize = 8;
/// Bytes that a stream copies at a time when it moves.
const COPY_LEN: usize = 256 << 10;

/// Lengths of chunks that fit a small file.
fn fit_for(len: u64) -> RangeInclusive<u64> {
    len..=len.next_multiple_of(u64::from(DENSE_UNIT)).max(len * FILLED_PART)
}

impl Volume {
    /// A task that nobody has, and without a byte, for a stream of `len` bytes so far.
    pub(super) async fn task_for(&self, len: u64) -> io::Result<u64> {
        if len >= self.shape.small_len {
            return self.free_task().await;
        }
        if let Some(task) = self.left_chunk(len).await? {
            return Ok(task);
        }
        let _taken = self.placing.take().await;
        let member = self.dense_member(len).await?;
        let first = self.place(&member, &[len], false)?;
        self.tell_chunks(&member).await.map(|()| first)
    }

    /// A chunk that another small file has left, told.
    async fn left_chunk(&self, len: u64) -> io::Result<Option<u64>> {
        self.free_chunks().await;
        let Some((chunk_len, task)) = self.take_chunk(len).await? else { return Ok(None) };
        let member = Rc::clone(self.stream(task)?.member());
        let _taken = self.placing.take().await;
        if self.tell_chunks(&member).await.is_err() {
            self.users.set_free([(chunk_len, task)]);
            return Ok(None);
        }
        Ok(Some(task))
    }

    /// Has chunks free that small files have left, if there are many.
    pub(super) async fn free_chunks(&self) {
        let left = self.users.left_count();
        if left >= LEFT_MIN && left * LEFT_PART >= self.streams.borrow().len() {
            self.free_left().await;
        }
    }

    /// Takes a chunk that another small file has left, with its length.
    async fn take_chunk(&self, len: u64) -> io::Result<Option<(u64, u64)>> {
        self.take_free(fit_for(len)).await
    }

    /// Takes chunks that other small files have left for files that come together, as far as there
    /// are any. Some are emptied first only if that frees many: it takes a sync.
    pub(super) async fn take_chunks(&self, all: impl Iterator<Item = (u64, &mut Option<u64>)>) {
        let mut may_empty = self.users.has_stale(LEFT_MIN, GONE_LEN);
        for (len, task) in all {
            let taken = if may_empty {
                self.take_chunk(len).await
            } else {
                Ok(self.users.take_free(fit_for(len)))
            };
            // Those that cannot be emptied are left where they are.
            may_empty &= taken.is_ok();
            *task = taken.ok().flatten().map(|(_, task)| task);
        }
    }

    /// A dense file that has room for one more stream of `len` bytes.
    pub(super) async fn dense_member(&self, len: u64) -> io::Result<Rc<Member>> {
        loop {
            let fits = |member: &&Rc<Member>| {
                member.unplaced.get() > 0 && self.dense_end(member) + len <= self.shape.dense_len
            };
            if let Some(member) = self.streams.borrow().members().iter().rev().find(fits) {
                return Ok(Rc::clone(member));
            }
            let count = self.members().iter().filter(|member| member.is_packed).count();
            let _taken = self.growth.take().await;
            self.add_member(self.shape.next_dense(count)).await?;
        }
    }

    /// Where the last chunk of a dense file ends.
    pub(super) fn dense_end(&self, member: &Member) -> u64 {
        let growing = lock(&self.growing);
        growing.as_ref().and_then(|growing| growing.end_of(member.number, 1).ok()).unwrap_or(0)
    }

    /// Gives chunks to the next tasks of a dense file, and returns the first of these tasks. Call
    /// [`tell_chunks`](Self::tell_chunks) before the journal has a length. The chunks hold zeros,
    /// unless the caller is about to fill them (`soiled`). The caller holds the turn to place.
    pub(super) fn place(&self, member: &Member, lens: &[u64], soiled: bool) -> io::Result<u64> {
        let mut growing = lock(&self.growing);
        let growing = growing.as_mut().ok_or(Errno::IO)?;
        let first = growing.place_next(member.number, lens)?;
        debug_assert!(lens.len() as u64 <= member.unplaced.get(), "the member has these tasks");
        member.unplaced.set(member.unplaced.get().saturating_sub(lens.len() as u64));
        let first_task = member.first_task + u64::from(first);
        let mut streams = self.streams.borrow_mut();
        for (local, task) in (first..).zip(first_task..).take(lens.len()) {
            let place = growing.place(member.number, local)?;
            streams.settle(task, place, soiled).ok_or(Errno::IO)?;
        }
        Ok(first_task)
    }

    /// Writes the sizes of all chunks that the header of a dense file lacks. The caller holds the
    /// turn to place.
    pub(super) async fn tell_chunks(&self, member: &Member) -> io::Result<()> {
        let untold = lock(&self.growing).as_ref().and_then(|growing| growing.untold(member.number));
        let Some(Untold { count, at, bytes }) = untold else { return Ok(()) };
        let said = write_all(self.machine(), &member.data, at, &bytes.into()).await;
        // A file whose header cannot be written gets no more streams.
        said.inspect_err(|_| member.unplaced.set(0))?;
        if let Some(growing) = &mut *lock(&self.growing) {
            growing.told(member.number, count);
        }
        Ok(())
    }

    /// Has the bytes of an open file in a stream with room for `len` bytes, unless another task has
    /// done so meanwhile.
    pub(super) async fn move_stream(
        &self,
        changing: &Changing<'_>,
        live: &Live,
        old: &Rc<Stream>,
        len: u64,
    ) -> io::Result<()> {
        let _taken = self.tasks.take().await;
        let Some(task) = self.node(live)?.task else { return Ok(()) };
        if !Rc::ptr_eq(old, &self.stream(task)?) {
            return Ok(());
        }
        // It may go on growing, in small steps.
        let new_task = self.task_for(len.saturating_mul(2)).await?;
        let held = old.alone().await;
        let moved = async {
            let new = self.stream(new_task)?;
            old.copy_to(&new, self.machine(), COPY_LEN).await?;
            if old.is_synced() {
                new.member().sync(self.machine(), true).await?;
                new.keep_synced();
            }
            self.give_task(changing, live, new_task).await
        };
        let moved = moved.await;
        if moved.is_ok() {
            old.leave(held);
        }
        self.users.set_left([if moved.is_ok() { task } else { new_task }]);
        moved
    }
}
