//! Trait [`SessionStorage`]: what sessions ask of their storage beyond [`storage::Storage`]; some
//! of it only for a server's files.

use std::io;

use executor::Credits;
use storage::{Locking, names::Identity};

/// Storage that a daemon serves its clients from: files of this machine, and of servers.
pub(crate) trait SessionStorage: Locking {
    /// Device and inode of a file that a client handed over; `None`: it is no regular one. Waits
    /// for nothing.
    fn identify(&self, file: &Self::File) -> Option<Identity>;

    /// Brings `len` bytes at `at` into the page cache; returns how many are there.
    async fn fetch(&self, file: &Self::File, at: u64, len: usize) -> io::Result<usize>;

    /// True if a server is lost: then every file it has fails with `EIO`.
    fn has_lost_server(&self) -> bool {
        false
    }

    /// The permits for transfers, if more than so many would only wait.
    fn permits(&self, _file: &Self::File) -> Option<Credits> {
        None
    }

    /// The same files as the client of a session sees them, which may have a number in its parallel
    /// job.
    fn seen_by(&self, _session: u32, _rank: Option<u32>) -> Self {
        self.clone()
    }

    /// The path by which a process that sees this machine's mounts finds a file in a view, if there
    /// is one.
    fn name_in_view(&self, _: &Self::File) -> Option<Vec<u8>> {
        None
    }

    /// Waits until everything is where it belongs; nothing is asked afterwards.
    async fn leave(&self) {}

    /// How I/O is executed, for people.
    fn describe(&self) -> String;
}
