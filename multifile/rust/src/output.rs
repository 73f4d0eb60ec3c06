//! One physical file being written: coalesces small writes, records completion, stays poisoned.
//!
//! Bytes wait in one buffer as long as they continue each other in the same block; anything else
//! pushes them out. When they reached the storage, the journal says so. After a failed write or
//! sync nothing more is written and the file is never marked closed, so that `repair` finds it as
//! the last good write left it.

use std::{io, path::Path, sync::Arc};

use crate::{
    codec::wide,
    error::{Error, Result},
    journal::{Journal, Slot, SlotKey},
    storage::{File, Storage, write_all},
};

/// A physical file being written.
#[derive(Debug)]
pub(crate) struct Output<S: Storage> {
    file: Arc<S::File>,
    number: u32,
    journal: Journal<S>,
    instance: u64,
    task_count: u32,
    pending: Vec<u8>,
    pending_at: u64,
    owner: Option<Owner>,
    buffer_len: usize,
    failed: bool,
}

/// A writer that is dropped unclosed still hands over what it accepted; there is nobody left to
/// tell if that fails, and the file counts as unclosed either way.
impl<S: Storage> Drop for Output<S> {
    fn drop(&mut self) {
        self.flush().ok();
    }
}

/// The block that the waiting bytes belong to, and its state once they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) task: u32,
    pub(crate) block: u64,
    pub(crate) slot: Slot,
}

/// How an [`Output`] writes.
#[derive(Debug)]
pub(crate) struct Manner<'a> {
    pub(crate) number: u32,
    pub(crate) task_count: u32,
    pub(crate) buffer_len: usize,
    /// Name of the journal, when there is one.
    pub(crate) journal: Option<&'a Path>,
    /// The number its slots carry.
    pub(crate) instance: u64,
}

impl<S: Storage> Output<S> {
    pub(crate) fn new(storage: &S, file: S::File, manner: &Manner<'_>) -> Self {
        let journal = match manner.journal {
            Some(path) => Journal::Later(storage.clone(), path.to_owned()),
            None => Journal::Off,
        };
        Self {
            file: Arc::new(file),
            number: manner.number,
            journal,
            instance: manner.instance,
            task_count: manner.task_count,
            pending: Vec::new(),
            pending_at: 0,
            owner: None,
            buffer_len: manner.buffer_len,
            failed: false,
        }
    }

    /// Writes `bytes` at `at`, or keeps them until more come. `owner` is the block they belong to
    /// and its state after them; `None` for metadata.
    pub(crate) fn write(&mut self, bytes: &[u8], at: u64, owner: Option<Owner>) -> Result<()> {
        self.check()?;
        let same = |a: &Owner, b: &Owner| (a.task, a.block) == (b.task, b.block);
        let continues = match (&self.owner, &owner) {
            (Some(a), Some(b)) => same(a, b),
            (None, None) => true,
            _ => false,
        };
        let end = self.pending_at + wide(self.pending.len());
        let fits = self.pending.len() + bytes.len() <= self.buffer_len;
        if !self.pending.is_empty() && (!continues || at != end || !fits) {
            self.flush()?;
        }
        if bytes.len() >= self.buffer_len {
            let written = write_all(&*self.file, bytes, at);
            return self.completed(written, owner);
        }
        if self.pending.is_empty() {
            self.pending_at = at;
        }
        self.pending.extend_from_slice(bytes);
        self.owner = owner;
        Ok(())
    }

    /// Hands all waiting bytes to the storage.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = write_all(&*self.file, &self.pending, self.pending_at);
        self.pending.clear();
        let owner = self.owner.take();
        self.completed(written, owner)
    }

    /// Records that `owner`'s block is in the storage as far as it says.
    pub(crate) fn record(&mut self, owner: Owner) -> Result<()> {
        self.check()?;
        self.completed(Ok(()), Some(owner))
    }

    /// Writes slots of `task` where the root reads them at closing, whether or not there is a
    /// journal so far.
    pub(crate) fn leave(
        &self,
        storage: &S,
        path: &Path,
        task: u32,
        slots: impl Iterator<Item = (u64, Slot)>,
    ) -> Result<()> {
        self.check()?;
        let (instance, task_count) = (self.instance, self.task_count);
        let left = storage.create(path, false).and_then(|file| {
            let mut journal = Journal::<S>::Open(file);
            for (block, slot) in slots {
                journal.record(&SlotKey { instance, task_count, task, block }, slot)?;
            }
            Ok(())
        });
        left.map_err(|error| Error::io(self.number, &error))
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        let synced = self.file.sync().and_then(|()| self.journal.sync());
        self.completed(synced, None)
    }

    /// Cuts the file behind `len` bytes.
    pub(crate) fn resize(&mut self, len: u64) -> Result<()> {
        self.flush()?;
        let resized = self.file.resize(len);
        self.completed(resized, None)
    }

    /// Refuses everything from now on.
    pub(crate) fn poison(&mut self) {
        self.failed = true;
    }

    pub(crate) fn file(&self) -> &Arc<S::File> {
        &self.file
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    fn completed(&mut self, result: io::Result<()>, owner: Option<Owner>) -> Result<()> {
        let result = result.and_then(|()| match owner {
            Some(owner) => {
                let key = SlotKey {
                    instance: self.instance,
                    task_count: self.task_count,
                    task: owner.task,
                    block: owner.block,
                };
                self.journal.record(&key, owner.slot)
            }
            None => Ok(()),
        });
        result.map_err(|error| {
            self.failed = true;
            self.pending.clear();
            Error::io(self.number, &error)
        })
    }

    fn check(&self) -> Result<()> {
        if self.failed { Err(Error::Poisoned) } else { Ok(()) }
    }
}
