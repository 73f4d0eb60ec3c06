//! The bundle of a session: files that its client makes, writes in order, and closes, without a
//! request (`docs/reference/protocol.md`, section 9).
//!
//! Two rings in the arena: the index log has records, the data log the bytes that they speak of, in
//! the order of the records. The client is the only producer, the daemon the only consumer.
//! Positions count bytes for the life of the session. `head` is the end of what is published of
//! the index log; where the data log ends the records say.
//!
//! # Trust
//!
//! The daemon reads the places of the logs once, and copies records out before it looks at them.
//! `head` is checked against the length of the log. What the records say is checked by whoever
//! takes them in.
//!
//! # Memory ordering
//!
//! `head` is stored with `Release` after records and bytes, and loaded with `Acquire` before them.
//! Tails are stored with `Release` once their space may be used again, and loaded with `Acquire`
//! before it is. `head` against `recalled`, `torn`, and `announced`, in both directions, is the
//! sleeper's pattern of [`doorbell`](crate::doorbell), with its fences: the client stores `head`
//! and then loads the flag, the daemon stores the flag and then loads `head`.

use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, fence};

/// The first byte of each file lies at a multiple of it in the data log.
pub const ALIGNMENT: u64 = 16;
const _: () = assert!(ALIGNMENT.is_power_of_two());

/// The shared part of a bundle.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Bundle {
    producer: Line<ProducerLine>,
    consumer: Line<ConsumerLine>,
    control: Line<ControlLine>,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ProducerLine {
    head: AtomicU64,
    index_at: AtomicU64,
    index_len: AtomicU64,
    data_at: AtomicU64,
    data_len: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ConsumerLine {
    index_tail: AtomicU64,
    data_tail: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ControlLine {
    recalled: AtomicU32,
    announced: AtomicU32,
    error: AtomicU32,
    torn: AtomicU32,
}

/// Where the logs of a bundle are in the arena: places, and lengths, which are powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// Start of the index log.
    pub index_at: u64,
    /// Its length.
    pub index_len: u64,
    /// Start of the data log.
    pub data_at: u64,
    /// Its length.
    pub data_len: u64,
}

impl Logs {
    /// True if they lie in an arena of `arena_len` bytes, and rings can be made of them.
    #[must_use]
    pub fn fit(&self, arena_len: u64) -> bool {
        let fits = |at: u64, len: u64| {
            len.is_power_of_two() && at.checked_add(len).is_some_and(|end| end <= arena_len)
        };
        fits(self.index_at, self.index_len) && fits(self.data_at, self.data_len)
    }

    /// The index log.
    #[must_use]
    pub const fn index(&self) -> Ring {
        Ring { at: self.index_at, len: self.index_len }
    }

    /// The data log.
    #[must_use]
    pub const fn data(&self) -> Ring {
        Ring { at: self.data_at, len: self.data_len }
    }
}

/// One of the logs: a ring in the arena, whose length is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Start in the arena.
    pub at: u64,
    /// Its length.
    pub len: u64,
}

impl Ring {
    /// The two stretches that `len` bytes from `position` on lie in: starts and lengths.
    #[must_use]
    pub const fn stretches(self, position: u64, len: u64) -> [(u64, u64); 2] {
        let at = position & self.len.wrapping_sub(1);
        let room = self.len.saturating_sub(at);
        let first = if len < room { len } else { room };
        [(self.at.wrapping_add(at), first), (self.at, len - first)]
    }
}

impl Bundle {
    // ---- the client

    /// Says where the logs are, before the daemon is first told of them.
    pub fn place(&self, logs: Logs) {
        let line = &self.producer.0;
        line.index_at.store(logs.index_at, Ordering::Relaxed);
        line.index_len.store(logs.index_len, Ordering::Relaxed);
        line.data_at.store(logs.data_at, Ordering::Relaxed);
        line.data_len.store(logs.data_len, Ordering::Release);
    }

    /// Publishes all records before `head`, and the bytes they speak of. Look at
    /// [`recalled`](Self::recalled) and at [`claim_announcement`](Self::claim_announcement) after
    /// this.
    pub fn publish(&self, head: u64) {
        self.producer.0.head.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// How often the daemon has asked for all open files: each is to be handed over before its next
    /// write returns.
    #[must_use]
    pub fn recalled(&self) -> u32 {
        self.control.0.recalled.load(Ordering::Relaxed)
    }

    /// How often the daemon has begun to make open files in steps: one that is closed then is whole
    /// once the records are taken in.
    #[must_use]
    pub fn torn(&self) -> u32 {
        self.control.0.torn.load(Ordering::Relaxed)
    }

    /// Claims to announce what is published. True if the daemon has to be told; it is once the
    /// caller has done so.
    #[must_use]
    pub fn claim_announcement(&self) -> bool {
        let announced = &self.control.0.announced;
        announced.load(Ordering::Relaxed) == 0 && announced.swap(1, Ordering::AcqRel) == 0
    }

    /// How far the logs may be written over.
    #[must_use]
    pub fn tails(&self) -> (u64, u64) {
        let line = &self.consumer.0;
        (line.index_tail.load(Ordering::Acquire), line.data_tail.load(Ordering::Acquire))
    }

    /// Takes the error owed, so that it is reported once.
    pub fn take_error(&self) -> Option<u32> {
        let error = &self.control.0.error;
        if error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(error.swap(0, Ordering::AcqRel)).filter(|errno| *errno != 0)
    }

    // ---- the daemon

    /// Where the client says that the logs are.
    #[must_use]
    pub fn logs(&self) -> Logs {
        let line = &self.producer.0;
        let data_len = line.data_len.load(Ordering::Acquire);
        let [index_at, index_len, data_at] = [&line.index_at, &line.index_len, &line.data_at]
            .map(|word| word.load(Ordering::Relaxed));
        Logs { index_at, index_len, data_at, data_len }
    }

    /// End of what the client has published.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.producer.0.head.load(Ordering::Acquire)
    }

