//! The engine that hands operations to the kernel through io_uring.
//!
//! Belongs to the thread that made it. Submissions are batched: entries go to the kernel when they
//! are worth a system call (`batch`), or when the executor blocks. Until then transfers that gather
//! wait for more of their kind. Others go when nothing else is in flight, when the oldest has
//! waited 20 us, or when the kernel is to post completions.
//!
//! # Blocking
//!
//! While something is in flight the executor blocks in the ring, by the call that submits, waits,
//! and has completions posted. One entry of it watches the [`Events`], pushed when the executor
//! blocks and the last one was used up: so wake-ups and descriptors end that wait as well.
//!
//! # Without workers
//!
//! What would block, the kernel gives to a worker thread of its own. Where the user may have no
//! more threads (`ulimit -u`, a container's limit) it cancels the operation instead, and what a
//! worker does may be interrupted, as in a network file system. Of a file with `O_NONBLOCK`, which
//! its program may set at any time, it refuses what would block where the file system cannot try
//! without (`EAGAIN`), although a plain call of such a file blocks. Those are left in `unserved`
//! for another engine.
//!
//! # Ownership
//!
//! `in_flight` owns every operation from submission until its completion is reaped. Dropping the
//! engine cancels and waits; what the kernel still holds after a bounded wait is leaked, and the
//! ring is closed before anything in flight is freed.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use executor::{Armed, Handle, Idle};
use io_uring::{
    EnterFlags, IoUring, opcode, squeue,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::event::PollFlags;
use slab::Slab;

use crate::{
    batch::Batch,
    engine::{Engine, Token},
    entry::entry,
    memory::{Buffer, Heap},
    operation::{Operation, SINK_LEN},
    parker::Events,
    run::{Run, RunSize},
    set_up::set_up,
    span::Span,
};

/// Room for entries that the kernel has not taken. The completion queue holds twice as many.
const ENTRIES: u32 = 1024;

/// Most operations in flight. One entry is left to the watch: so neither queue can overflow, also
/// while the kernel, short of memory, takes nothing.
const IN_FLIGHT_MAX: u32 = ENTRIES - 1;

/// The kernel's clock ends some 292 years after its start: what waits longer waits without limit.
const WAIT_MAX: Duration = Duration::from_secs(1 << 32);

/// Waits of 100 ms for the kernel to give operations back when the engine is dropped.
const DROP_WAITS_MAX: u32 = 100;

/// The user data of cancellations and empty entries, which own nothing.
const NOTHING: u64 = u64::MAX;

/// The user data of the operation that watches the descriptors of [`Events`].
const WATCH: u64 = u64::MAX - 1;

/// An io_uring instance of one executor.
pub(crate) struct Ring {
    /// First, so that it is closed before `in_flight` is freed.
    ring: IoUring,
    in_flight: Slab<InFlight>,
    /// The run begun last, as long as its entry is not queued: more may join it.
    open: Option<(usize, RunSize)>,
    batch: Batch,
    handle: Handle,
    sink: Buffer,
    /// Flags that the kernel allowed, for people.
    flags: &'static str,
    /// Given back by the kernel, which has moved nothing; not reported.
    pub(crate) unserved: Vec<(Token, Operation)>,
    events: Events,
    /// An operation that ends when `events` has something is with the kernel, or reported.
    is_watching: bool,
}

struct InFlight {
    run: Run,
    /// Read by the kernel at submission, which may be later than the push. Empty for one place.
    vectors: Vec<libc::iovec>,
}

impl Ring {
    /// Sets up a ring that the executor blocks in while anything is in flight; what `events` waits
    /// for ends that, too.
    ///
    /// # Errors
    ///
    /// - `ENOSYS`, `EPERM`, `EACCES`: the kernel has no io_uring, or forbids it.
    /// - `ENOMEM`: the locked-memory limit is too small (kernels before 5.12).
    /// - `Unsupported`: the kernel's io_uring lacks an operation needed here.
    pub(crate) fn new(handle: &Handle, events: &Events) -> io::Result<Self> {
        let (ring, flags) = set_up(ENTRIES)?;
        Ok(Self {
            ring,
            in_flight: Slab::with_capacity(IN_FLIGHT_MAX as usize),
            open: None,
            batch: Batch::default(),
            handle: handle.clone(),
            sink: Heap::buffer(SINK_LEN),
            flags,
            unserved: Vec::new(),
            events: events.clone(),
            is_watching: false,
        })
    }

    /// The set-up that the kernel allowed, for people.
    #[must_use]
    pub(crate) fn features(&self) -> &'static str {
        self.flags
    }

    /// Gives queued entries to the kernel and blocks until an operation is complete, `events` has
    /// something, or `timeout` has passed. Returns `false` at once when nothing is in flight.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        self.close_run();
        if !self.is_watching {
            let epoll = Fd(self.events.as_fd().as_raw_fd());
            let flags = PollFlags::IN.bits().into();
            self.push(&opcode::PollAdd::new(epoll, flags).build().user_data(WATCH));
            self.is_watching = true;
        }
        let timeout = timeout.filter(|timeout| *timeout <= WAIT_MAX).map(Timespec::from);
        let mut bounds = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            bounds = bounds.timespec(timeout);
        }
        // ETIME, EINTR and what `enter` may meet: the next turn sees what there is.
        drop(self.ring.submitter().submit_with_args(1, &bounds));
        self.batch.len = self.ring.submission().len();
        true
    }

    /// Gives queued entries to the kernel, and lets it post completions.
    fn enter(&mut self) {
        self.close_run();
        // EAGAIN, EBUSY, EINTR: what the kernel did not take stays queued for the next turn.
        drop(self.ring.submit());
        self.batch.len = self.ring.submission().len();
    }

    /// Has the kernel post completions, and gives it nothing.
    fn fetch(&mut self) {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted, and no argument is passed.
        let fetched = unsafe { self.ring.submitter().enter::<()>(0, 0, flags, None) };
        drop(fetched); // As in `enter`.
    }

    /// Takes a run in flight, to be queued.
    fn begin(&mut self, run: Run) -> usize {
        self.in_flight.insert(InFlight { run, vectors: Vec::new() })
    }

    /// Queues the run that more might join.
    fn close_run(&mut self) {
        if let Some((key, _)) = self.open.take() {
            self.queue(key);
        }
    }

    /// Queues the entry of a run.
    fn queue(&mut self, key: usize) {
        let Some(InFlight { run, vectors }) = self.in_flight.get_mut(key) else { return };
        let made = entry(run, &self.sink, vectors);
        let entry = made.expect("a run has operations that a ring executes");
        self.push(&entry.user_data(key as u64));
    }

    /// Runs that the kernel has not been given.
    fn queued(&mut self) -> usize {
        self.ring.submission().len() + usize::from(self.open.is_some())
    }

    /// How many operations the device has left to do, or 0 when nobody knows.
    fn left(&mut self) -> usize {
        let (_, submission, completion) = self.ring.split();
        if submission.taskrun() {
            return 0; // Some completions wait to be posted.
        }
        let queued = submission.len() + usize::from(self.open.is_some());
        self.in_flight.len().saturating_sub(queued + completion.len())
    }

    fn submission_is_due(&mut self) -> bool {
        let is_alone = self.in_flight.len() == self.queued();
        let blocks = matches!(self.handle.idle(), Idle::Park | Idle::Interrupt);
        let may_block = blocks && !self.handle.has_backlog();
        self.batch.visit(is_alone, may_block, self.handle.lately())
    }

    /// Reports what the kernel says of a run, and has done what it has left of it.
    fn finish(&mut self, run: Run, value: i32, done: &mut dyn FnMut(Token, io::Result<u64>)) {
        if [-libc::ECANCELED, -libc::EINTR, -libc::EAGAIN].contains(&value) {
            self.unserved.extend(run.into_operations());
        } else if let Some(run) = run.finish(result(value), done) {
            for one in run.operations() {
                self.batch.note(Span::of(one).as_ref(), self.handle.lately());
            }
            let key = self.begin(run);
            self.queue(key);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: `in_flight` owns the operation the entry was made from, with its descriptor,
        // buffers and vectors, none of which moves, until the completion is reaped; what is fetched
        // goes to `sink`, which lives as long. Cancellations and the watch name no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the queue has room for as many as may be in flight, and for the watch");
    }

    /// Asks the kernel to give back what is in flight.
    fn cancel_all(&mut self) {
        let keys: Vec<_> = self.in_flight.iter().map(|(key, _)| key as u64).collect();
        for key in keys {
            if self.ring.submission().is_full() {
                return; // The kernel took nothing just now; waiting must do.
            }
            let entry = opcode::AsyncCancel::new(key).build().user_data(NOTHING);
            self.push(&entry);
        }
    }

    /// Leaks all that the kernel may still read or write, so that nobody else gets that memory.
    fn abandon(&mut self) {
        Box::leak(Box::new((mem::take(&mut self.in_flight), self.sink.clone())));
    }
}

