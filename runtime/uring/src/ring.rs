//! The engine that hands operations to the kernel through io_uring.
//!
//! Belongs to the thread that made it. Submissions are batched: entries go to the kernel when as
//! many are queued as the device has left to do (at least 4, at most 32), when nothing else is in
//! flight, when the oldest has waited 20 us, or when the executor is about to block. A short one
//! that continues the one before it waits for a batch of 32: the kernel makes one request of them.
//!
//! # Ownership
//!
//! `in_flight` owns every operation from submission until its completion is reaped. Dropping the
//! engine cancels and waits; what the kernel still holds after a bounded wait is leaked, and the
//! ring is closed before anything in flight is freed.

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use executor::{Armed, Handle, Instant};
use io_uring::{
    IoUring, Probe, opcode, squeue,
    types::{SubmitArgs, Timespec},
};
use slab::Slab;

use crate::{
    engine::{Engine, Refusal, Refused, Token},
    entry::entry,
    memory::{Buffer, Heap, Memory},
    operation::{Operation, SINK_LEN},
    parker::{Events, wake_fd},
};

/// Most operations in flight; the completion queue holds twice as many and cannot overflow.
const IN_FLIGHT_MAX: u32 = 1024;

/// So many queued entries are worth a system call at once, whatever the device has to do,
const BATCH_LEN: usize = 32;
/// and so many when it has nothing.
const BATCH_LEN_MIN: usize = 4;

/// A transfer up to so many bytes costs a device more by itself than as a part of a longer one.
const SHORT_LEN_MAX: usize = 16 * 1024;

/// The longest an entry stays queued while others are in flight.
const HELD_MAX: Duration = Duration::from_micros(20);

/// Waits of 100 ms for the kernel to give operations back when the engine is dropped.
const DROP_WAITS_MAX: u32 = 100;

/// The user data of cancellations, which own nothing.
const CANCEL: u64 = u64::MAX;

/// An io_uring instance of one executor.
pub struct Ring {
    /// First, so that it is closed before `in_flight` is freed.
    ring: IoUring,
    in_flight: Slab<InFlight>,
    /// Pushed to the submission queue, not yet given to the kernel.
    queued: usize,
    /// When the first of `queued` was pushed.
    oldest: Instant,
    /// File and end of the transfer pushed last, if it is short.
    last: Option<(RawFd, u64)>,
    handle: Handle,
    sink: Buffer,
    /// Pinned by the kernel: it need not look the pages up for every operation.
    registered: Option<Arc<dyn Memory>>,
    features: &'static str,
    /// Signalled by the kernel at completions; wakes the executor.
    _doorbell: OwnedFd,
}

struct InFlight {
    token: Token,
    operation: Operation,
    /// Read by the kernel at submission, which may be later than the push. Empty for one buffer.
    vectors: Box<[libc::iovec]>,
}

impl Ring {
    /// Sets up a ring whose completions end parks in `events`.
    ///
    /// # Errors
    ///
    /// - `ENOSYS`, `EPERM`, `EACCES`: the kernel has no io_uring, or forbids it.
    /// - `ENOMEM`: the locked-memory limit is too small (kernels before 5.12).
    /// - `Unsupported`: the kernel's io_uring lacks an operation needed here.
    pub fn new(handle: &Handle, events: &Events) -> io::Result<Self> {
        let (ring, features) = set_up()?;
        check_operations(&ring)?;
        let doorbell = wake_fd()?;
        ring.submitter().register_eventfd(doorbell.as_raw_fd())?;
        events.add_wake_fd(&doorbell)?;
        Ok(Self {
            ring,
            in_flight: Slab::with_capacity(IN_FLIGHT_MAX as usize),
            queued: 0,
            oldest: Instant::default(),
            last: None,
            handle: handle.clone(),
            sink: Heap::buffer(SINK_LEN),
            registered: None,
            features,
            _doorbell: doorbell,
        })
    }

    /// Has the kernel pin `memory`, which must be resident for this to be fast. Operations on one
    /// buffer in it are cheaper from now on.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: some memory is registered already.
    /// - `ENOMEM`: the locked-memory limit is too small.
    /// - `EFAULT`: more than 1 GiB, or no memory at all.
    pub fn register(&mut self, memory: Arc<dyn Memory>) -> io::Result<()> {
        let bytes = memory.bytes();
        let iov_base = bytes.as_ptr().cast_mut().cast();
        let vector = libc::iovec { iov_base, iov_len: bytes.len() };
        // SAFETY: the memory lives, in its place, as long as the ring, which holds it.
        unsafe { self.ring.submitter().register_buffers(&[vector]) }?;
        self.registered = Some(memory);
        Ok(())
    }