    /// The client may write over what is before these positions.
    pub fn release(&self, index_tail: u64, data_tail: u64) {
        self.consumer.0.data_tail.store(data_tail, Ordering::Release);
        self.consumer.0.index_tail.store(index_tail, Ordering::Release);
    }

    /// Asks for all open files. Look at [`head`](Self::head) after this.
    pub fn recall(&self) {
        self.control.0.recalled.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// [Recalls](Self::recall) all open files, some of which are about to be made in steps. Look at
    /// [`head`](Self::head) after this.
    pub fn tear(&self) {
        self.control.0.torn.fetch_add(1, Ordering::AcqRel);
        self.recall();
    }

    /// From now on the client has to announce what it publishes. Look at [`head`](Self::head) after
    /// this.
    pub fn sleep(&self) {
        self.control.0.announced.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Owes the client `errno`; the first error stays until it is taken.
    pub fn owe(&self, errno: u32) {
        let error = &self.control.0.error;
        match error.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_a_ring_meet_at_its_end() {
        let ring = Ring { at: 100, len: 16 };
        assert_eq!(ring.stretches(3, 5), [(103, 5), (100, 0)]);
        assert_eq!(ring.stretches(16 * 9 + 12, 10), [(112, 4), (100, 6)]);
        assert_eq!(ring.stretches(32, 16), [(100, 16), (100, 0)]);
    }

    #[test]
    fn logs_that_leave_the_arena_do_not_fit() {
        let logs = Logs { index_at: 0, index_len: 64, data_at: 64, data_len: 128 };
        assert!(logs.fit(192) && !logs.fit(191));
        assert!(!Logs { data_len: 96, ..logs }.fit(1 << 20));
        assert!(!Logs { index_at: u64::MAX, ..logs }.fit(u64::MAX));
        assert!(!Logs::default().fit(1 << 20));
    }

    #[test]
    fn error_is_told_once_and_the_first_one_counts() {
        let bundle = Bundle::default();
        assert_eq!(bundle.take_error(), None);
        bundle.owe(28);
        bundle.owe(5);
        assert_eq!([bundle.take_error(), bundle.take_error()], [Some(28), None]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;
    use crate::sync::Word;

    #[derive(Default)]
    struct Shared {
        bundle: Bundle,
        /// The index log, of two records.
        log: [Word; 2],
    }

    /// What is published is found by a daemon that goes to sleep, or its client announces it; and
    /// a record that is found is whole.
    #[test]
    fn daemon_that_sleeps_misses_no_record() {
        crate::sync::model(3, || {
            let shared = Arc::new(Shared::default());
            let client = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let mut announced = 0;
                    for record in 0..2u64 {
                        shared.log[usize::try_from(record).unwrap()].set(record + 1);
                        shared.bundle.publish(record + 1);
                        announced += u32::from(shared.bundle.claim_announcement());
                    }
                    announced
                })
            };
            let bundle = &shared.bundle;
            let mut seen = bundle.head();
            bundle.sleep();
            seen = seen.max(bundle.head());
            for record in 0..seen {
                assert_eq!(shared.log[usize::try_from(record).unwrap()].get(), record + 1);
            }
            let announced = client.join().unwrap();
            assert!(seen == 2 || announced > 0, "nobody looks at {seen}");
        });
    }

    /// A file that is made in steps: the close whose client does not wait was seen before.
    #[test]
    fn close_that_does_not_wait_is_seen_by_the_daemon() {
        crate::sync::model(3, || {
            let shared = Arc::new(Shared::default());
            let client = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.bundle.publish(1);
                    shared.bundle.torn()
                })
            };
            shared.bundle.tear();
            let seen = shared.bundle.head();
            let torn = client.join().unwrap();
            assert!(seen == 1 || torn == 1);
        });
    }

    /// A file that is recalled: the write that its client believes to be private was taken in.
    #[test]
    fn write_that_sees_no_recall_is_seen_by_the_daemon() {
        crate::sync::model(3, || {
            let shared = Arc::new(Shared::default());
            let client = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.log[0].set(1);
                    shared.bundle.publish(1);
                    shared.bundle.recalled()
                })
            };
            shared.bundle.recall();
            let seen = shared.bundle.head();
            let recalled = client.join().unwrap();
            assert!(seen == 1 || recalled == 1);
        });
    }
}
