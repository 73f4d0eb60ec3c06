//! The future of a read or a write. A task holds one for each that it has under way, so it is
//! small, and allocates only what has to wait for room.

use std::{
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    engines::{Begun, Engines},
    file::{File, Storage},
    memory::Buffers,
    operation::Operation,
    waiting::Completion,
};

impl Engines {
    /// Reads at `at` bytes from the start and returns the bytes read; 0 at the end of the file.
    ///
    /// May return fewer bytes than asked. Starts when first polled; dropping the future detaches
    /// the operation, which keeps `into` until it is over.
    ///
    /// # Errors
    ///
    /// Those of `preadv`.
    pub fn read(
        &self,
        file: &File,
        at: u64,
        into: Buffers,
    ) -> impl Future<Output = io::Result<usize>> + use<> {
        let operation = Operation::Read { file: Arc::clone(file.fd()), at, into };
        Transfer::new(self, file.storage(), operation)
    }

    /// Writes at `at` bytes from the start and returns the bytes written.
    ///
    /// May write fewer bytes than asked; otherwise as [`read`](Self::read). A dropped future does
    /// not take the write back.
    ///
    /// # Errors
    ///
    /// Those of `pwritev`. What a failed write has changed is unknown.
    pub fn write(
        &self,
        file: &File,
        at: u64,
        from: Buffers,
    ) -> impl Future<Output = io::Result<usize>> + use<> {
        let fd = Arc::clone(file.fd());
        let operation = Operation::Write { file: fd, at, from, is_whole: false };
        Transfer::new(self, file.storage(), operation)
    }

    /// As [`write`](Self::write), by one call where that is made on the spot: 1 MiB to a RAM disk
    /// takes about 250 us, in which the executor does nothing else. For what many files share.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_whole(
        &self,
        file: &File,
        at: u64,
        from: Buffers,
    ) -> impl Future<Output = io::Result<usize>> + use<> {
        let fd = Arc::clone(file.fd());
        let operation = Operation::Write { file: fd, at, from, is_whole: true };
        Transfer::new(self, file.storage(), operation)
    }

    /// Brings up to [`FETCH_LEN_MAX`](crate::FETCH_LEN_MAX) bytes at `at` into the page cache and
    /// returns how many are there; 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// Those of `preadv`.
    pub fn fetch(
        &self,
        file: &File,
        at: u64,
        len: usize,
    ) -> impl Future<Output = io::Result<usize>> + use<> {
        let operation = Operation::Fetch { file: Arc::clone(file.fd()), at, len };
        Transfer::new(self, file.storage(), operation)
    }
}

/// Starts when first polled; resolves to the bytes transferred.
pub(crate) struct Transfer {
    engines: Engines,
    state: State,
}

enum State {
    New(Storage, Operation),
    InFlight(Completion),
    /// There was no room for it.
    Waits(Pin<Box<dyn Future<Output = io::Result<u64>>>>),
    Over,
}

impl Transfer {
    pub(crate) fn new(engines: &Engines, storage: Storage, operation: Operation) -> Self {
        Self { engines: engines.clone(), state: State::New(storage, operation) }
    }

    /// Submits the operation; returns its result where that is known at once.
    fn begin(&mut self) -> Option<io::Result<u64>> {
        let new = mem::replace(&mut self.state, State::Over);
        let State::New(storage, operation) = new else { return None };
        self.state = match self.engines.begin(Some(storage), operation, None) {
            Begun::Over(result) => return Some(result),
            Begun::InFlight(completion) => State::InFlight(completion),
            Begun::Refused(operation, right) => {
                drop(right); // Its turn comes again, in line.
                let engines = self.engines.clone();
                let run = async move { engines.run(Some(storage), operation).await };
                State::Waits(Box::pin(run))
            }
        };
        None
    }
}

impl Future for Transfer {
    type Output = io::Result<usize>;

    /// # Panics
    ///
    /// Panics when polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if matches!(self.state, State::New(..)) {
            if let Some(result) = self.begin() {
                return Poll::Ready(len(result));
            }
        }
        let result = match &mut self.state {
            State::InFlight(completion) => ready!(Pin::new(completion).poll(context)),
            State::Waits(run) => ready!(run.as_mut().poll(context)),
            State::New(..) | State::Over => unreachable!("a result is fetched once"),
        };
        self.state = State::Over;
        Poll::Ready(len(result))
    }
}

fn len(result: io::Result<u64>) -> io::Result<usize> {
    result.map(|len| usize::try_from(len).unwrap_or(usize::MAX))
}
