//! A lane: requests of one client thread, answered in place.
//!
//! Entries lie in [`SLOTS`] slots. Word 0 of an entry carries its number (low 32 bits), counted
//! from 1; the daemon takes entry `n` once slot `n % SLOTS` shows number `n`, so a request crosses
//! in one cache line without a shared index. Each slot has a completion; a slot is free again once
//! the client has read its final state. There is no other flow control and nothing to overrun.
//!
//! # Trust
//!
//! The daemon copies an entry out once and remembers which slots it owes an answer; a client that
//! publishes over an unanswered entry gets [`Reused`] and loses its session. The client believes
//! the daemon's values only as values.
//!
//! # Memory ordering
//!
//! Word 0 is stored with `Release` after the entry's other words and loaded with `Acquire` before
//! them. A completion's state is stored with `Release` after its value and loaded with `Acquire`
//! before it; that also orders the daemon's reads of the entry before the client's next use of the
//! slot. Sleeping and waking are in [`doorbell`](crate::doorbell).

use core::{error, fmt};

use crate::{
    doorbell::Bell,
    sync::{AtomicU64, Ordering, Word},
};

/// Requests that may be unanswered at a time.
pub const SLOTS: usize = 32;
const WORDS: usize = 8;

/// An entry's words. The low half of word 0 belongs to the lane, the rest to the caller.
pub type Words = [u64; WORDS];

/// The shared part of a lane.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Lane {
    /// Wakes the client thread that sleeps on this lane.
    pub bell: Bell,
    completions: [Completion; SLOTS],
    entries: [Entry; SLOTS],
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Entry {
    first: AtomicU64,
    rest: [Word; WORDS - 1],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Completion {
    state: AtomicU64,
    value: Word,
}

/// The client published an entry in a slot that still awaits its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reused {
    /// Number of the offending entry.
    pub seq: u32,
}

impl fmt::Display for Reused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} was published over an unanswered one", self.seq)
    }
}

impl error::Error for Reused {}

/// The client's private state of a lane.
#[derive(Debug, Default)]
pub struct Requester {
    /// Entries published so far, wrapping; the newest one's number.
    published: u32,
    /// Slots whose answer has not been taken.
    owed: u32,
}

impl Requester {
    /// The state of a lane nobody has used.
    #[must_use]
    pub const fn new() -> Self {
        Self { published: 0, owed: 0 }
    }

    /// Publishes an entry and returns its number, or `None` when the slot it would take still
    /// awaits its answer. Slots are taken in turn, so one answer that never comes stops the lane
    /// when its slot's turn is back, and never mixes two requests up.
    ///
    /// Never blocks and makes no system call; the daemon is told by
    /// [`Ready::raise`](crate::Ready::raise).
    pub fn publish(&mut self, lane: &Lane, words: &Words) -> Option<u32> {
        let seq = self.published.wrapping_add(1);
        if self.owed & bit(seq) != 0 {
            return None;
        }
        let entry = lane.entries.get(slot(seq))?;
        let [first, rest @ ..] = words;
        for (word, value) in entry.rest.iter().zip(rest) {
            word.set(*value);
        }
        entry.first.store(first & !NUMBER | u64::from(seq), Ordering::Release);
        self.published = seq;
        self.owed |= bit(seq);
        Some(seq)
    }

    /// The state word last stored for entry `seq`'s slot.
    #[must_use]
    pub fn state(&self, lane: &Lane, seq: u32) -> u64 {
        lane.completions.get(slot(seq)).map_or(0, |c| c.state.load(Ordering::Acquire))
    }

    /// Takes the value of a completed entry and frees its slot.
    pub fn take(&mut self, lane: &Lane, seq: u32) -> u64 {
        debug_assert!(self.owed & bit(seq) != 0, "an answer is taken once");
        self.owed &= !bit(seq);
        lane.completions.get(slot(seq)).map_or(0, |c| c.value.get())
    }
}

/// The daemon's private state of a lane.
#[derive(Debug, Default)]
pub struct Responder {
    taken: u32,
    owing: u32,
}

