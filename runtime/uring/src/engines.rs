//! The engines of one executor, and which of them executes what.
//!
//! | file | read | write | sync | fetch |
//! |---|---|---|---|---|
//! | tmpfs | inline | inline | inline | inline |
//! | O_DIRECT, local | ring | ring | ring | ring |
//! | local, cached | inline if cached, else ring | inline while fast, else threads | ring | ring |
//! | any other | threads | threads | threads | threads |
//!
//! Calls go to threads, and so does all that says ring where io_uring is not to be had, or has no
//! worker for it. The writes of a device that proved slow go to threads for a second; see `slow`.
//! Long streams to local files may pass by the page cache; see `ways`.

mod route;

use std::{
    cell::RefCell,
    fmt, io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use executor::{Armed, Class, Credit, Handle, Notify, Source};

use self::route::{Rights, Route};
use crate::{
    engine::{Engine, Token},
    file::{File, Kind, Storage, close},
    inline::Inline,
    operation::Operation,
    parker::{Events, Wait},
    ring::Ring,
    slow::SlowDevices,
    threads::{ANY_DEVICE, PROGRAMS, Threads},
    waiting::{Completion, Waiting},
    ways::Ways,
};

/// Most operations in flight that do not go to threads, but for detached ones: as many as fit in
/// each engine.
const IN_FLIGHT_MAX: u64 = 1024;

/// The user's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// By file and operation.
    #[default]
    Auto,
    /// Everything a ring executes goes to io_uring, if there is one.
    Uring,
    /// Everything goes to engine threads.
    Threads,
}

/// Operations taken by each engine since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Performed on the spot.
    pub inline: u64,
    /// Given to io_uring.
    pub ring: u64,
    /// Given to engine threads.
    pub threads: u64,
}

/// The engines of one executor. Cheap to clone.
#[derive(Clone)]
pub struct Engines(Rc<Inner>);

struct Inner {
    state: RefCell<State>,
    waiting: Waiting,
    /// Signalled when completions made room in an engine that detached operations had filled.
    room: Notify,
    handle: Handle,
}

struct State {
    choice: Choice,
    rights: Rights,
    inline: Inline,
    /// Or why there is none.
    ring: Result<Ring, NoRing>,
    threads: Threads,
    slow: SlowDevices,
    ways: Ways,
    counters: Counters,
    /// Which engine is reaped first, so that none uses up the budget of every visit.
    first: usize,
}

#[derive(Debug)]
enum NoRing {
    NotWanted,
    Failed(io::Error),
}

impl Engines {
    /// Sets up engines and puts them on the poll list of `handle`'s executor.
    ///
    /// `events` must be what that executor parks in. Never fails: without io_uring, threads do its
    /// work, and [`describe`](Self::describe) says why. Starts no thread yet.
    #[must_use]
    pub fn new(handle: &Handle, choice: Choice, thread_count: usize, events: &Events) -> Self {
        let ring = match choice {
            Choice::Threads => Err(NoRing::NotWanted),
            Choice::Auto | Choice::Uring => Ring::new(handle, events).map_err(NoRing::Failed),
        };
        let state = State {
            choice,
            rights: Rights::new(IN_FLIGHT_MAX),
            inline: Inline::new(),
            ring,
            threads: Threads::new(thread_count, events.unparker()),
            slow: SlowDevices::default(),
            ways: Ways::default(),
            counters: Counters::default(),
            first: 0,
        };
        let engines = Self(Rc::new(Inner {
            state: RefCell::new(state),
            waiting: Waiting::default(),
            room: Notify::new(),
            handle: handle.clone(),
        }));
        let inner = Rc::downgrade(&engines.0);
        events.park_in(inner);
        handle.add_source(Box::new(Completions(engines.clone())));
        engines
    }

    /// Makes what was written durable; with `data_only` as `fdatasync`, else as `fsync`.
    ///
    /// # Errors
    ///
    /// Those of `fsync`, which reports a lost write once.
    pub async fn sync(&self, file: &File, data_only: bool) -> io::Result<()> {
        let operation = Operation::Sync { file: Arc::clone(file.fd()), data_only };
        self.run(Some(file.storage()), operation).await.map(drop)
    }

    /// Runs a blocking function on an engine thread and returns what it returns.
    ///
    /// # Errors
    ///
    /// Those of `call`; `Other` when it panics.
    pub async fn call(
        &self,
        call: impl FnOnce() -> io::Result<u64> + Send + 'static,
    ) -> io::Result<u64> {
        self.run(None, Operation::Call(Box::new(call))).await
    }

