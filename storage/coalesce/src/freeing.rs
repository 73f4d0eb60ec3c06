//! Space of files that are gone, given back to the file system while the multifile is open.
//!
//! Once the names on the disk do not lead to a task any more it is [free](super::inodes), and its
//! bytes are cut off: the journal says that it has none, and a hole is made of them. This happens
//! when somebody syncs, when the disk is full, and when enough bytes are left to be worth a sync.

use std::{collections::BTreeSet, io, rc::Rc};

use executor::yield_now;
use multifile::catalogue;

use super::{records::is_full, volume::Volume};

/// Bytes of files that are gone which are worth an `fsync` to give them back: it takes some
/// milliseconds, as long as to write them.
const GONE_LEN: u64 = if cfg!(test) { 10_000 } else { 16 << 20 };
/// Bytes of a stream in which there is a whole page, wherever it begins.
const DISCARDED_MIN: u64 = if cfg!(test) { 1 } else { 8 << 10 };

impl Volume {
    /// Gives back the space of files that are gone, if that is worthwhile.
    pub(super) async fn reclaim(&self) -> io::Result<()> {
        let condition = self.condition();
        let is_open = condition.is_begun() && !condition.is_over();
        if !is_open || self.users.left_len(|task| self.len_of(task)) < GONE_LEN {
            return Ok(());
        }
        let _changing = self.begin().await?;
        self.free_left().await
    }

    /// Executes a part of a change, once more if the disk was full and files that are gone may have
    /// made room.
    pub(super) async fn with_room<T, F>(&self, call: impl Fn() -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        match call().await {
            Err(why) if is_full(&why) => {
                self.free_left().await?;
                call().await
            }
            done => done,
        }
    }

    /// Has it on the disk that nobody has the tasks whose files are gone: these are free then.
    /// Waits for another call that is about to free some.
    pub(super) async fn free_left(&self) -> io::Result<()> {
        if self.users.left_count() == 0 && self.freeing.is_free() {
            return Ok(());
        }
        self.sync_names(true).await
    }

    /// Makes the names durable, and has the tasks free whose files are gone.
    pub(super) async fn sync_names(&self, data_only: bool) -> io::Result<()> {
        let names = Rc::clone(self.stream(catalogue::TASK as u64)?.member());
        if self.users.left_count() == 0 && self.freeing.is_free() {
            return names.sync(self.machine(), data_only).await;
        }
        let _taken = self.freeing.take().await;
        let left = self.users.take_left();
        let synced = names.sync(self.machine(), data_only).await;
        match synced {
            Ok(()) => self.release(left).await,
            Err(_) => self.users.set_left(left),
        }
        synced
    }

    async fn release(&self, left: BTreeSet<u64>) {
        for task in &left {
            if self.len_of(*task) < DISCARDED_MIN {
                continue;
            }
            let Ok(stream) = self.stream(*task) else { continue };
            // Of one that has moved somebody may still read the bytes.
            if Rc::strong_count(&stream) > 2 {
                continue;
            }
            if let Err(why) = stream.discard(self.machine()).await {
                tracing::debug!("space of removed files is not given back yet: {why}");
                break; // They are emptied before others get them, or when the multifile is closed.
            }
            yield_now().await;
        }
        self.users.set_free(self.with_chunks(left));
    }

    fn len_of(&self, task: u64) -> u64 {
        self.streams.borrow().reach(task).map_or(0, |(.., len)| len)
    }
}
