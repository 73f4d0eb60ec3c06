//! Names written anew, without what is no more (format rule 11.5).
//!
//! Records are only ever appended, so a multifile whose files come and go would grow without end.
//! Once what counts is longer than a few chunks, and twice as long as what the names need, they are
//! written where nothing counts: behind all, or before it where there is room by then, so the
//! stream stays within a few times what they need. One write of the head then makes those count
//! that were written: whoever dies leaves the old names or the new ones, which say the same.
//!
//! Only who appends does this, in the turn to append, and nobody but that waits for it.

use std::io;

use multifile::catalogue::{self, END, HEAD_LEN_MAX};
use uring::Heap;

use super::volume::Volume;

/// Chunks, of those that new physical files have, below which names are left as they are.
const CHUNKS_MIN: u64 = 4;

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
        let (new, head_len) = (self.tree.borrow().records(), HEAD_LEN_MAX as u64);
        let len = new.len() as u64;
        records.worthwhile_len.set(2 * len);
        if old_len < 2 * len {
            return Ok(false);
        }
        let is_before = head_len + len + END.len() as u64 <= begin;
        let at = if is_before { head_len } else { end };
        let bytes = if is_before { [&new[..], &END].concat() } else { new };
        self.write_names(at, &bytes).await?;
        self.sync_names().await?;
        let (head, was) = (self.tree.borrow().head_at(at), Heap::buffer(HEAD_LEN_MAX));
        names.read(self.machine(), 0, &was.clone().into()).await?;
        if let Err(error) = self.write_names(0, &head).await {
            // Whatever stands there by now, it is to be what is here.
            names.write(self.machine(), 0, &was.into()).await.ok();
            return Err(error);
        }
        records.begin_at.set(at);
        records.end_at.set(at + len);
        // The new names are there: from here on no failure matters but for the space.
        let freed = async {
            self.sync_names().await?;
            if is_before {
                names.resize(self.machine(), at + len).await?;
                self.reserve_anew().await
            } else {
                names.zero(self.machine(), head_len, at).await
            }
        };
        if let Err(why) = freed.await {
            tracing::debug!("old names keep their space: {why}");
        }
        Ok(true)
    }

    /// Has the names on the disk, if they are to be safe from the loss of the node.
    async fn sync_names(&self) -> io::Result<()> {
        if !self.is_durable.get() {
            return Ok(());
        }
        self.stream(catalogue::TASK as u64)?.member().sync(self.machine(), true).await
    }
}
