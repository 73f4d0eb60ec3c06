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
//! Only the executor leaves `AWAKE` in [`Parked`]; a client does no more than exchange `ASLEEP` for
//! `AWAKE`. So an `AWAKE` that a client stored stands before the next `ASLEEP`, and whoever must see
//! that one cannot take the client's for news.

use core::time::Duration;

use crate::sync::{AtomicU32, Line, Ordering, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ALWAYS: u32 = 2;

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

/// Whether the daemon's executor sleeps.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Parked(Line<AtomicU32>);

impl Parked {
    /// Says that the executor is about to sleep. Look for work once more after this.
    pub fn announce(&self) {
        self.0.0.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
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

    /// Whether the caller, who has just published work, must send the doorbell message.
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
            AWAKE => false,
            ALWAYS => true,
            _ => self.claim(),
        }
    }

    /// Takes it upon the caller to wake the executor; false when another caller was first.
    #[cold]
    fn claim(&self) -> bool {
        match self.0.0.compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed) {
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
        bell.sleep(Duration::from_secs(30), || true);
        assert!(start.elapsed() < Duration::from_secs(10));
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
                    bell.sleep(Duration::from_secs(30), || done.load(Ordering::Acquire) == 1);
                }
            }
        });
        done.store(1, Ordering::Release);
        bell.ring();
        sleeper.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
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
