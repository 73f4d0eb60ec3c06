//! A UCX worker on the poll list of an executor.

use std::{
    cell::Cell,
    ffi::{c_int, c_uint, c_void},
    mem,
    os::fd::{AsFd, BorrowedFd, RawFd},
    ptr,
    rc::{Rc, Weak},
    slice,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use executor::{Armed, Class, Handle, Source, SourceId};

use crate::{
    abi,
    address::Address,
    config::Config,
    endpoint::Endpoint,
    error::{Error, Status},
    library::Library,
    pool::{Memory, PAGE_LEN, Pool},
    state::{State, on_message},
};

/// Most progress calls of one visit. UCX never says that nothing is left while a peer sends, and
/// what several calls bring leaves the cache before tasks see it.
const PROGRESS_MAX: usize = 2;

/// So many visits in a row count that found progress nobody waits for. UCX makes some every second
/// when nothing happens at all, and an executor that counted it would never be quiet.
const VAIN_MAX: u32 = 4;

/// The id of the only kind of active message used here.
pub(crate) const MESSAGE_ID: c_uint = 0;

/// The longest a worker being dropped waits for its endpoints to close.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// How often a worker that is gone looks for what it has lent.
const REMINDER: Duration = Duration::from_millis(10);

/// A UCX worker of one executor. Cheap to clone.
///
/// Belongs to the thread that made it. Leaves the poll list, and frees UCX's resources, when the
/// last clone and [`Endpoint`] is dropped.
#[derive(Clone)]
pub struct Worker(Rc<Core>);

/// Resources of a worker at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Requests that UCX has not completed.
    pub operations: usize,
    /// Receive buffers nobody has.
    pub free_buffers: usize,
    /// Of the others, those whose messages stay where UCX received them.
    pub lent: usize,
    /// Messages put off: until others of that peer have come, or for want of a buffer.
    pub put_off: usize,
    /// Endpoints not closed.
    pub endpoints: usize,
}

/// The UCX objects of a worker.
pub(crate) struct Core {
    /// Callbacks refer to it; dropped after `worker` is destroyed.
    pub(crate) state: Rc<State>,
    event_fd: RawFd,
    handle: Handle,
    /// On the poll list, from the end of [`Worker::new`] on.
    source: Cell<Option<SourceId>>,
    /// `None` once its worker's end is somebody else's matter.
    context: Option<OwnedContext>,
}

impl Worker {
    /// Opens libucp, makes a worker and puts it on the poll list of `handle`'s executor.
    ///
    /// That executor must park in something that waits for [`as_fd`](AsFd::as_fd) to be readable.
    ///
    /// # Errors
    ///
    /// - [`Error::Missing`], [`Error::Version`], [`Error::Function`]: no library that serves.
    /// - [`Error::Ucx`]: UCX refused, as it does when no transport of the configuration exists.
    pub fn new(handle: &Handle, config: &Config) -> Result<Self, Error> {
        Self::with_pool(handle, config, Pool::new(config.buffer_count, config.buffer_len))
    }

    /// The same, with receive buffers in `memory`, which may be shared with a device: as many as
    /// begin at a page there, at most the configured number.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn with_memory(
        handle: &Handle,
        config: &Config,
        memory: Arc<Memory>,
    ) -> Result<Self, Error> {
        let pool = Pool::within(memory, config.buffer_count, config.buffer_len);
        Self::with_pool(handle, config, pool)
    }

    fn with_pool(handle: &Handle, config: &Config, pool: Arc<Pool>) -> Result<Self, Error> {
        let library = Library::open(&config.library)?;
        let context = OwnedContext::new(library, config)?;
        let core = Rc::new(Core::new(handle, context, config, pool)?);
        let progress = Progress { core: Rc::downgrade(&core), refused: false, vain: 0 };
        core.source.set(Some(handle.add_source(Box::new(progress))));
        Ok(Self(core))
    }

    /// Returns the argument for [`connect_worker`](Self::connect_worker) of another process.
    ///
    /// # Errors
    ///
    /// [`Error::Ucx`]: UCX is out of memory.
    pub fn address(&self) -> Result<Address, Error> {
        let (state, mut raw, mut len) = (&self.0.state, ptr::null_mut(), 0);
        // SAFETY: two places for the result.
        let status = unsafe {
            (state.library.ucp_worker_get_address)(state.worker, &raw mut raw, &raw mut len)
        };
        Status::check(status, "ucp_worker_get_address")?;
        // SAFETY: so many bytes, until they are released.
        let address = Address::new(unsafe { slice::from_raw_parts(raw.cast::<u8>(), len) });
        // SAFETY: got above and released once.
        unsafe { (state.library.ucp_worker_release_address)(state.worker, raw) };
        Ok(address)
    }

    /// Connects to the worker of another process.
    ///
    /// Both sides must connect, each with the other's address. What arrives from a worker before
    /// this one has connected to it is discarded: let the side that sends first connect last.
    ///
    /// UCX counts on each side how often it has connected to the other, and matches by that. Once
    /// one side has connected and the other has not, these two never meet again: where an attempt
    /// may come to nothing, use a new worker on one side for each.
    ///
    /// # Errors
    ///
    /// [`Error::Ucx`]: no transport reaches that worker.
    pub fn connect_worker(&self, address: &Address) -> Result<Endpoint, Error> {
        Endpoint::new(&self.0, address)
    }

    /// Checks that libucp can be loaded, for a program that needs it later.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`], [`Error::Version`], [`Error::Function`]: no library that serves.
    pub fn probe(config: &Config) -> Result<(), Error> {
        Library::open(&config.library).map(drop)
    }

    /// Returns the present resources of this worker.
    #[must_use]
    pub fn held(&self) -> Held {
        let state = &self.0.state;
        Held {
            operations: state.in_flight.get(),
            free_buffers: state.pool.free_count(),
            lent: state.pool.loans.count(),
            put_off: state.put_off_count(),
            endpoints: state.peer_count(),
        }
    }
}