    /// As [`call`](Self::call), for a function that may wait for the device of `file`.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_on(
        &self,
        file: &File,
        call: impl FnOnce() -> io::Result<u64> + Send + 'static,
    ) -> io::Result<u64> {
        self.run(Some(file.storage()), Operation::Call(Box::new(call))).await
    }

    /// As [`call`](Self::call), for a function that may wait for another program: what only waits
    /// for a device does not wait behind it.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_apart(
        &self,
        call: impl FnOnce() -> io::Result<u64> + Send + 'static,
    ) -> io::Result<u64> {
        let others = Storage { kind: Kind::Other, device: PROGRAMS, is_local: false };
        self.run(Some(others), Operation::Call(Box::new(call))).await
    }

    /// Runs a blocking function on an engine thread, which nobody waits for.
    pub(crate) fn call_later(&self, call: impl FnOnce() -> io::Result<u64> + Send + 'static) {
        let engines = self.clone();
        let later = async move { drop(engines.call(call).await) };
        self.0.handle.spawn(Class::Latency, later);
    }

    /// Closes a file, unless somebody else has it too: then the last one closes it. Returns the
    /// time that the kernel took, or zero.
    ///
    /// Network and user-space file systems may write what they have of it first, and say what went
    /// wrong with it; an engine thread waits for those, and for files whose close `is_quick` not.
    ///
    /// # Errors
    ///
    /// Those of `close`. The file is closed all the same.
    pub async fn close(&self, file: File, is_quick: bool) -> io::Result<Duration> {
        let storage = file.storage();
        let Some(fd) = file.into_fd() else { return Ok(Duration::ZERO) };
        let call = move || {
            let began = Instant::now();
            close(fd).map(|()| u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
        };
        let ns = if storage.is_local && is_quick {
            call()
        } else {
            self.run(Some(storage), Operation::Call(Box::new(call))).await
        };
        ns.map(Duration::from_nanos)
    }

    /// Closes a duplicate of a file's descriptor: as at every close, network and user-space file
    /// systems write what they have of it, and say what went wrong with it. Others say nothing.
    ///
    /// # Errors
    ///
    /// Those of `dup` and `close`.
    pub async fn close_duplicate(&self, file: &File) -> io::Result<()> {
        if file.is_local() {
            return Ok(());
        }
        let duplicate = file.fd().try_clone()?;
        self.call_on(file, move || close(duplicate).map(|()| 0)).await.map(drop)
    }

    /// Which engines are used and why, on one line for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.0.state.borrow();
        let threads = state.threads.thread_max();
        match &state.ring {
            Ok(ring) => format!("io_uring ({}), up to {threads} threads", ring.features()),
            Err(NoRing::NotWanted) => format!("up to {threads} threads, as asked for"),
            Err(NoRing::Failed(error)) => {
                format!("up to {threads} threads; io_uring is unavailable: {error}")
            }
        }
    }

    /// Why there is no io_uring, though it was asked for by name.
    #[must_use]
    pub fn why_no_ring(&self) -> Option<String> {
        let state = self.0.state.borrow();
        match (&state.ring, state.choice) {
            (Err(NoRing::Failed(error)), Choice::Uring) => Some(error.to_string()),
            _ => None,
        }
    }

    /// Operations taken by each engine since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.state.borrow().counters
    }

    /// Submits `operation` to its engine, by `right` or by one that nobody waits for.
    pub(crate) fn begin(
        &self,
        storage: Option<Storage>,
        operation: Operation,
        right: Option<Credit>,
    ) -> Begun {
        let mut state = self.0.state.borrow_mut();
        let route = state.route(storage, &operation, &self.0.handle);
        let right = match right {
            None => state.rights.try_take(route, storage),
            had => Ok(had),
        };
        let Ok(right) = right else { return Begun::Refused(operation, None) };
        let completion = self.0.waiting.open(right);
        let token = completion.token();
        if let Err(refused) = state.submit(route, storage, operation, token, &self.0.handle) {
            return Begun::Refused(refused, completion.close());
        }
        match state.inline.take_at_once(token) {
            None => Begun::InFlight(completion),
            Some(result) => {
                completion.close();
                Begun::Over(result)
            }
        }
    }

    /// Submits `operation`, waiting for its right and for room, and waits for its completion.
    pub(crate) async fn run(
        &self,
        storage: Option<Storage>,
        mut operation: Operation,
    ) -> io::Result<u64> {
        let mut right = None;
        loop {
            if let (None, Some(rights)) = (&right, self.rights(storage, &operation)) {
                right = Some(rights.take(1).await);
            }
            (operation, right) = match self.begin(storage, operation, right) {
                Begun::Over(result) => return result,
                Begun::InFlight(completion) => return completion.await,
                Begun::Refused(operation, right) => (operation, right),
            };
            self.0.room.notified().await;
        }
    }
}

