//! The files of this machine, by its engines.

use std::{io, os::fd::OwnedFd, rc::Rc};

use rustix::io::Errno;
use uring::{Buffers, Engines, ForeignFd};
use wire::{FoundLock, Status};

use crate::{
    Locking, Storage,
    lock_call::LockCall,
    names::{self, Answer, FileCall, Identity, NameCall, OpenCall},
    scope::Scope,
    verdict::errno,
};

/// The files of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    engines: Rc<Engines>,
    scope: Scope,
}

impl Machine {
    /// The whole machine.
    pub fn new(engines: Engines) -> Self {
        Self { engines: Rc::new(engines), scope: Scope::Machine }
    }

    /// The same machine, with its names looked up in `scope`.
    pub fn at(&self, scope: Scope) -> Self {
        Self { engines: Rc::clone(&self.engines), scope }
    }

    /// Where its names are looked up.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Writes what many files share: see [`Engines::write_whole`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn write_whole(
        &self,
        file: &uring::File,
        at: u64,
        from: Buffers,
    ) -> io::Result<usize> {
        self.engines.write_whole(file, at, from).await
    }

    /// Takes care of descriptors that somebody else has opened.
    pub fn all_foreign(&self, fds: Vec<OwnedFd>) -> Vec<ForeignFd> {
        fds.into_iter().map(|fd| ForeignFd::new(&self.engines, fd)).collect()
    }

    /// Device and inode of a file that a client handed over; `None`: it is no regular one.
    pub fn identify(file: &uring::File) -> Option<Identity> {
        file.is_regular().then(|| (file.device(), file.inode()))
    }

    /// Brings `len` bytes at `at` into the page cache; returns how many are there.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub async fn fetch(&self, file: &uring::File, at: u64, len: usize) -> io::Result<usize> {
        file.leave_direct();
        self.engines.fetch(file, at, len).await
    }

    /// How I/O is executed, for people.
    pub fn describe(&self) -> String {
        self.engines.describe()
    }

    /// Runs a blocking function on an engine thread, and again while it is interrupted: no signal
    /// of the program's has done that.
    ///
    /// # Errors
    ///
    /// The function's.
    pub async fn call<T: Send + 'static>(
        &self,
        call: impl Fn() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = names::Shared::default();
        self.engines.call(filling(&slot, call)).await?;
        slot.take()
    }

    /// The same, for a function that may wait for the device of `file`.
    async fn call_on<T: Send + 'static>(
        &self,
        file: &uring::File,
        call: impl Fn(&uring::File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (slot, held) = (names::Shared::default(), file.clone());
        self.engines.call_on(file, filling(&slot, move || call(&held))).await?;
        slot.take()
    }
}

/// Returns a closure that fills `slot` with the result of `call`, on any thread.
fn filling<T: Send + 'static>(
    slot: &names::Shared<T>,
    call: impl Fn() -> io::Result<T> + Send + 'static,
) -> impl FnOnce() -> io::Result<u64> + Send + 'static {
    let slot = slot.clone();
    move || loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return slot.fill(done?),
        }
    }
}

impl Storage for Machine {
    type File = uring::File;

    async fn on(&self, file: &uring::File, call: FileCall) -> io::Result<Answer> {
        match call {
            FileCall::Sync { data_only } => {
                self.engines.sync(file, data_only).await.map(|()| Answer::default())
            }
            FileCall::Status if file.is_local() => names::execute_on(file, call),
            _ => self.call_on(file, move |file| names::execute_on(file, call)).await,
        }
    }

    async fn read(&self, file: &uring::File, at: u64, into: Buffers) -> io::Result<usize> {
        file.leave_direct();
        self.engines.read(file, at, into).await
    }

    async fn write(&self, file: &uring::File, at: u64, from: Buffers) -> io::Result<usize> {
        self.engines.write_long(file, at, from).await
    }

    async fn open(&self, call: OpenCall) -> io::Result<(uring::File, Status)> {
        let (scope, asked) = (self.scope.clone(), call.clone());
        match self.call(move || names::open(&scope, &asked)).await {
            Err(why) if call.waits() && errno(&why) == Errno::AGAIN => {
                let (slot, scope) = (names::Shared::default(), self.scope.clone());
                let open = move || names::open_leased(&scope, &call);
                self.engines.call_apart(filling(&slot, open)).await?;
                slot.take()
            }
            opened => opened,
        }
    }

    async fn close(&self, file: uring::File) -> io::Result<()> {
        self.engines.close(file).await
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        let scope = self.scope.clone();
        self.call(move || names::execute(&scope, &call)).await
    }
}

impl Locking for Machine {
    async fn lock(&self, file: &uring::File, call: LockCall) -> io::Result<()> {
        self.call_on(file, move |file| call.set(file)).await
    }

    async fn find_lock(&self, file: &uring::File, call: LockCall) -> io::Result<Option<FoundLock>> {
        self.call_on(file, move |file| call.obstacle(file)).await
    }

    async fn another(&self, file: &uring::File) -> io::Result<uring::File> {
        self.call_on(file, |file| uring::File::new(names::reopen(file.fd())?)).await
    }
}
