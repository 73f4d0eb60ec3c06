//! Space of files that are gone, given back to the file system while the multifile is open.
//!
//! Once the names on the disk do not lead to a task any more it is [free](super::inodes), and a
//! hole is made of its bytes. This happens when somebody syncs, when the disk is full, and when
//! enough bytes are left to be worth a sync. That it has none, as the journal says then, is synced
//! before it is given away: a name on the disk would show them.

use std::{collections::BTreeSet, io, ops::RangeInclusive, rc::Rc};

use executor::yield_now;
use multifile::catalogue;
use rustix::io::Errno;

use super::{records::is_full, volume::Volume};

/// Bytes of files that are gone which are worth an `fsync` to give them back: it takes some
/// milliseconds, as long as to write them.
pub(super) const GONE_LEN: u64 = if cfg!(test) { 10_000 } else { 16 << 20 };

impl Volume {
    /// Gives back the space of files that are gone, if that is worthwhile. Who has called is not
    /// told that it fails.
    pub(super) async fn reclaim(&self) {
        let condition = self.condition();
        let is_open = condition.is_begun() && !condition.is_over();
        if !is_open || self.users.left_len(|task| self.len_of(task)) < GONE_LEN {
            return;
        }
        if let Ok(_changing) = self.begin().await {
            self.free_left().await;
        }
    }

    /// Executes a part of a change, once more if the disk was full and files that are gone may have
    /// made room.
    pub(super) async fn with_room<T, F>(&self, call: impl Fn() -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        match call().await {
            Err(why) if is_full(&why) => {
                self.free_left().await;
                call().await
            }
            done => done,
        }
    }

    /// Has it on the disk that nobody has the tasks whose files are gone: these are free then.
    /// Waits for another call that is about to free some. What fails is owed to whoever syncs next:
    /// the kernel says it once.
    pub(super) async fn free_left(&self) {
        let is_idle = self.users.left_count() == 0 && self.freeing.is_free();
        if is_idle || self.has_failed_to_sync.get() {
            return;
        }
        if let Err(why) = self.sync_names(true).await {
            self.unsynced.set(Errno::from_io_error(&why).or(Some(Errno::IO)));
        }
    }

    /// The error that is owed to whoever syncs.
    pub(super) fn tell_unsynced(&self) -> io::Result<()> {
        self.unsynced.take().map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Makes the names durable, and has the tasks free whose files are gone.
    pub(super) async fn sync_names(&self, data_only: bool) -> io::Result<()> {
        let synced = self.sync_and_free(data_only).await;
        // What a failed sync has left the next one takes for written.
        self.has_failed_to_sync.set(self.has_failed_to_sync.get() || synced.is_err());
        synced
    }

    async fn sync_and_free(&self, data_only: bool) -> io::Result<()> {
        let names = Rc::clone(self.stream(catalogue::TASK as u64)?.member());
        if self.users.left_count() == 0 && self.freeing.is_free() {
            return names.sync(self.machine(), data_only).await;
        }
        let taken = self.freeing.take().await;
        let left = self.users.take_left();
        // With nothing to free others may sync beside this.
        let taken = Some(taken).filter(|_| !left.is_empty());
        let synced = names.sync(self.machine(), data_only).await;
        if synced.is_ok() && !self.has_failed_to_sync.get() {
            self.release(left).await;
        } else {
            self.users.set_left(left);
        }
        drop(taken);
        synced
    }

    async fn release(&self, left: BTreeSet<u64>) {
        if let Err(why) = self.discard(&left).await {
            // They are emptied before others get them, or when the multifile is closed.
            tracing::debug!("space of removed files is not given back yet: {why}");
        }
        self.users.set_stale(self.with_chunks(left));
    }

    async fn discard(&self, left: &BTreeSet<u64>) -> io::Result<()> {
        // Of one that has moved somebody may still read the bytes.
        let unused = left.iter().copied().filter(|task| self.streams.borrow().is_unused(*task));
        let (small, long): (Vec<_>, Vec<_>) = unused.partition(|task| self.is_packed(*task));
        self.discard_chunks(small.into_iter()).await?;
        for task in long.into_iter().filter(|task| self.len_of(*task) > 0) {
            self.stream(task)?.discard(self.machine()).await?;
            yield_now().await;
        }
        Ok(())
    }

    /// Takes a free task with chunks of so many bytes; it is empty, also after the loss of the
    /// node.
    pub(super) async fn take_free(
        &self,
        chunk_len: RangeInclusive<u64>,
    ) -> io::Result<Option<(u64, u64)>> {
        // Of one that has moved somebody may still read the bytes; long ones do not move.
        let is_long = *chunk_len.start() >= self.shape.chunk_len;
        let is_unused = |task| is_long || self.streams.borrow().is_unused(task);
        loop {
            if let Some(taken) = self.users.take_free(chunk_len.clone()) {
                return Ok(Some(taken));
            }
            let stale = self.users.first_stale(&chunk_len, is_unused);
            let Some(stale) = stale.filter(|_| !self.has_failed_to_sync.get()) else {
                return Ok(None);
            };
            let member = self.streams.borrow().member_of(stale).map(Rc::clone).ok_or(Errno::IO)?;
            let tasks = self.users.take_stale(|task| member.has(task) && is_unused(task));
            let emptied = async {
                self.empty(tasks.iter().map(|(_, task)| *task)).await?;
                let synced = member.sync(self.machine(), true).await;
                synced.inspect_err(|_| self.has_failed_to_sync.set(true))
            };
            if let Err(why) = emptied.await {
                self.users.set_stale(tasks);
                return Err(why);
            }
            self.users.set_free(tasks);
        }
    }

    /// Makes tasks empty that nobody has.
    pub(super) async fn empty(&self, tasks: impl Iterator<Item = u64>) -> io::Result<()> {
        let (mut small, long): (Vec<_>, Vec<_>) = tasks.partition(|task| self.is_packed(*task));
        small.sort_unstable();
        self.empty_chunks(small.into_iter()).await?;
        for task in long {
            let stream = self.stream(task)?;
            stream.hand_on();
            stream.resize(self.machine(), 0).await?;
        }
        Ok(())
    }

    pub(super) fn is_packed(&self, task: u64) -> bool {
        self.streams.borrow().member_of(task).is_some_and(|member| member.is_packed)
    }

    fn len_of(&self, task: u64) -> u64 {
        self.streams.borrow().reach(task).map_or(0, |(.., len)| len)
    }
}
