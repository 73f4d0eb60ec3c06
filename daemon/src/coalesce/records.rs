//! Changes of names, and their records.
//!
//! Names change in memory at once, so calls see each other, and a call is answered when its record
//! is in the stream of names. Space for the record is found before anything changes, so a full disk
//! refuses the call as a whole.

use std::{
    cell::{Cell, RefCell},
    io,
};

use multifile::catalogue::{self, Change};
use rustix::io::Errno;
use uring::Buffer;

use super::{
    stream::Turn,
    tree::Tree,
    volume::{Changing, Volume},
};

/// Bytes that are reserved for names at a time.
const NAMES_AHEAD: u64 = 64 << 10;

/// The way of records to the stream of names.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Those that are not there yet.
    queued: RefCell<Vec<u8>>,
    /// Bytes of all there were, of those that are there, and as many as there is space for.
    queued_len: Cell<u64>,
    written_len: Cell<u64>,
    reserved_len: Cell<u64>,
    to_write: Turn,
    to_reserve: Turn,
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
        let gone = self.tree.borrow_mut().apply(&changes).into_iter();
        let gone: Vec<_> = gone.map(|(inode, node)| self.users.is_gone(inode, node)).collect();
        self.append(catalogue::encode(&changes)).await?;
        // Only now: their bytes are to be there as long as their names may be.
        gone.iter().for_each(|live| live.is_noted());
        Ok(value)
    }

    /// Has space for what the next records need.
    async fn reserve_names(&self) -> io::Result<()> {
        let (records, names) = (&self.records, self.stream(catalogue::TASK as u64)?);
        let wanted = |ahead| {
            let waiting = records.queued_len.get() - records.written_len.get();
            names.len() + waiting + ahead
        };
        if records.reserved_len.get() >= wanted(NAMES_AHEAD / 2) {
            return Ok(());
        }
        let _taken = records.to_reserve.take().await;
        if records.reserved_len.get() >= wanted(NAMES_AHEAD / 2) {
            return Ok(());
        }
        let end = wanted(NAMES_AHEAD);
        names.reserve(self.machine(), names.len(), end).await?;
        records.reserved_len.set(end);
        Ok(())
    }

    /// Appends to the stream of names, together with what others append.
    pub(super) async fn append(&self, record: Vec<u8>) -> io::Result<()> {
        let records = &self.records;
        let end = records.queued_len.get() + record.len() as u64;
        records.queued_len.set(end);
        records.queued.borrow_mut().extend(record);
        while records.written_len.get() < end {
            let _taken = records.to_write.take().await;
            if records.written_len.get() >= end {
                break;
            }
            let bytes = records.queued.take();
            if let Err(error) = self.append_now(&bytes).await {
                // Whoever comes next tries again.
                let later = records.queued.take();
                records.queued.replace([bytes, later].concat());
                return Err(error);
            }
            records.written_len.set(records.written_len.get() + bytes.len() as u64);
        }
        Ok(())
    }

    async fn append_now(&self, bytes: &[u8]) -> io::Result<()> {
        let names = self.stream(catalogue::TASK as u64)?;
        let (buffer, at) = (Buffer::from(bytes.to_vec()), names.len());
        let mut done = 0;
        while done < bytes.len() {
            let rest = buffer.suffix(done).into();
            match names.write(self.machine(), at + done as u64, &rest).await {
                Ok(len) if len > 0 => done += len,
                failed => {
                    // A record that is not whole ends the stream for who reads it.
                    names.resize(self.machine(), at).await.ok();
                    return Err(failed.err().unwrap_or_else(|| Errno::NOSPC.into()));
                }
            }
        }
        Ok(())
    }
}