impl AsFd for Worker {
    /// Readable when the worker, armed before, has events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the worker's own descriptor, open until it is destroyed; `self` prevents that.
        unsafe { BorrowedFd::borrow_raw(self.0.event_fd) }
    }
}

/// A worker on the poll list.
struct Progress {
    core: Weak<Core>,
    /// Nothing has happened since UCX last refused to be armed.
    refused: bool,
    /// Visits in a row in which UCX has made progress that nobody waits for.
    vain: u32,
}

impl Source for Progress {
    /// Makes up to `budget` progress calls, at most [`PROGRESS_MAX`]. Each may bring several
    /// messages, as many as one look at every transport finds. Ends early when one finds no
    /// buffer: the tasks that have them come first. One call is made even then, because a buffer
    /// may be what a send waits with.
    fn poll(&mut self, budget: usize) -> usize {
        let Some(core) = self.core.upgrade() else { return 0 };
        let state = &core.state;
        state.take_back();
        let (mut events, mut progress) = (state.serve(), 0);
        let is_awaited = state.in_flight.get() > 0;
        for _ in 0..budget.min(PROGRESS_MAX) {
            // SAFETY: the worker lives, on this thread, and this is no callback.
            let progressed = unsafe { (state.library.ucp_worker_progress)(state.worker) };
            events += state.serve();
            progress += usize::from(progressed > 0);
            if progressed == 0 || state.lacks_buffers() {
                break;
            }
        }
        events += state.close_failed();
        self.refused &= events + progress == 0;
        let is_vain = !is_awaited && !state.has_heard.take() && events == 0;
        self.vain = if is_vain { self.vain.saturating_add(u32::from(progress > 0)) } else { 0 };
        // Some of it may be parts of a message.
        if self.vain > VAIN_MAX { events } else { events + progress }
    }

    fn arm(&mut self) -> Armed {
        let Some(core) = self.core.upgrade() else { return Armed::Waits };
        let state = &core.state;
        if state.has_work() {
            return Armed::Busy;
        }
        // SAFETY: the worker lives and was made with the wake-up feature.
        let status = unsafe { (state.library.ucp_worker_arm)(state.worker) };
        if status == abi::OK {
            self.refused = false;
            return Armed::Waits;
        }
        // Refused once is a race. Refused again with nothing to do: a send waits for room in
        // shared memory, of which no descriptor tells. The peer that makes it may want this core:
        // on 2 busy vCPUs, 1 MiB took 12 ms each way, and 0.14 ms with this.
        if mem::replace(&mut self.refused, true) {
            thread::yield_now();
        }
        Armed::Busy
    }
}