    /// The set-up that the kernel allowed, for people.
    #[must_use]
    pub fn features(&self) -> &'static str {
        self.features
    }

    /// Gives queued entries to the kernel, and lets it post deferred completions.
    fn enter(&mut self) {
        // EAGAIN, EBUSY, EINTR: what the kernel did not take stays queued for the next turn.
        drop(self.ring.submit());
        self.queued = self.ring.submission().len();
    }

    /// How many queued entries are worth a system call: as many as the device has to do, so that it
    /// never waits while a long batch is prepared.
    fn batch_len(&mut self) -> usize {
        if self.ring.submission().taskrun() {
            return BATCH_LEN_MIN; // Nobody knows how many completions wait to be posted.
        }
        let done = self.ring.completion().len();
        (self.in_flight.len() - self.queued - done).clamp(BATCH_LEN_MIN, BATCH_LEN)
    }

    /// Whether `operation` is short and begins where the last one ended: what goes to the kernel
    /// together becomes one request to the device.
    fn continues_last(&mut self, operation: &Operation) -> bool {
        let (file, at, buffers) = match operation {
            Operation::Read { file, at, into: buffers } => (file, *at, buffers),
            Operation::Write { file, at, from: buffers } => (file, *at, buffers),
            _ => return false,
        };
        let (fd, len) = (file.as_raw_fd(), buffers.len());
        let is_short = len <= SHORT_LEN_MAX;
        let last =
            mem::replace(&mut self.last, is_short.then(|| (fd, at.saturating_add(len as u64))));
        is_short && last == Some((fd, at))
    }

    fn submission_is_due(&self) -> bool {
        let alone = self.in_flight.len() == self.queued;
        self.queued > 0
            && (alone
                || self.queued >= BATCH_LEN
                || self.handle.now().saturating_since(self.oldest) >= HELD_MAX)
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: `in_flight` owns the operation the entry was made from, with its descriptor,
        // buffers and vectors, none of which moves, until the completion is reaped.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the queue has room for as many entries as may be in flight");
        self.queued += 1;
    }

    /// Asks the kernel to give back what is in flight.
    fn cancel_all(&mut self) {
        let keys: Vec<_> = self.in_flight.iter().map(|(key, _)| key as u64).collect();
        for key in keys {
            if self.ring.submission().is_full() {
                return; // The kernel took nothing just now; waiting must do.
            }
            let entry = opcode::AsyncCancel::new(key).build().user_data(CANCEL);
            self.push(&entry);
        }
    }
}

