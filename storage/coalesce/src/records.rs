//! Changes of names, and their records.
//!
//! Names change in memory at once, so calls see each other, and a call is answered when its record
//! is in the stream of names. Space for the record is found before anything changes, so a full disk
//! refuses the call as a whole. A record that cannot be written fails its call, and all that have
//! come since, for they may build on it: the names are again what the stream says.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
};

use multifile::catalogue::{self, Change, END};
use rustix::io::Errno;
use storage::verdict::errno;
use uring::Buffer;

use super::{
    dense::Small,
    inodes::Live,
    stream::Turn,
    tree::Tree,
    volume::{Changing, Volume},
};

/// Bytes that are reserved for names at a time, at least; where there are many, a part of them up
/// to a bound.
const NAMES_AHEAD: u64 = 64 << 10;
const NAMES_AHEAD_MAX: u64 = 1 << 20;
const NAMES_AHEAD_PART: u64 = 4;
/// Bytes that are enough for those of any call; on a full disk they have to be.
const NAMES_LEAST: u64 = 8 << 10;
/// Bytes of what was reserved that are kept when the rest has to be given back.
const NAMES_KEPT: u64 = 16 << 10;

/// A record on its way.
#[derive(Debug, Default)]
pub(super) struct Record {
    bytes: Vec<u8>,
    /// Changes that restore the names.
    undo: Vec<Change>,
    /// It also makes files, which are removed before that.
    makes_files: bool,
    /// Inodes that lose their last name by it.
    gone: Vec<Rc<Live>>,
    outcome: Rc<Cell<Option<Result<(), Errno>>>>,
}

impl Record {
    /// One that nothing is undone for if it cannot be written.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// The way of records to the stream of names.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Those that are not there yet.
    queued: RefCell<Vec<Record>>,
    /// Bytes of all there were, of those that are there, and as many as there is space for.
    queued_len: Cell<u64>,
    written_len: Cell<u64>,
    pub(super) reserved_len: Cell<u64>,
    /// Where in the stream those begin that count, and where the next one goes.
    pub(super) begin_at: Cell<u64>,
    pub(super) end_at: Cell<u64>,
    /// Bytes of those that count at which to see whether most of them say what is no more.
    pub(super) worthwhile_len: Cell<u64>,
    to_write: Turn,
    pub(super) to_reserve: Turn,
}

impl Records {
    /// Those of a stream, from where they begin to where they end.
    pub(super) fn of(begin_at: u64, end_at: u64) -> Self {
        Self { begin_at: Cell::new(begin_at), end_at: Cell::new(end_at), ..Self::default() }
    }
}

impl Volume {
    /// Makes a change of names, if `change` finds that it may be made; on return it is written.
    pub(super) async fn change<T>(
        &self,
        change: impl FnOnce(&Tree) -> Result<(T, Vec<Change>), Errno>,
    ) -> io::Result<T> {
        self.change_in(&self.begin().await?, change).await
    }

    /// The same within a change.
    pub(super) async fn change_in<T>(
        &self,
        _: &Changing<'_>,
        change: impl FnOnce(&Tree) -> Result<(T, Vec<Change>), Errno>,
    ) -> io::Result<T> {
        self.reserve_names().await?;
        let (value, changes) = change(&self.tree.borrow())?;
        if changes.is_empty() {
            return Ok(value);
        }
        let record = Record::of(catalogue::encode(&changes));
        let applied = self.tree.borrow_mut().apply(changes);
        let gone = applied.gone.into_iter();
        let gone = gone.map(|(inode, node)| self.users.orphan(inode, node)).collect();
        self.append(Record { undo: applied.undo, gone, ..record }).await?;
        Ok(value)
    }

    /// Makes one or more files; on return their record is written.
    pub(super) async fn make_files(&self, _: &Changing<'_>, files: &mut [Small]) -> io::Result<()> {
        self.reserve_names().await?;
        let made = self.tree.borrow_mut().make_files(files);
        let (bytes, undo) = made?;
        self.append(Record { bytes, undo, makes_files: true, ..Record::default() }).await
    }

    /// Has space for what the next records need.
    async fn reserve_names(&self) -> io::Result<()> {
        let (records, names) = (&self.records, self.stream(catalogue::TASK as u64)?);
        let wanted = |ahead| {
            let waiting = records.queued_len.get() - records.written_len.get();
            records.end_at.get() + waiting + ahead
        };
        let part = records.end_at.get() / NAMES_AHEAD_PART;
        let most = part.clamp(NAMES_AHEAD, NAMES_AHEAD_MAX);
        if records.reserved_len.get() >= wanted(NAMES_AHEAD / 2) {
            return Ok(());
        }
        let _taken = records.to_reserve.take().await;
        if records.reserved_len.get() >= wanted(NAMES_AHEAD / 2) {
            return Ok(());
        }
        let reserve = async |ahead| {
            let end = wanted(ahead);
            names.reserve(self.machine(), records.end_at.get(), end).await?;
            records.reserved_len.set(end);
            Ok(())
        };
        match reserve(most).await {
            Err(why) if is_full(&why) => self.with_room(|| reserve(NAMES_LEAST)).await,
            reserved => reserved,
        }
    }

