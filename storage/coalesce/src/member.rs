//! A physical file of a multifile that is being written.

use std::{
    cell::{Cell, RefCell},
    io,
};

use multifile::{journal::SlotKey, layout::ChunkPlace};
use rustix::io::Errno;
use storage::{Machine, Storage as _};

use super::{clear_tails::Chunks, stream::Turn};

/// Bytes that the one of the names has chunks for at least, once it has one.
const NAMES_LEN_MIN: u64 = 1 << 20;

/// A physical file.
#[derive(Debug)]
pub(super) struct Member {
    /// In the set.
    pub(super) number: u32,
    pub(super) data: uring::File,
    /// Of its first task's first block.
    key: SlotKey,
    /// Once there is one: nothing is written before.
    journal: RefCell<Option<uring::File>>,
    data_at: u64,
    skip: u64,
    /// Blocks of every task that the file is long enough for.
    rows: Cell<u64>,
    turn: Turn,
    /// The first of its tasks, counted over the set.
    pub(super) first_task: u64,
    /// Each of its streams is in one short chunk, or has none.
    pub(super) is_packed: bool,
    /// Tasks that get a chunk when they get a stream: the last ones.
    pub(super) unplaced: Cell<u64>,
    /// Tasks at the front that had a chunk when it was opened.
    found_count: u64,
    /// It was on the disk when the set counted it, or this daemon has synced it since.
    pub(super) is_durable: Cell<bool>,
}

impl Member {
    /// A physical file with so many blocks of every task, those of the first one there; nothing
    /// of it need be on the disk.
    pub(super) fn new(
        number: u32,
        first_task: u64,
        key: SlotKey,
        data: uring::File,
        first: ChunkPlace,
        rows: u64,
    ) -> Self {
        Self {
            number,
            data,
            key,
            journal: RefCell::default(),
            data_at: first.start_at,
            skip: first.skip,
            rows: Cell::new(rows),
            turn: Turn::default(),
            first_task,
            is_packed: false,
            unplaced: Cell::new(0),
            found_count: 0,
            is_durable: Cell::new(false),
        }
    }

    /// The same, found with so many tasks at the front that have a chunk.
    pub(super) fn found(self, found_count: u64) -> Self {
        Self { found_count, ..self }
    }

    /// The same with streams in one short chunk each, and so many tasks without a chunk.
    pub(super) fn packed(self, unplaced: u64) -> Self {
        Self { is_packed: true, unplaced: Cell::new(unplaced), ..self }
    }

    /// True if a task, counted over the set, is one of its.
    pub(super) const fn has(&self, task: u64) -> bool {
        task >= self.first_task && task - self.first_task < self.key.task_count as u64
    }

    /// Number of its tasks.
    pub(super) const fn task_count(&self) -> u32 {
        self.key.task_count
    }

    /// The place in the journal of a task, counted over the set: of its first block.
    pub(super) fn key(&self, task: u64) -> SlotKey {
        debug_assert!(task >= self.first_task, "it is one of its tasks");
        let task = u32::try_from(task.saturating_sub(self.first_task)).unwrap_or(u32::MAX);
        SlotKey { task, ..self.key }
    }

    /// True if a task, counted over the set, had a chunk when the file was opened.
    pub(super) const fn was_found(&self, task: u64) -> bool {
        task.saturating_sub(self.first_task) < self.found_count
    }

    /// Bytes from one block of a task to its next.
    pub(super) const fn skip(&self) -> u64 {
        self.skip
    }

    /// Its chunks, with what its streams reach of them.
    pub(super) fn chunks(&self, reaches: impl Iterator<Item = (u64, u64, u64)>) -> Chunks {
        Chunks { data_at: self.data_at, skip: self.skip, tasks: reaches.collect() }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.journal.borrow().is_some()
    }

    pub(super) fn begin(&self, journal: uring::File) {
        *self.journal.borrow_mut() = Some(journal);
    }

    /// Returns the journal, which has the lengths of its streams.
    pub(super) fn journal(&self) -> io::Result<uring::File> {
        self.journal.borrow().clone().ok_or_else(|| Errno::ROFS.into())
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// Makes the file long enough for so many blocks: what nobody writes there is to read as zeros.
    pub(super) async fn lengthen(&self, machine: &Machine, rows: u64) -> io::Result<()> {
        debug_assert!(!self.is_packed, "a dense member ends where its last chunk does");
        if self.rows.get() >= rows {
            return Ok(());
        }
        let _taken = self.turn.take().await;
        if self.rows.get() >= rows {
            return Ok(());
        }
        // The one of the names gets twice as long, seldom: where the file system is another node's
        // that waits for all writes.
        let least = NAMES_LEN_MIN / self.skip.max(1);
        let ahead = self.rows.get().saturating_mul(2).max(least);
        let ahead = if self.number == 0 { ahead } else { rows };
        if ahead <= rows || self.lengthen_to(machine, ahead).await.is_err() {
            self.lengthen_to(machine, rows).await?;
        }
        Ok(())
    }

    async fn lengthen_to(&self, machine: &Machine, rows: u64) -> io::Result<()> {
        let len = rows.checked_mul(self.skip).and_then(|len| len.checked_add(self.data_at));
        let len = len.filter(|len| i64::try_from(*len).is_ok()).ok_or(Errno::FBIG)?;
        machine.truncate(&self.data, len).await?;
        self.rows.set(rows);
        Ok(())
    }

    pub(super) async fn sync(&self, machine: &Machine, data_only: bool) -> io::Result<()> {
        sync(machine, &self.data, data_only).await?;
        let journal = self.journal.borrow().clone();
        if let Some(journal) = journal {
            sync(machine, &journal, data_only).await?;
        }
        self.is_durable.set(true);
        Ok(())
    }
}

async fn sync(machine: &Machine, file: &uring::File, data_only: bool) -> io::Result<()> {
    #[cfg(test)]
    let syncing = crate::tests::power::Syncing::begin(file.fd());
    machine.sync(file, data_only).await?;
    #[cfg(test)]
    syncing.end();
    Ok(())
}
