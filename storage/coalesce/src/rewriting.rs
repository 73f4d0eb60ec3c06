//! Names written anew, without what is no more (format rule 11.5).
//!
//! Records are only ever appended, so a multifile whose files come and go would grow without end.
//! Once what counts is longer than a few chunks, and twice as long as what the names need, they are
//! written where nothing counts: behind all, or before it where there is room by then, so the
//! stream stays within a few times what they need. One write of the head then makes those count
//! that were written: whoever dies leaves the old names or the new ones, which say the same.
//!
//! Only who appends does this, in the turn to append: every call that changes names waits for it,
//! and one that only reads them does not.

use std::io;

use multifile::catalogue::{self, END, HEAD_LEN_MAX};
use uring::Heap;

use super::volume::Volume;

/// Chunks, of those that new physical files have, below which names are left as they are.
const CHUNKS_MIN: u64 = 4;
/// Bytes of further names after which it is tried again where it failed.
const LATER: u64 = 64 << 10;

impl Volume {
    /// Writes all names anew if that is worthwhile; whether it was done.
    ///
    /// # Errors
    ///
    /// Those of writing: then the old ones count, and what was begun is behind them or before.
    pub(super) async fn rewrite_names(&self) -> io::Result<bool> {
        let (records, names) = (&self.records, self.stream(catalogue::TASK as u64)?);
        let (begin, end) = (records.begin_at.get(), records.end_at.get());
        let worthwhile = records.worthwhile_len.get().max(CHUNKS_MIN * self.shape.chunk_len);
        let old_len = end.saturating_sub(begin);
        if old_len < worthwhile {
            return Ok(false);
        }
        let len = self.tree.borrow().records_len();
        records.worthwhile_len.set(2 * len);
        if old_len < 2 * len {
            return Ok(false);
        }
        let (new, head_len) = (self.tree.borrow().records(), HEAD_LEN_MAX as u64);
        debug_assert_eq!(new.len() as u64, len, "the length was foreseen");
        let end_len = END.len() as u64;
        let is_before = head_len + len + end_len <= begin;
        // Until the head says so these are not read: the old names end before them.
        let (at, place, bytes) = if is_before {
            (head_len, head_len, [&new[..], &END].concat())
        } else {
            (end + end_len, end, [&END, &new[..]].concat())
        };
        let place_end = place + len + end_len;
        // Who waits to append has what was reserved for it, also when all is elsewhere.
        let taken = records.to_reserve.take().await;
        let ahead = records.reserved_len.get().saturating_sub(end);
        let space_end = if is_before { place_end } else { place_end + ahead };
        let written = async {
            names.reserve(self.machine(), place, space_end).await?;
            self.place_names(at, place, &bytes).await
        };
        if let Err(error) = written.await {
            // Not with every record again, as on a full disk.
            records.worthwhile_len.set(old_len + LATER);
            let given_back = if is_before {
                names.zero(self.machine(), place, place_end).await.map(drop)
            } else {
                self.cut_names(end, space_end).await
            };
            if let Err(why) = given_back {
                tracing::debug!("space for names is lost: {why}");
            }
            return Err(error);
        }
        records.begin_at.set(at);
        records.end_at.set(at + len);
        records.reserved_len.set(if is_before { 0 } else { at + len + ahead });
        drop(taken);
        // The new names are there: from here on no failure matters but for the space.
        let freed = async {
            self.sync_if_durable().await?;
            if is_before {
                names.resize(self.machine(), at + len).await?;
                self.reserve_anew().await
            } else {
                names.zero(self.machine(), head_len, at).await.map(drop)
            }
        };
        if let Err(why) = freed.await {
            tracing::debug!("old names keep their space: {why}");
        }
        Ok(true)
    }

    /// Writes `bytes`, and then that the names in them begin at `at`.
    async fn place_names(&self, at: u64, place: u64, bytes: &[u8]) -> io::Result<()> {
        let names = self.stream(catalogue::TASK as u64)?;
        self.write_names(place, bytes).await?;
        self.sync_if_durable().await?;
        let (head, was) = (self.tree.borrow().head_at(at), Heap::buffer(HEAD_LEN_MAX));
        names.read(self.machine(), 0, &was.clone().into()).await?;
        if let Err(error) = self.write_names(0, &head).await {
            // Whatever stands there by now, it is to be what is here.
            names.write(self.machine(), 0, &was.into()).await.ok();
            return Err(error);
        }
        Ok(())
    }

    /// Has the names on the disk, if they are to be safe from the loss of the node.
    async fn sync_if_durable(&self) -> io::Result<()> {
        if !self.is_durable.get() {
            return Ok(());
        }
        self.stream(catalogue::TASK as u64)?.member().sync(self.machine(), true).await
    }
}
