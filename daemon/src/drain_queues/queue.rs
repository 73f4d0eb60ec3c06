//! Files to drain: fair between sessions by bytes, first come first served within one.
//!
//! Deficit round robin: each session in turn may spend [`UNIT_LEN`] bytes; what a small unit leaves
//! is spent on further files, and what a large one takes beyond that is a debt: the session skips
//! rounds until it is paid. Rounds that all would skip are not waited for.

use std::collections::VecDeque;

use super::UNIT_LEN;

/// Sessions with files to drain. A file is in it once.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    session: u32,
    slots: VecDeque<u32>,
    /// Bytes drained in this round, and debts of earlier ones.
    spent: u64,
    /// Files taken and not yet paid for; the session keeps its place until they are.
    unpaid: usize,
}

impl Queue {
    /// Puts a file in, unless it is.
    pub(super) fn push(&mut self, session: u32, slot: u32) {
        match self.0.iter_mut().find(|entry| entry.session == session) {
            Some(entry) if entry.slots.contains(&slot) => {}
            Some(entry) => entry.slots.push_back(slot),
            None => {
                let slots = VecDeque::from([slot]);
                self.0.push_back(Entry { session, slots, spent: 0, unpaid: 0 });
            }
        }
    }

    /// Takes the next file, as session and slot. Tell what it cost by [`spent`](Self::spent).
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        self.skip_rounds();
        for _ in 0..=self.0.len() {
            let entry = self.0.front_mut()?;
            if entry.spent < UNIT_LEN {
                if let Some(slot) = entry.slots.pop_front() {
                    entry.unpaid += 1;
                    return Some((entry.session, slot));
                }
            }
            self.rotate();
        }
        None
    }

    /// Says that the file taken cost `len` bytes, after it was put back if more of it is wanted.
    pub(super) fn spent(&mut self, session: u32, len: u64) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.session == session) {
            debug_assert!(entry.unpaid > 0, "session {session} took a slot");
            entry.spent += len;
            entry.unpaid = entry.unpaid.saturating_sub(1);
        }
    }

    /// Ends the rounds in which no session with files may spend anything: a unit of a long log is
    /// as long as many rounds.
    fn skip_rounds(&mut self) {
        let ready = self.0.iter().filter(|entry| !entry.slots.is_empty());
        let Some(rounds) = ready.map(|entry| entry.spent / UNIT_LEN).min() else { return };
        for entry in &mut self.0 {
            entry.spent = entry.spent.saturating_sub(rounds * UNIT_LEN);
        }
        debug_assert!(
            self.0.iter().any(|entry| entry.spent < UNIT_LEN && !entry.slots.is_empty()),
            "a session with files may spend"
        );
    }

    /// Ends the first session's round.
    fn rotate(&mut self) {
        let Some(mut entry) = self.0.pop_front() else { return };
        if !entry.slots.is_empty() || entry.unpaid > 0 {
            entry.spent = entry.spent.saturating_sub(UNIT_LEN);
            self.0.push_back(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes files for `units` units and returns the bytes each of sessions 0 and 1 had drained.
    fn shares(queue: &mut Queue, units: usize, lens: [u64; 2]) -> [u64; 2] {
        let mut shares = [0; 2];
        for _ in 0..units {
            let (session, slot) = queue.pop().expect("there is more");
            queue.push(session, slot);
            queue.spent(session, lens[session as usize]);
            shares[session as usize] += lens[session as usize];
        }
        shares
    }

    #[test]
    fn sessions_share_by_bytes_whatever_their_units() {
        let mut queue = Queue::default();
        queue.push(0, 1);
        (0..5).for_each(|slot| queue.push(1, slot));
        let [large, small] = shares(&mut queue, 3300, [UNIT_LEN, UNIT_LEN / 32]);
        assert!(large.abs_diff(small) <= 2 * UNIT_LEN, "{large} against {small}");
    }

    #[test]
    fn files_of_a_session_come_in_turn_and_once() {
        let mut queue = Queue::default();
        [4, 5, 4].into_iter().for_each(|slot| queue.push(7, slot));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some((7, 4)), Some((7, 5)), None]);
    }

    #[test]
    fn debts_end() {
        let mut queue = Queue::default();
        queue.push(3, 0);
        for _ in 0..100 {
            assert_eq!(queue.pop(), Some((3, 0)));
            queue.push(3, 0);
            queue.spent(3, UNIT_LEN);
        }
    }

    #[test]
    fn session_that_is_alone_goes_on_after_a_long_unit() {
        let mut queue = Queue::default();
        queue.push(3, 0);
        for _ in 0..100 {
            assert_eq!(queue.pop(), Some((3, 0)));
            queue.push(3, 0);
            queue.spent(3, 16 * UNIT_LEN);
        }
    }

    #[test]
    fn long_units_are_paid_for_in_full() {
        let mut queue = Queue::default();
        queue.push(0, 1);
        queue.push(1, 1);
        let [long, short] = shares(&mut queue, 1700, [16 * UNIT_LEN, UNIT_LEN]);
        assert!(long.abs_diff(short) <= 17 * UNIT_LEN, "{long} against {short}");
        let [long, other] = shares(&mut queue, 100, [16 * UNIT_LEN; 2]);
        assert!(long.abs_diff(other) <= 32 * UNIT_LEN, "{long} against {other}");
    }

    #[test]
    fn drained_sessions_leave() {
        let mut queue = Queue::default();
        queue.push(3, 0);
        assert!(queue.pop().is_some());
        queue.spent(3, 1);
        assert_eq!(queue.pop(), None);
        assert!(queue.0.is_empty());
    }
}
