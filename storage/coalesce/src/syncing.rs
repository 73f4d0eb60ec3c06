//! Safety from the loss of the node.
//!
//! # Order
//!
//! The kernel writes back in any order what nobody has synced, or not at all. So nothing that was
//! synced depends on what was not:
//!
//! - A physical file is on the disk before the first one counts it, and that it counts it before a
//!   name leads into it. Those that were counted before anybody has synced are on the disk when the
//!   first sync returns.
//! - A stream that was synced, or is older than this daemon, moves once its copy is on the disk:
//!   the record that leads there may be on the disk before anybody syncs it.
//! - A task is free once the names on the disk do not lead to it, and another file gets it once it
//!   is empty on the disk, too.

use std::{io, rc::Rc};

use multifile::catalogue;

use super::{stream::Stream, volume::Volume};

impl Volume {
    /// Makes durable what is in a stream, and all names.
    pub(super) async fn sync(&self, stream: Option<&Stream>, data_only: bool) -> io::Result<()> {
        self.tell_unsynced()?;
        self.is_durable.set(true);
        self.sync_counted().await?;
        let names = Rc::clone(self.stream(catalogue::TASK as u64)?.member());
        self.sync_names(data_only).await?;
        match stream {
            Some(stream) if !Rc::ptr_eq(stream.member(), &names) => {
                stream.member().sync(self.machine(), data_only).await
            }
            _ => Ok(()),
        }
    }

    /// Has all physical files on the disk that the first one counts.
    async fn sync_counted(&self) -> io::Result<()> {
        let are_durable =
            || self.streams.borrow().members().iter().skip(1).all(|member| member.is_durable.get());
        if self.growth.is_free() && are_durable() {
            return Ok(());
        }
        // One that is being added may not know that it is to be there.
        let _taken = self.growth.take().await;
        self.sync_members().await
    }

    /// The same; the caller has the turn to grow.
    pub(super) async fn sync_members(&self) -> io::Result<()> {
        for member in self.members().iter().skip(1).filter(|member| !member.is_durable.get()) {
            member.sync(self.machine(), true).await?;
        }
        Ok(())
    }
}
