//! Writes of long streams, past the page cache where that costs less.
//!
//! The device has several pieces of a stream in flight, which the ring merges; each is completed
//! once the device has it. No space is reserved ahead: it would stay behind a process that is
//! killed. Whatever is not whole pages in order goes through the page cache as ever.

use std::io;

use rustix::io::Errno;

use crate::{
    engines::Engines,
    file::{File, Kind, Storage},
    memory::Buffers,
    operation::Operation,
    transfer::Transfer,
    ways::Way,
};

impl Engines {
    /// As [`write`](Self::write); past the page cache if the file has been written in order for
    /// long, and that costs less. The bytes are visible to whoever reads the file all the same.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn write_long(&self, file: &File, at: u64, from: Buffers) -> io::Result<usize> {
        let Some(direct) = self.direct(file, at, &from) else {
            return self.write(file, at, from).await;
        };
        match direct.await {
            // The file system has other wishes.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                file.leave_direct();
                self.write(file, at, from).await
            }
            done => done,
        }
    }

    /// The write past the page cache, if it goes there.
    fn direct(&self, file: &File, at: u64, from: &Buffers) -> Option<Transfer> {
        let long = file.long().filter(|long| long.takes(at, from))?;
        let Storage { device, is_local, .. } = file.storage();
        if self.way(device, from.len() as u64) == Way::Cached {
            return None;
        }
        let storage = Storage { kind: Kind::Direct, device, is_local };
        let fd = long.direct(file.fd())?;
        let operation = Operation::Write { file: fd, at, from: from.clone(), is_whole: false };
        Some(Transfer::new(self, storage, operation))
    }
}