impl Engine for Ring {
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Refused> {
        if self.in_flight.len() == IN_FLIGHT_MAX as usize {
            return Err(Refused { operation, refusal: Refusal::Full });
        }
        let made = entry(&operation, &self.sink, self.registered.as_deref());
        let Some((entry, vectors)) = made else {
            return Err(Refused { operation, refusal: Refusal::Unsupported });
        };
        let continues = self.continues_last(&operation);
        let key = self.in_flight.insert(InFlight { token, operation, vectors });
        if self.queued == 0 {
            self.oldest = self.handle.now();
        }
        self.push(&entry.user_data(key as u64));
        let batch_len = if continues { BATCH_LEN } else { self.batch_len() };
        if self.queued >= batch_len {
            self.enter();
        }
        Ok(())
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        if self.in_flight.is_empty() {
            return 0;
        }
        if self.submission_is_due() || self.ring.submission().taskrun() {
            self.enter();
        }
        let mut count = 0;
        while count < budget {
            let Some(completion) = self.ring.completion().next() else { break };
            let key = usize::try_from(completion.user_data()).ok();
            let Some(InFlight { token, operation, vectors }) =
                key.and_then(|key| self.in_flight.try_remove(key))
            else {
                continue; // A cancellation.
            };
            drop((operation, vectors));
            done(token, result(completion.result()));
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> Armed {
        if self.in_flight.is_empty() {
            return Armed::Waits;
        }
        if self.queued > 0 {
            self.enter();
        }
        let ready = self.ring.submission().taskrun() || !self.ring.completion().is_empty();
        if ready || self.queued > 0 { Armed::Busy } else { Armed::Waits }
    }

    fn disarm(&mut self) {}
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
        Box::leak(Box::new(mem::take(&mut self.in_flight)));
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("features", &self.features)
            .field("in_flight", &self.in_flight.len())
            .field("queued", &self.queued)
            .finish_non_exhaustive()
    }
}

/// Sets up a ring with the most favourable flags this kernel knows.
fn set_up() -> io::Result<(IoUring, &'static str)> {
    let deferred = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(IN_FLIGHT_MAX);
    match deferred {
        Ok(ring) => return Ok((ring, "single issuer, deferred task work")),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {} // Before 6.1.
        Err(error) => return Err(error),
    }
    Ok((IoUring::new(IN_FLIGHT_MAX)?, "plain set-up"))
}

fn check_operations(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
        opcode::AsyncCancel::CODE,
    ];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A negative result is an error number.
fn result(value: i32) -> io::Result<u64> {
    u64::try_from(value).map_err(|_| io::Error::from_raw_os_error(value.wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use executor::{Config, Executor, ManualClock};
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    struct Bench {
        ring: Ring,
        clock: Rc<ManualClock>,
        read: Arc<OwnedFd>,
        _write: OwnedFd,
        _executor: Executor,
    }

    impl Bench {
        /// A ring, and a pipe whose reads stay in flight; `None` where io_uring is forbidden.
        fn new() -> Option<Self> {
            let (events, clock) = (Events::new().unwrap(), Rc::new(ManualClock::new()));
            let parker = Box::new(events.parker());
            let executor = Executor::new(clock.clone(), parker, Config::default());
            let ring = Ring::new(&executor.handle(), &events).ok()?;
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            Some(Self { ring, clock, read: Arc::new(read), _write: write, _executor: executor })
        }

        fn submit(&mut self) -> Result<(), Refused> {
            self.submit_at(0)
        }

        /// Submits a read of one byte.
        fn submit_at(&mut self, at: u64) -> Result<(), Refused> {
            let (file, into) = (self.read.clone(), Heap::buffer(1).into());
            self.ring.submit(Operation::Read { file, at, into }, Token(0))
        }

        fn queued_after_reap(&mut self) -> usize {
            assert_eq!(self.ring.reap(16, &mut |_, _| {}), 0);
            self.ring.queued
        }
    }

    #[test]
    fn a_lone_entry_is_submitted_at_the_next_visit() {
        let Some(mut bench) = Bench::new() else { return };
        bench.submit().unwrap();
        assert_eq!(bench.queued_after_reap(), 0);
    }

    #[test]
    fn an_entry_is_held_for_20_us_while_others_are_in_flight() {
        let Some(mut bench) = Bench::new() else { return };
        bench.submit().unwrap();
        bench.queued_after_reap();
        bench.submit().unwrap();
        assert_eq!(bench.queued_after_reap(), 1);

        bench.clock.advance(HELD_MAX);

        assert_eq!(bench.queued_after_reap(), 0);
    }

    #[test]
    fn a_device_with_little_to_do_gets_short_batches() {
        let Some(mut bench) = Bench::new() else { return };
        for batch_len in [BATCH_LEN_MIN, BATCH_LEN_MIN, 8, 16, BATCH_LEN, BATCH_LEN] {
            for queued in 1..batch_len {
                bench.submit().unwrap();
                assert_eq!(bench.ring.queued, queued);
            }
            bench.submit().unwrap();
            assert_eq!(bench.ring.queued, 0);
        }
    }

    #[test]
    fn short_transfers_that_continue_each_other_wait_for_a_full_batch() {
        let Some(mut bench) = Bench::new() else { return };
        for at in 0..BATCH_LEN as u64 {
            assert_eq!(bench.ring.queued as u64, at);
            bench.submit_at(at).unwrap();
        }
        assert_eq!(bench.ring.queued, 0);
    }

    #[test]
    fn arming_submits_everything() {
        let Some(mut bench) = Bench::new() else { return };
        bench.submit().unwrap();
        bench.queued_after_reap();
        bench.submit().unwrap();

        assert_eq!(bench.ring.arm(), Armed::Waits);

        assert_eq!(bench.ring.queued, 0);
    }

    #[test]
    fn a_full_ring_refuses_and_hands_the_operation_back() {
        let Some(mut bench) = Bench::new() else { return };
        for _ in 0..IN_FLIGHT_MAX {
            bench.submit().unwrap();
        }
        let refused = bench.submit().expect_err("full");
        assert_eq!(refused.refusal, Refusal::Full);
        assert!(matches!(refused.operation, Operation::Read { .. }));
    }

    #[test]
    fn a_call_is_not_for_a_ring() {
        let call = Operation::Call(Box::new(|| Ok(0)));
        let Some(mut bench) = Bench::new() else { return };
        let refused = bench.ring.submit(call, Token(0)).expect_err("a ring cannot");
        assert_eq!(refused.refusal, Refusal::Unsupported);
    }
}
