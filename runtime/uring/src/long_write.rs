//! Writes of long streams, past the page cache where that costs less.
//!
//! The device has several pieces of a stream in flight, which the ring merges; each is completed
//! once the device has it. No space is reserved ahead: it would stay behind a process that is
//! killed. Whatever is not whole pages in order goes through the page cache as ever.

use std::{io, os::fd::OwnedFd};

use rustix::{fs::fstat, io::Errno};

use crate::{
    engines::Engines,
    file::{File, Kind, Storage},
    memory::Buffers,
    operation::Operation,
    transfer::Transfer,
    ways::Way,
};

/// Errors that a write through the page cache would have, too.
const FINAL: [Errno; 4] = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::IO];

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
        let error = match direct.await {
            Err(error) => error,
            done => return done,
        };
        // Else the file system, or the memory, has other wishes.
        if FINAL.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return Err(error);
        }
        file.leave_direct();
        self.write(file, at, from).await
    }

    /// The write past the page cache, if it goes there: behind the file's end, where nobody's cache
    /// has anything.
    fn direct(&self, file: &File, at: u64, from: &Buffers) -> Option<Transfer> {
        let long = file.long().filter(|long| long.takes(at, from))?;
        let Storage { device, is_local, .. } = file.storage();
        if self.way(device, from.len() as u64) == Way::Cached {
            return None;
        }
        let storage = Storage { kind: Kind::Direct, device, is_local };
        let fd = long.direct(file.fd()).filter(|_| extends(file.fd(), at))?;
        let operation = Operation::Write { file: fd, at, from: from.clone(), is_whole: false };
        Some(Transfer::new(self, storage, operation))
    }
}

/// True if nothing of the file lies at `at` or behind it.
fn extends(fd: &OwnedFd, at: u64) -> bool {
    fstat(fd).is_ok_and(|found| u64::try_from(found.st_size).is_ok_and(|size| size <= at))
}
