//! Sleeping and waking, in both directions.
//!
//! A [`Bell`] wakes a client thread that sleeps on its lane; its word is a futex. A [`Parked`] flag
//! says whether the daemon sleeps and must be told that something is ready; the telling itself is a
//! message on the control socket, because the daemon sleeps on many things at once.
//!
//! # Memory ordering
//!
//! Both are the same pattern: the sleeper stores its flag and then looks for work once more; the
//! other side publishes work and then looks at the flag. A `SeqCst` fence on each side, between the
//! two steps, makes sure that at least one of them sees the other.
//!
//! Only the daemon leaves `AWAKE` in [`Parked`]; a client does no more than exchange `ASLEEP` or
//! `POLLED` for `AWAKE`. So an `AWAKE` that a client stored stands before the next `ASLEEP`, and
//! whoever must see that one cannot take the client's for news.
//!
//! # While another executor polls
//!
//! `POLLED` says that the executor sleeps and another one looks at its board meanwhile: nobody
//! rings. Executors agree on that among themselves, one at a time for each flag; before the other
//! ceases to look it announces the sleep anew, and looks once more after that. It may lose its core
//! at any time, even while it has found something. So a client that has waited for as long as an
//! answer takes [rings all the same](Parked::must_ring_late), and wakes the executor itself.

use core::time::Duration;

use crate::sync::{AtomicU32, Line, Ordering, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ALWAYS: u32 = 2;
const POLLED: u32 = 3;

/// Wakes the client thread that sleeps on a lane.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bell(Line<futex::Word>);

impl Bell {
    /// Sleeps until rung, `timeout` passes, or a signal arrives, unless `ready()` holds already.
    pub fn sleep(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let word = &self.0.0;
        word.value().store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            word.wait(ASLEEP, timeout);
        }
        word.value().store(AWAKE, Ordering::Relaxed);
    }

    /// Wakes the sleeper, if there is one. Call after publishing what it waits for.
    ///
    /// Returns whether a system call was made.
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        let word = &self.0.0;
        let asleep = word.value().load(Ordering::Relaxed) == ASLEEP;
        if asleep {
            self.ring_always();
        }
        asleep
    }

    /// Makes the system call whether or not anybody sleeps: the conventional interrupt.
    pub fn ring_always(&self) {
        self.0.0.value().store(AWAKE, Ordering::Relaxed);
        self.0.0.wake();
    }
}

/// Parked flag of a daemon's executor.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Parked(Line<AtomicU32>);

impl Parked {
    /// Says that the executor is about to sleep. Look for work once more after this.
    pub fn announce(&self) {
        self.0.0.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the executor sleeps, and that another one looks for work on its behalf until it
    /// announces or withdraws.
    pub fn leave_to_poller(&self) {
        self.0.0.store(POLLED, Ordering::Relaxed);
    }

    /// Says that the executor is awake.
    pub fn withdraw(&self) {
        self.0.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Asks for a doorbell on every request from now on: the conventional interrupt. An executor
    /// that asked for this neither announces nor withdraws.
    pub fn always(&self) {
        // A store would do, but loom does not know that what a client exchanged comes before it.
        self.0.0.swap(ALWAYS, Ordering::Relaxed);
    }

    /// True if the caller, who has just published work, must send the doorbell message.
    ///
    /// Of several callers that find the executor asleep, one is told so.
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.may_ring()
    }

    /// As [`must_ring`](Self::must_ring), for a caller whose work is seen without it: without the
    /// fence, a sleep that has just begun may be overlooked.
    pub(crate) fn may_ring(&self) -> bool {
        match self.0.0.load(Ordering::Relaxed) {
            ASLEEP => self.claim(ASLEEP),
            ALWAYS => true,
            _ => false,
        }
    }

    /// True if the caller, who has not been answered in time, must send the doorbell message now:
    /// the executor sleeps, and whoever polls for it has not come round.
    pub fn must_ring_late(&self) -> bool {
        match self.0.0.load(Ordering::Relaxed) {
            asleep @ (ASLEEP | POLLED) => self.claim(asleep),
            _ => false,
        }
    }

    /// Takes it upon the caller to wake the executor; false when another caller was first.
    #[cold]
    fn claim(&self, asleep: u32) -> bool {
        match self.0.0.compare_exchange(asleep, AWAKE, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(found) => found == ALWAYS,
        }
    }
}

#[cfg(not(loom))]
mod futex {
    use core::{sync::atomic::AtomicU32, time::Duration};

    use rustix::thread::futex;

    /// A futex word shared between processes.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(super) struct Word(AtomicU32);