impl Responder {
    /// Takes the next entry, with its number, or `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`Reused`]: the client broke the protocol; the lane cannot go on.
    pub fn next(&mut self, lane: &Lane) -> Result<Option<(u32, Words)>, Reused> {
        let seq = self.taken.wrapping_add(1);
        let Some(entry) = lane.entries.get(slot(seq)) else { return Ok(None) };
        let first = entry.first.load(Ordering::Acquire);
        if number(first) != seq {
            return Ok(None);
        }
        if self.owing & bit(seq) != 0 {
            return Err(Reused { seq });
        }
        let mut words = [first; WORDS];
        for (value, word) in words.iter_mut().skip(1).zip(&entry.rest) {
            *value = word.get();
        }
        self.taken = seq;
        self.owing |= bit(seq);
        Ok(Some((seq, words)))
    }

    /// True if an entry is not answered yet, taken or still to be taken. Of the latter nothing is
    /// read but the number, so that look needs no order.
    #[must_use]
    pub fn owes(&self, lane: &Lane) -> bool {
        let seq = self.taken.wrapping_add(1);
        let next = || lane.entries.get(slot(seq)).map(|entry| entry.first.load(Ordering::Relaxed));
        self.owing != 0 || next().is_some_and(|first| number(first) == seq)
    }

    /// Stores an intermediate `state` for entry `seq`.
    pub fn acknowledge(&self, lane: &Lane, seq: u32, state: u64) {
        debug_assert!(self.owing & bit(seq) != 0, "a request is acknowledged before its answer");
        if let Some(completion) = lane.completions.get(slot(seq)) {
            completion.state.store(state, Ordering::Release);
        }
    }

    /// Stores the final `state` and `value` for entry `seq`; its slot is the client's again.
    pub fn complete(&mut self, lane: &Lane, seq: u32, state: u64, value: u64) {
        debug_assert!(self.owing & bit(seq) != 0, "a request is answered once");
        self.owing &= !bit(seq);
        if let Some(completion) = lane.completions.get(slot(seq)) {
            completion.value.set(value);
            completion.state.store(state, Ordering::Release);
        }
    }
}

const NUMBER: u64 = u32::MAX as u64;

/// The number that the first word of an entry carries.
const fn number(first: u64) -> u32 {
    (first & NUMBER) as u32
}

const fn slot(seq: u32) -> usize {
    seq as usize % SLOTS
}