impl Core {
    fn new(
        handle: &Handle,
        context: OwnedContext,
        config: &Config,
        pool: Arc<Pool>,
    ) -> Result<Self, Error> {
        let library = context.library;
        let state = Rc::new(State::new(library, context.create_worker()?, pool, config));
        let (handle, source) = (handle.clone(), Cell::new(None));
        let mut core = Self { state, event_fd: -1, handle, source, context: Some(context) };
        let state = &core.state;
        let handler = abi::MessageHandler {
            field_mask: abi::MESSAGE_HANDLER_FIELD_ID
                | abi::MESSAGE_HANDLER_FIELD_CALLBACK
                | abi::MESSAGE_HANDLER_FIELD_ARG,
            id: MESSAGE_ID,
            flags: 0,
            on_message: Some(on_message),
            arg: Rc::as_ptr(state).cast_mut().cast::<c_void>(),
        };
        // SAFETY: the state stays in place until after the worker is destroyed.
        let status =
            unsafe { (library.ucp_worker_set_am_recv_handler)(state.worker, &raw const handler) };
        Status::check(status, "ucp_worker_set_am_recv_handler")?;
        let mut event_fd: c_int = -1;
        // SAFETY: a place for the result; the worker was made with the wake-up feature.
        let status = unsafe { (library.ucp_worker_get_efd)(state.worker, &raw mut event_fd) };
        Status::check(status, "ucp_worker_get_efd")?;
        core.event_fd = event_fd;
        Ok(core)
    }
}

impl Drop for Core {
    /// Cuts every connection and destroys the worker, or has that done once nobody reads what it
    /// has lent. Blocks until peers on this machine and the local side of others have let go, at
    /// most [`CLOSE_TIME_MAX`]. What UCX has not given back by then is leaked.
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            self.handle.remove_source(source);
        }
        let state = &self.state;
        state.close_all();
        let deadline = Instant::now() + CLOSE_TIME_MAX;
        while state.in_flight.get() > 0 && Instant::now() < deadline {
            // SAFETY: the worker lives, on this thread, and this is no callback.
            unsafe { (state.library.ucp_worker_progress)(state.worker) };
            state.close_failed();
        }
        let Some(context) = self.context.take() else { return };
        let remains = Remains { state: Rc::clone(state), context: Some(context) };
        if remains.are_lent() {
            let handle = self.handle.clone();
            self.handle.spawn(Class::Throughput, async move {
                while remains.are_lent() {
                    handle.sleep(REMINDER).await;
                }
            });
        }
    }
}

/// The UCX objects of a worker that nobody has any more, but perhaps what it has lent.
struct Remains {
    state: Rc<State>,
    /// Freed after the worker.
    context: Option<OwnedContext>,
}

impl Remains {
    /// True if somebody reads in the worker's memory.
    fn are_lent(&self) -> bool {
        self.state.take_back();
        self.state.pool.loans.count() > 0
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        if self.are_lent() {
            // The executor ends before: nothing gives the memory back.
            Box::leak(Box::new((Rc::clone(&self.state), self.context.take())));
        } else {
            // SAFETY: endpoints held the worker, so they are gone.
            unsafe { (self.state.library.ucp_worker_destroy)(self.state.worker) };
        }
    }
}

/// A `ucp_context_h`.
struct OwnedContext {
    library: Library,
    raw: *mut abi::Context,
}

impl OwnedContext {
    fn new(library: Library, config: &Config) -> Result<Self, Error> {
        let settings = config.settings.read(library)?;
        let params = abi::Params {
            field_mask: abi::PARAM_FIELD_FEATURES,
            features: abi::FEATURE_AM | abi::FEATURE_WAKEUP,
            request_size: 0,
            request_init: ptr::null(),
            request_cleanup: ptr::null(),
            tag_sender_mask: 0,
            mt_workers_shared: 0,
            estimated_num_eps: 0,
            estimated_num_ppn: 0,
            name: ptr::null(),
        };
        let ((major, minor), mut raw) = (abi::API_VERSION, ptr::null_mut());
        // SAFETY: the parameters are laid out as that version of the interface has them.
        let status = unsafe {
            (library.ucp_init_version)(
                major,
                minor,
                &raw const params,
                settings.as_ptr(),
                &raw mut raw,
            )
        };
        Status::check(status, "ucp_init")?;
        Ok(Self { library, raw })
    }

    fn create_worker(&self) -> Result<*mut abi::Worker, Error> {
        let params = abi::WorkerParams {
            field_mask: abi::WORKER_PARAM_FIELD_THREAD_MODE | abi::WORKER_PARAM_FIELD_ALIGNMENT,
            thread_mode: abi::THREAD_MODE_SINGLE,
            cpu_mask: [0; 16],
            events: 0,
            user_data: ptr::null_mut(),
            event_fd: -1,
            flags: 0,
            name: ptr::null(),
            am_alignment: PAGE_LEN,
            client_id: 0,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context lives; the parameters are laid out as the interface has them.
        let status =
            unsafe { (self.library.ucp_worker_create)(self.raw, &raw const params, &raw mut raw) };
        Status::check(status, "ucp_worker_create")?;
        Ok(raw)
    }
}

impl Drop for OwnedContext {
    fn drop(&mut self) {
        // SAFETY: made once, freed once; its worker is destroyed.
        unsafe { (self.library.ucp_cleanup)(self.raw) };
    }
}
