//! One physical file being written: coalesces small writes, records completion, stays poisoned.
//!
//! Bytes wait in one buffer as long as they continue each other in the same block; anything else
//! pushes them out. When they reached the storage, the journal says so, or the bytes do. After a
//! failed write or sync nothing more is written and the file is never marked closed, so that
//! `repair` finds it as the last good write left it.

use std::{io, path::Path, sync::Arc};

use crate::{
    codec::wide,
    error::{Error, OnFile as _, Result},
    header::FLAG2_AT,
    journal::{Journal, Slot, SlotKey},
    repeats::{Owner, Piece, Repeats},
    storage::{File, Naming, Storage, write_all},
};

/// A physical file being written.
#[derive(Debug)]
pub(crate) struct Output<S: Storage> {
    file: Arc<S::File>,
    number: u32,
    journal: Journal<S>,
    run: Repeats,
    blank: bool,
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

/// How an [`Output`] writes.
#[derive(Debug)]
pub(crate) struct Manner<'a> {
    pub(crate) number: u32,
    pub(crate) task_count: u32,
    pub(crate) buffer_len: usize,
    /// The name of the set, and of the journal derived from it, when there is one.
    pub(crate) journal: Option<(&'a Path, &'a Path)>,
    /// True if unwritten bytes read as zeros.
    pub(crate) blank: bool,
    /// The number its slots carry.
    pub(crate) instance: u64,
}

impl Manner<'_> {
    /// For what is not a task's data.
    pub(crate) const fn without_journal(number: u32, task_count: u32) -> Self {
        let (buffer_len, journal, blank, instance) = (1 << 16, None, false, 0);
        Self { number, task_count, buffer_len, journal, blank, instance }
    }
}

impl<S: Storage> Output<S> {
    pub(crate) fn new(storage: &S, file: impl Into<Arc<S::File>>, manner: &Manner<'_>) -> Self {
        let journal = match manner.journal {
            Some((set, path)) => Journal::Later(storage.clone(), set.to_owned(), path.to_owned()),
            None => Journal::Off,
        };
        Self {
            file: file.into(),
            number: manner.number,
            journal,
            run: Repeats::default(),
            blank: manner.blank,
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
        let continues = match (&self.owner, &owner) {
            (Some(a), Some(b)) => a.is_in_block_of(b),
            (None, None) => true,
            _ => false,
        };
        let end = self.pending_at + wide(self.pending.len());
        let fits = self.pending.len() + bytes.len() <= self.buffer_len;
        if !self.pending.is_empty() && (!continues || at != end || !fits) {
            self.flush()?;
        }
        if bytes.len() >= self.buffer_len {
            return self.put(bytes, at, owner);
        }
        if self.pending.is_empty() {
            self.pending_at = at;
        }
        self.pending.extend_from_slice(bytes);
        self.owner = owner;
        debug_assert!(self.pending.len() <= self.buffer_len, "collected bytes fit the buffer");
        Ok(())
    }

    /// Hands all waiting bytes to the storage.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.pending);
        let owner = self.owner.take();
        let written = self.put(&bytes, self.pending_at, owner);
        bytes.clear();
        self.pending = bytes;
        written
    }

    /// Hands all waiting bytes to the storage and records what was not recorded: bytes that come by
    /// other means are not to be counted with it.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.flush()?;
        let ended = self.run.end();
        let told = self.tell(ended);
        self.outcome(told)
    }

    /// Records that `owner`'s block is in the storage as far as it says.
    pub(crate) fn record(&mut self, owner: Owner) -> Result<()> {
        self.check()?;
        self.begin_journal()?;
        let ended = self.run.before(&owner, Piece::UNLIKE);
        let recorded = self.tell(ended).and_then(|()| {
            let now = self.run.after(&owner, Piece::UNLIKE);
            self.tell(now)
        });
        self.outcome(recorded)
    }

    /// Records what others may have written to `owner`'s block by now, before they say so.
    pub(crate) fn announce(&mut self, owner: Owner) -> Result<()> {
        self.settle()?;
        self.begin_journal()?;
        let told = self.tell(Some(owner));
        self.outcome(told)
    }

    /// Makes sure that there is a journal, if one is wanted: from here on nothing counts as data
    /// that is not recorded.
    pub(crate) fn begin_journal(&mut self) -> Result<()> {
        // Other ranks may have one, as where this process has no descriptor left: it is not to be
        // believed, for it says nothing of what comes from here.
        let is_begun = self.journal.begin();
        let told = if is_begun { Ok(()) } else { write_all(&*self.file, &[0; 8], FLAG2_AT) };
        self.outcome(told)
    }

    /// Writes slots of `task` where the root reads them at closing, whether or not there is a
    /// journal so far.
    pub(crate) fn leave(
        &self,
        storage: &S,
        set: &Path,
        path: &Path,
        task: u32,
        slots: impl Iterator<Item = (u64, Slot)>,
    ) -> Result<()> {
        self.check()?;
        let (instance, task_count) = (self.instance, self.task_count);
        let left = storage.create(path, Naming::Derived(set), false).and_then(|file| {
            let journal = Journal::<S>::Open(file);
            for (block, slot) in slots {
                journal.record(&SlotKey { instance, task_count, task, block }, slot)?;
            }
            Ok(())
        });
        left.on_file(self.number)
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.settle()?;
        let synced = self.file.sync().and_then(|()| self.journal.sync());
        self.outcome(synced)
    }

    /// Hands all waiting bytes to the storage and has it say whether it took everything.
    pub(crate) fn hand_over(&mut self) -> Result<()> {
        self.flush()?;
        let taken = self.file.hand_over();
        self.outcome(taken)
    }

    /// Cuts the file to `len` bytes. A file of that length is not touched, because XFS writes it to
    /// the device before it truncates it. File 0 is always truncated: space may be reserved behind
    /// its end.
    pub(crate) fn cut(&mut self, len: u64) -> Result<()> {
        self.flush()?;
        let ends_there = self.number > 0 && self.file.size().is_ok_and(|size| size == len);
        let cut = if ends_there { Ok(()) } else { self.file.resize(len) };
        self.outcome(cut)
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

    /// Writes `bytes`, and says so where repair could not tell by itself.
    fn put(&mut self, bytes: &[u8], at: u64, owner: Option<Owner>) -> Result<()> {
        let Some(owner) = owner else {
            let written = write_all(&*self.file, bytes, at);
            return self.outcome(written);
        };
        self.begin_journal()?;
        let piece = if self.blank { Piece::of(bytes) } else { Piece::UNLIKE };
        let ended = self.run.before(&owner, piece);
        let told = self.tell(ended);
        let written = told.and_then(|()| write_all(&*self.file, bytes, at)).and_then(|()| {
            let now = self.run.after(&owner, piece);
            self.tell(now)
        });
        self.outcome(written)
    }

    fn tell(&mut self, owner: Option<Owner>) -> io::Result<()> {
        let Some(Owner { task, block, slot }) = owner else { return Ok(()) };
        debug_assert!(task < self.task_count, "task {task} is of this file");
        let (instance, task_count) = (self.instance, self.task_count);
        self.journal.record(&SlotKey { instance, task_count, task, block }, slot)
    }

    fn outcome(&mut self, result: io::Result<()>) -> Result<()> {
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