const fn bit(seq: u32) -> u32 {
    // As many slots as the mask has bits, so the shift finds the slot.
    1u32.wrapping_shl(seq)
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Entry>() == 64);
    assert!(size_of::<Lane>() == 64 + 16 * SLOTS + 64 * SLOTS);
    assert!(SLOTS == u32::BITS as usize);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{boxed::Box, thread};

    use super::*;

    const DONE: u64 = 2;
    const COUNT: u32 = u32::BITS;

    #[test]
    fn an_unanswered_slot_is_not_used_again() {
        let lane = Box::<Lane>::default();
        let (mut requester, mut responder) = (Requester::new(), Responder::default());
        for seq in 1..=COUNT {
            assert_eq!(requester.publish(&lane, &[0; WORDS]), Some(seq));
        }
        assert_eq!(requester.publish(&lane, &[0; WORDS]), None);

        let (seq, _) = responder.next(&lane).expect("honest").expect("published");
        responder.complete(&lane, seq, DONE, 7);
        assert_eq!(requester.publish(&lane, &[0; WORDS]), None, "answer not yet taken");
        assert_eq!(requester.take(&lane, seq), 7);
        assert_eq!(requester.publish(&lane, &[0; WORDS]), Some(COUNT + 1));
    }

    #[test]
    fn a_lost_answer_stops_the_lane_and_its_slot_is_never_reused() {
        let lane = Box::<Lane>::default();
        let (mut requester, mut responder) = (Requester::new(), Responder::default());
        let lost = requester.publish(&lane, &[0; WORDS]).expect("free");
        responder.next(&lane).expect("honest").expect("published");
        for _ in 1..COUNT {
            let seq = requester.publish(&lane, &[0; WORDS]).expect("free");
            responder.next(&lane).expect("honest").expect("published");
            responder.complete(&lane, seq, DONE, 0);
            requester.take(&lane, seq);
        }
        assert_eq!(requester.publish(&lane, &[0; WORDS]), None);
        responder.complete(&lane, lost, DONE, 5);
        assert_eq!(requester.take(&lane, lost), 5);
        assert_eq!(requester.publish(&lane, &[0; WORDS]), Some(COUNT + 1));
    }

    #[test]
    fn publishing_over_an_unanswered_entry_ends_the_session() {
        let lane = Box::<Lane>::default();
        let mut responder = Responder::default();
        let entry = &lane.entries[1];
        entry.first.store(1, Ordering::Release);
        assert!(responder.next(&lane).expect("first use").is_some());
        for seq in 2..=COUNT {
            lane.entries[slot(seq)].first.store(u64::from(seq), Ordering::Release);
            assert!(responder.next(&lane).expect("first use").is_some());
        }

        // What a hostile client would do.
        entry.first.store(u64::from(COUNT) + 1, Ordering::Release);

        assert_eq!(responder.next(&lane), Err(Reused { seq: COUNT + 1 }));
    }

    #[test]
    fn entries_are_owed_from_when_they_are_published_until_they_are_answered() {
        let lane = Box::<Lane>::default();
        let (mut requester, mut responder) = (Requester::new(), Responder::default());
        assert!(!responder.owes(&lane));
        for _ in 0..2 {
            requester.publish(&lane, &[0; WORDS]).expect("free");
        }
        for is_last in [false, true] {
            assert!(responder.owes(&lane));
            let (seq, _) = responder.next(&lane).expect("honest").expect("published");
            assert!(responder.owes(&lane));
            responder.complete(&lane, seq, DONE, 0);
            assert_eq!(responder.owes(&lane), !is_last);
        }
    }

    #[test]
    fn numbers_wrap_at_2_pow_32() {
        let lane = Box::<Lane>::default();
        let before = u32::MAX - 3;
        let mut requester = Requester { published: before, owed: 0 };
        let mut responder = Responder { taken: before, owing: 0 };
        for step in 1..=8u32 {
            let seq = before.wrapping_add(step);
            assert_eq!(requester.publish(&lane, &[9 << 32; WORDS]), Some(seq));
            let taken = responder.next(&lane).expect("honest");
            assert_eq!(taken.map(|(seq, words)| (seq, words[0] >> 32)), Some((seq, 9)));
            responder.complete(&lane, seq, DONE, u64::from(step));
            assert_eq!(requester.take(&lane, seq), u64::from(step));
        }
    }

    #[test]
    fn entries_and_answers_cross_threads_in_order() {
        let count = if cfg!(miri) { 100 } else { 10_000u64 };
        let lane = Box::<Lane>::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut responder = Responder::default();
                let mut served = 0;
                while served < count {
                    let Some((seq, words)) = responder.next(&lane).expect("honest") else {
                        thread::yield_now();
                        continue;
                    };
                    responder.complete(&lane, seq, u64::from(seq), words[1] + 1);
                    served += 1;
                }
            });
            let mut requester = Requester::new();
            for i in 0..count {
                let seq = requester.publish(&lane, &[i; WORDS]).expect("one at a time");
                while requester.state(&lane, seq) != u64::from(seq) {
                    thread::yield_now();
                }
                assert_eq!(requester.take(&lane, seq), i + 1);
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    /// Two requests through one slot: entry words, value, and the slot's reuse are all ordered.
    #[test]
    fn a_slot_is_reused_only_after_its_answer() {
        crate::sync::model(3, || {
            let lane = Arc::new(Lane::default());
            let client = Arc::clone(&lane);
            let client = loom::thread::spawn(move || {
                let mut requester = Requester::new();
                for round in 0..2u8 {
                    // The second request takes the first one's slot.
                    requester.published = u32::BITS * u32::from(round);
                    let seq = requester.publish(&client, &[u64::from(round); WORDS]).expect("free");
                    while requester.state(&client, seq) != u64::from(seq) {
                        loom::thread::yield_now();
                    }
                    assert_eq!(requester.take(&client, seq), u64::from(round) + 10);
                }
            });
            let mut responder = Responder::default();
            for round in 0..2u8 {
                responder.taken = u32::BITS * u32::from(round);
                let (seq, words) = loop {
                    match responder.next(&lane).expect("honest") {
                        Some(entry) => break entry,
                        None => loom::thread::yield_now(),
                    }
                };
                responder.complete(&lane, seq, u64::from(seq), words[1] + 10);
            }
            client.join().unwrap();
        });
    }
}