impl Engine for Ring {
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Operation> {
        if self.in_flight.len() == IN_FLIGHT_MAX as usize {
            return Err(operation);
        }
        let span = Span::of(&operation);
        self.batch.note(span.as_ref(), self.handle.lately());
        let open = self
            .open
            .as_mut()
            .and_then(|(key, size)| size.takes(&operation, span.as_ref()).then_some(*key));
        match open.and_then(|key| self.in_flight.get_mut(key)) {
            Some(InFlight { run, .. }) => run.join(operation, token),
            None => {
                self.close_run();
                let size = RunSize::new(&operation, span);
                let key = self.begin(Run::new(operation, token));
                match size {
                    Some(size) => self.open = Some((key, size)),
                    None => self.queue(key),
                }
            }
        }
        let left = self.left();
        if self.batch.is_worth_a_call(left) {
            self.enter();
        }
        Ok(())
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        if self.in_flight.is_empty() {
            self.batch.served(0);
            return 0;
        }
        let (is_due, holds_back) = (self.submission_is_due(), self.ring.submission().taskrun());
        match (is_due, holds_back) {
            (false, true) if self.batch.is_gathered() => self.fetch(),
            (false, false) => {}
            _ => self.enter(),
        }
        let mut count = 0;
        while count < budget {
            let Some(completion) = self.ring.completion().next() else { break };
            if completion.user_data() == WATCH {
                self.is_watching = false;
                self.events.look();
                continue;
            }
            let key = usize::try_from(completion.user_data()).ok();
            let Some(InFlight { run, .. }) = key.and_then(|key| self.in_flight.try_remove(key))
            else {
                continue; // A cancellation.
            };
            let mut counted = |token, result| {
                count += 1;
                done(token, result);
            };
            self.finish(run, completion.result(), &mut counted);
        }
        self.batch.served(count);
        count
    }

    fn arm(&mut self) -> Armed {
        if self.in_flight.is_empty() {
            return Armed::Waits;
        }
        let ready = self.ring.submission().taskrun() || !self.ring.completion().is_empty();
        if ready { Armed::Busy } else { Armed::Waits }
    }
}

impl Drop for Ring {
    /// Waits until the kernel has given back every operation, at most ten seconds.
    ///
    /// Closing the ring would not do: the kernel finishes requests after the close, and would
    /// write to memory that is someone else's by then.
    fn drop(&mut self) {
        self.enter();
        self.cancel_all();
        let timeout = Timespec::from(Duration::from_millis(100));
        for _ in 0..DROP_WAITS_MAX {
            while self.reap(usize::MAX, &mut |_, _| {}) > 0 {}
            if self.in_flight.is_empty() {
                return;
            }
            drop(self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout)));
        }
        self.abandon();
    }
}

/// A negative result is an error number.
fn result(value: i32) -> io::Result<u64> {
    u64::try_from(value).map_err(|_| io::Error::from_raw_os_error(value.wrapping_neg()))
}

#[cfg(test)]
mod tests;