    impl Word {
        pub(super) fn value(&self) -> &AtomicU32 {
            &self.0
        }

        pub(super) fn wait(&self, expected: u32, timeout: Duration) {
            let timeout = futex::Timespec::try_from(timeout).ok();
            // A wake-up, a timeout, a signal, and a changed word all mean: look again.
            match futex::wait(&self.0, futex::Flags::empty(), expected, timeout.as_ref()) {
                Ok(()) | Err(_) => {}
            }
        }

        pub(super) fn wake(&self) {
            // A word that is mapped and aligned cannot fail.
            match futex::wake(&self.0, futex::Flags::empty(), 1) {
                Ok(_) | Err(_) => {}
            }
        }
    }
}

#[cfg(loom)]
mod futex {
    use core::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use crate::sync::{AtomicU32, Ordering};

    /// A futex for the model: blocks for ever when no wake comes, which loom reports.
    #[derive(Debug)]
    pub(super) struct Word {
        value: AtomicU32,
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Default for Word {
        fn default() -> Self {
            Self { value: AtomicU32::new(0), queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Word {
        pub(super) fn value(&self) -> &AtomicU32 {
            &self.value
        }

        pub(super) fn wait(&self, expected: u32, _: Duration) {
            let queue = self.queue.lock().unwrap();
            if self.value.load(Ordering::SeqCst) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(super) fn wake(&self) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{sync::Arc, thread, time::Instant};

    use super::*;

    #[test]
    fn a_bell_rung_before_sleep_is_not_missed() {
        let bell = Bell::default();
        let start = Instant::now();
        bell.sleep(Duration::from_secs(120), || true);
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_sleeper_is_woken_from_another_thread() {
        let bell = Arc::new(Bell::default());
        let done = Arc::new(AtomicU32::new(0));
        let start = Instant::now();
        let sleeper = thread::spawn({
            let (bell, done) = (Arc::clone(&bell), Arc::clone(&done));
            move || {
                while done.load(Ordering::Acquire) == 0 {
                    bell.sleep(Duration::from_secs(120), || done.load(Ordering::Acquire) == 1);
                }
            }
        });
        done.store(1, Ordering::Release);
        bell.ring();
        sleeper.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn one_of_many_rings_a_parked_daemon() {
        let parked = Parked::default();
        assert!(!parked.must_ring());
        parked.announce();
        assert!(parked.must_ring());
        assert!(!parked.must_ring());
        parked.always();
        assert!(parked.must_ring());
        assert!(parked.must_ring());
    }

    #[test]
    fn one_who_waits_in_vain_rings_a_daemon_that_another_polls_for() {
        let parked = Parked::default();
        parked.leave_to_poller();
        assert!(!parked.must_ring());
        assert!(parked.must_ring_late());
        assert!(!parked.must_ring_late(), "one ring is enough");
        parked.always();
        assert!(!parked.must_ring_late(), "it was rung for every request");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        crate::sync::model(3, || {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            let client = Arc::clone(&shared);
            let client = loom::thread::spawn(move || {
                let (bell, done) = &*client;
                while done.load(Ordering::Relaxed) == 0 {
                    bell.sleep(Duration::MAX, || done.load(Ordering::Relaxed) == 1);
                }
            });
            shared.1.store(1, Ordering::Relaxed);
            shared.0.ring();
            client.join().unwrap();
        });
    }

    /// An executor sleeps and is polled for; the poller, which may have lost its core, announces
    /// the sleep and looks again before it goes. A client that publishes and then waits is heard by
    /// one of the two, or rings.
    #[test]
    fn work_published_while_a_poller_goes_is_heard() {
        crate::sync::model(3, || {
            let shared = Arc::new((Parked::default(), AtomicU32::new(0)));
            shared.0.leave_to_poller();
            let client = Arc::clone(&shared);
            let client = loom::thread::spawn(move || {
                let (parked, published) = &*client;
                published.store(1, Ordering::Relaxed);
                parked.must_ring()
            });
            let (parked, published) = &*shared;
            parked.announce();
            let is_heard = published.load(Ordering::Relaxed) == 1;
            let is_rung = client.join().unwrap();
            assert!(is_heard || is_rung);
        });
    }

    /// A client that has seen the executor asleep does not undo its wish for interrupts.
    #[test]
    fn a_wish_for_interrupts_outlives_a_late_caller() {
        crate::sync::model(3, || {
            let parked = Arc::new(Parked::default());
            parked.announce();
            let client = Arc::clone(&parked);
            let client = loom::thread::spawn(move || client.must_ring());
            parked.always();
            client.join().unwrap();
            assert!(parked.must_ring());
        });
    }
}
