//! What the daemon does to files, as an input: the engines of a machine, or a simulation.

use std::{io, rc::Rc};

use rustix::fs::{FileType, SeekFrom, fstat, ftruncate, seek};
use uring::{Buffers, Engines};

use crate::names::{self, Answer, NameCall, OpenCall, Status};

/// Where files are. Cheap to clone.
///
/// Reads, writes, and fetches may transfer fewer bytes than asked. A future that is dropped
/// detaches its operation.
pub(crate) trait Storage: Clone + 'static {
    /// An open file. Closed when the last clone and the last operation on it are gone.
    type File: Clone + 'static;

    /// Type, identity, and size of an open file. Does not wait for a device.
    fn status(&self, file: &Self::File) -> io::Result<Status>;

    /// Reads at `at`; 0 at the end of the file.
    async fn read(&self, file: &Self::File, at: u64, into: Buffers) -> io::Result<usize>;

    /// Writes at `at`, or at the end of a file that was opened to append.
    async fn write(&self, file: &Self::File, at: u64, from: Buffers) -> io::Result<usize>;

    /// Makes a file durable.
    async fn sync(&self, file: &Self::File, data_only: bool) -> io::Result<()>;

    /// Brings `len` bytes at `at` into the page cache; returns how many are there.
    async fn fetch(&self, file: &Self::File, at: u64, len: usize) -> io::Result<usize>;

    /// Sets a file's length.
    async fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()>;

    /// Resolves a position as `lseek(2)` does.
    async fn seek(&self, file: &Self::File, to: SeekFrom) -> io::Result<u64>;

    /// Opens a regular file by name.
    async fn open(&self, call: OpenCall) -> io::Result<Self::File>;

    /// Executes a call on names.
    async fn name(&self, call: NameCall) -> io::Result<Answer>;

    /// How I/O is executed, for people.
    fn describe(&self) -> String;
}

/// The files of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    engines: Rc<Engines>,
}

impl Machine {
    pub(crate) fn new(engines: Engines) -> Self {
        Self { engines: Rc::new(engines) }
    }
}

impl Storage for Machine {
    type File = uring::File;

    fn status(&self, file: &uring::File) -> io::Result<Status> {
        Ok(Status::from(&fstat(file)?))
    }

    async fn read(&self, file: &uring::File, at: u64, into: Buffers) -> io::Result<usize> {
        self.engines.read(file, at, into).await
    }

    async fn write(&self, file: &uring::File, at: u64, from: Buffers) -> io::Result<usize> {
        self.engines.write(file, at, from).await
    }

    async fn sync(&self, file: &uring::File, data_only: bool) -> io::Result<()> {
        self.engines.sync(file, data_only).await
    }

    async fn fetch(&self, file: &uring::File, at: u64, len: usize) -> io::Result<usize> {
        self.engines.fetch(file, at, len).await
    }

    async fn truncate(&self, file: &uring::File, len: u64) -> io::Result<()> {
        let file = file.clone();
        let call = move || Ok(ftruncate(&file, len).map(|()| 0)?);
        self.engines.call(call).await.map(drop)
    }

    async fn seek(&self, file: &uring::File, to: SeekFrom) -> io::Result<u64> {
        let file = file.clone();
        self.engines.call(move || Ok(seek(&file, to)?)).await
    }

    async fn open(&self, call: OpenCall) -> io::Result<uring::File> {
        let slot = names::Shared::default();
        let opened = slot.clone();
        self.engines.call(move || opened.fill(names::open(&call)?)).await?;
        slot.take()
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        let slot = names::Shared::default();
        let answered = slot.clone();
        self.engines.call(move || answered.fill(names::execute(&call)?)).await?;
        slot.take()
    }

    fn describe(&self) -> String {
        self.engines.describe()
    }
}

/// Whether a file's mode is that of a regular file.
pub(crate) fn is_regular(status: &Status) -> bool {
    let mode = u32::try_from(status.mode()).unwrap_or_default();
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
