//! Where files are: trait [`Storage`], and [`Machine`], the files of this machine. Others that
//! implement it: `coalesce` (files in multifiles), the daemon's mounts (this machine's files and a
//! server's), and the disks of simulations.
//!
//! `names` has the calls on names, and `scope` where these are looked up: on the whole machine, or
//! below one folder that nothing leads out of.
#![forbid(unsafe_code)]

pub mod grown;
mod learned;
pub mod lock_call;
mod machine;
pub mod names;
pub mod scope;
pub mod segment;
mod status;
pub mod turns;
pub mod verdict;

use std::io;

use rustix::io::Errno;
use uring::Buffers;
use wire::{FoundLock, Status};

pub use self::{learned::Learned, machine::Machine};
use self::{
    lock_call::LockCall,
    names::{Answer, FileCall, NameCall, OpenCall},
};

/// Longest transfer that is begun on the spot: those of a full lane take together about as long as
/// the longest call that blocks an executor.
pub const SHORT_LEN: u32 = 8 << 10;
const _: () = assert!(SHORT_LEN as usize * shm::lane::SLOTS <= uring::INLINE_LEN_MAX);

/// Where files are. Cheap to clone.
///
/// Reads and writes may transfer fewer bytes than asked. A future that is dropped
/// detaches its operation.
#[expect(async_fn_in_trait, reason = "tasks stay on the thread of their executor")]
pub trait Storage: Clone + 'static {
    /// An open file. Closed when the last clone and the last operation on it are gone.
    type File: Clone + 'static;

    /// Executes a call on an open file.
    async fn on(&self, file: &Self::File, call: FileCall) -> io::Result<Answer>;

    /// Type, identity, and size of an open file.
    async fn status(&self, file: &Self::File) -> io::Result<Status> {
        let answer = self.on(file, FileCall::Status).await?;
        Ok(Status::decode(&answer.bytes).ok_or(Errno::IO)?)
    }

    /// Reads at `at`; 0 at the end of the file.
    async fn read(&self, file: &Self::File, at: u64, into: Buffers) -> io::Result<usize>;

    /// Writes at `at`, or at the end of a file that is open to append.
    async fn write(&self, file: &Self::File, at: u64, from: Buffers) -> io::Result<usize>;

    /// Reads until `into` is full or the file ends; an error counts if nothing was read.
    async fn read_full(&self, file: &Self::File, at: u64, into: &Buffers) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.suffix(done) {
            let part = self.read(file, at.saturating_add(done as u64), rest).await;
            if !goes_on(&mut done, part)? {
                break;
            }
        }
        Ok(done)
    }

    /// Writes until all is written or an error stops it, which counts if nothing was written.
    async fn write_full(&self, file: &Self::File, at: u64, from: &Buffers) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = from.suffix(done) {
            let part = self.write(file, at.saturating_add(done as u64), rest).await;
            if !goes_on(&mut done, part)? {
                break;
            }
        }
        if done == 0 && !from.is_empty() { Err(Errno::IO.into()) } else { Ok(done) }
    }

    /// Makes a file durable.
    async fn sync(&self, file: &Self::File, data_only: bool) -> io::Result<()> {
        self.on(file, FileCall::Sync { data_only }).await.map(drop)
    }

    /// Sets a file's length.
    async fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()> {
        self.on(file, FileCall::Truncate { len }).await.map(drop)
    }

    /// Opens a regular file by name; tells its status, too, which everybody asks for next.
    async fn open(&self, call: OpenCall) -> io::Result<(Self::File, Status)>;

    /// Lets go of a file, also where that fails; on return no lock is left that was held by it
    /// alone.
    ///
    /// # Errors
    ///
    /// The loss of what was written before, if the file system tells only now.
    async fn close(&self, _file: Self::File) -> io::Result<()> {
        Ok(())
    }

    /// Executes a call on names.
    async fn name(&self, call: NameCall) -> io::Result<Answer>;
}

/// Adds up what a part of a transfer has come to; true if the next part may follow.
///
/// # Errors
///
/// That of the first part: of a later one it is told when that is asked for again.
pub fn goes_on(done: &mut usize, part: io::Result<usize>) -> io::Result<bool> {
    match part {
        Err(error) if *done == 0 => return Err(error),
        Ok(0) | Err(_) => return Ok(false),
        Ok(len) => *done += len,
    }
    Ok(true)
}

/// Storage whose files can be locked.
#[expect(async_fn_in_trait, reason = "tasks stay on the thread of their executor")]
pub trait Locking: Storage {
    /// Takes a lock, or gives it up. `EAGAIN`: somebody else's is in the way.
    async fn lock(&self, _file: &Self::File, _call: LockCall) -> io::Result<()> {
        Err(Errno::NOSYS.into())
    }

    /// Looks for a lock that is in the way of this one.
    async fn find_lock(
        &self,
        _file: &Self::File,
        _call: LockCall,
    ) -> io::Result<Option<FoundLock>> {
        Err(Errno::NOSYS.into())
    }

    /// Another open file of the same inode, to hold locks of its own.
    async fn another(&self, _file: &Self::File) -> io::Result<Self::File> {
        Err(Errno::NOSYS.into())
    }
}