    /// Gives back what the last writer of names had reserved and not used, but for what some calls
    /// need: on a full disk there is nothing else to write with.
    pub(super) async fn give_names_back(&self) -> io::Result<()> {
        let (names, from) =
            (self.stream(catalogue::TASK as u64)?, self.records.end_at.get() + NAMES_KEPT);
        // No further than its blocks: behind them is what a closed one is read by.
        names.give_back(self.machine(), from, names.room()).await
    }

    /// Reserves space again after a cut gave the reservation back.
    pub(super) async fn reserve_anew(&self) -> io::Result<()> {
        {
            let _taken = self.records.to_reserve.take().await;
            self.records.reserved_len.set(0);
        }
        self.reserve_names().await
    }

    /// Appends to the stream of names, together with what others append.
    pub(super) async fn append(&self, record: Record) -> io::Result<()> {
        debug_assert!(record.bytes.len() > END.len(), "an empty record would end the stream");
        let (records, outcome) = (&self.records, Rc::clone(&record.outcome));
        records.queued_len.set(records.queued_len.get() + record.bytes.len() as u64);
        records.queued.borrow_mut().push(record);
        loop {
            if let Some(outcome) = outcome.get() {
                return Ok(outcome?);
            }
            let _taken = records.to_write.take().await;
            if outcome.get().is_none() {
                self.append_queued().await;
            }
        }
    }

    async fn append_queued(&self) {
        let records = &self.records;
        let (count, bytes) = {
            let queued = records.queued.borrow();
            let bytes: Vec<_> = queued.iter().map(|record| &record.bytes[..]).collect();
            (queued.len(), bytes.concat())
        };
        // Names that are written anew have all that was queued.
        let written = match self.rewrite_names().await {
            Ok(true) => Ok(()),
            _ => self.append_now(&bytes).await,
        };
        match written {
            Ok(()) => {
                records.written_len.set(records.written_len.get() + bytes.len() as u64);
                let done = records.queued.borrow_mut().drain(..count).collect::<Vec<_>>();
                for Record { gone, outcome, .. } in done {
                    // Only now: their bytes are to be there as long as their names may be.
                    gone.iter().for_each(|live| live.confirm());
                    outcome.set(Some(Ok(())));
                }
            }
            Err(error) => self.take_back(errno(error)).await,
        }
    }

    /// Makes the names what their stream says, and fails all calls whose records are not in there.
    async fn take_back(&self, why: Errno) {
        let (records, end) = (&self.records, self.records.end_at.get());
        // Some of them may be.
        if let Err(why) = self.cut_names(end, end).await {
            tracing::debug!("names that were taken back may be there: {why}");
        }
        let failed = records.queued.take();
        records.written_len.set(records.queued_len.get());
        for record in failed.into_iter().rev() {
            if record.makes_files {
                self.tree.borrow_mut().apply(catalogue::unmake_files(&record.bytes));
            }
            self.tree.borrow_mut().apply(record.undo);
            record.gone.iter().for_each(|live| live.restore());
            record.outcome.set(Some(Err(why)));
        }
    }

    async fn append_now(&self, bytes: &[u8]) -> io::Result<()> {
        let at = self.records.end_at.get();
        // What a failed one has left ends the stream for who reads it.
        self.cut_names(at, at).await?;
        self.write_names(at, bytes).await?;
        self.records.end_at.set(at + bytes.len() as u64);
        Ok(())
    }

    /// The stream of names ends at `end` again, with what is reserved, but not as far as `to`.
    pub(super) async fn cut_names(&self, end: u64, to: u64) -> io::Result<()> {
        let names = self.stream(catalogue::TASK as u64)?;
        let (len, reserved) = (names.len(), self.records.reserved_len.get().max(end));
        names.resize(self.machine(), end).await?;
        names.give_back(self.machine(), reserved, to).await?;
        // It went with what was cut.
        if len > end && names.reserve(self.machine(), end, reserved).await.is_err() {
            self.records.reserved_len.set(0);
        }
        Ok(())
    }

    /// Writes in the stream of names.
    pub(super) async fn write_names(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let names = self.stream(catalogue::TASK as u64)?;
        let (buffer, mut done) = (Buffer::from(bytes.to_vec()), 0);
        while done < bytes.len() {
            let rest = buffer.suffix(done).into();
            match names.write(self.machine(), at + done as u64, &rest).await? {
                Some(len @ 1..) => done += len,
                _ => return Err(Errno::NOSPC.into()),
            }
        }
        Ok(())
    }
}

/// True if there is no space, or a file may not be that long.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG))
}