/// Result of submitting an operation.
pub(crate) enum Begun {
    /// It was performed on the spot.
    Over(io::Result<u64>),
    InFlight(Completion),
    /// Its engine is full, or there is no right that nobody waits for.
    Refused(Operation, Option<Credit>),
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engines({})", self.describe())
    }
}

impl Wait for Inner {
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let ring = &mut self.state.borrow_mut().ring;
        ring.as_mut().is_ok_and(|ring| ring.wait(timeout))
    }
}

/// The engines on the poll list.
struct Completions(Engines);

impl Source for Completions {
    fn poll(&mut self, budget: usize) -> usize {
        let inner = &self.0.0;
        let mut done = |token, result| inner.waiting.complete(token, result);
        let count = inner.state.borrow_mut().reap(budget, &mut done);
        if count > 0 {
            inner.room.notify_all();
        }
        count
    }

    fn arm(&mut self) -> Armed {
        let mut state = self.0.0.state.borrow_mut();
        let mut is_busy = |which| state.engine(which).is_some_and(|one| one.arm() == Armed::Busy);
        if (0..ENGINE_COUNT).any(&mut is_busy) { Armed::Busy } else { Armed::Waits }
    }
}

impl State {
    fn submit(
        &mut self,
        route: Route,
        storage: Option<Storage>,
        operation: Operation,
        token: Token,
        handle: &Handle,
    ) -> Result<(), Operation> {
        match route {
            Route::Inline => self.submit_inline(storage, operation, token, handle),
            Route::Cached if self.inline.is_full() => Err(operation),
            Route::Cached => match self.inline.submit_cached(operation, token) {
                Some(cold) => self.submit_ring(storage, cold, token),
                None => {
                    self.counters.inline += 1;
                    Ok(())
                }
            },
            Route::Ring => self.submit_ring(storage, operation, token),
            Route::Threads => self.submit_threads(storage, operation, token),
        }
    }

    fn submit_ring(
        &mut self,
        storage: Option<Storage>,
        operation: Operation,
        token: Token,
    ) -> Result<(), Operation> {
        let Ok(ring) = &mut self.ring else {
            return self.submit_threads(storage, operation, token);
        };
        ring.submit(operation, token)?;
        self.counters.ring += 1;
        Ok(())
    }

    fn submit_threads(
        &mut self,
        storage: Option<Storage>,
        operation: Operation,
        token: Token,
    ) -> Result<(), Operation> {
        let device = storage.map_or(ANY_DEVICE, |storage| storage.device);
        self.threads.submit_for(device, operation, token)?;
        self.counters.threads += 1;
        Ok(())
    }

    /// Performs the operation on the spot and notes a device that is slow to take it.
    fn submit_inline(
        &mut self,
        storage: Option<Storage>,
        operation: Operation,
        token: Token,
        handle: &Handle,
    ) -> Result<(), Operation> {
        let device = storage.filter(|of| of.kind != Kind::Memory).map(|of| of.device);
        let observed = device.map(|device| self.slow.begin(device, handle));
        self.inline.submit(operation, token)?;
        self.counters.inline += 1;
        if let Some(observed) = observed {
            self.slow.end(&observed, handle);
        }
        Ok(())
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        self.first = (self.first + 1) % ENGINE_COUNT;
        let mut count = 0;
        for which in self.first..self.first + ENGINE_COUNT {
            if let Some(engine) = self.engine(which) {
                count += engine.reap(budget.saturating_sub(count), done);
            }
        }
        self.hand_over();
        count
    }

    /// Has threads do what the kernel had no worker for.
    fn hand_over(&mut self) {
        let Ok(ring) = &mut self.ring else { return };
        while let Some((token, operation)) = ring.unserved.pop() {
            match self.threads.submit(operation, token) {
                Ok(()) => self.counters.threads += 1,
                // Full: what makes room is followed by the next try.
                Err(refused) => return ring.unserved.push((token, refused)),
            }
        }
    }

    /// Each of them for [`ENGINE_COUNT`] numbers in a row.
    fn engine(&mut self, which: usize) -> Option<&mut dyn Engine> {
        match which % ENGINE_COUNT {
            0 => Some(&mut self.inline),
            1 => self.ring.as_mut().ok().map(|ring| ring as &mut dyn Engine),
            _ => Some(&mut self.threads),
        }
    }
}

const ENGINE_COUNT: usize = 3;

#[cfg(test)]
mod tests;
