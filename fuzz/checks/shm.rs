//! Invariants under any bytes that a client writes into its segment: used by the fuzz targets and,
//! from seeded bytes, by the tests of `shm`.
//!
//! `data` is a script of nine bytes a step: what to do, and a word for the client to write.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "scripts are cut into steps; a panic is a finding"
)]

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU8, Ordering},
};

use shm::{
    Session,
    lane::{Responder, SLOTS},
    staging::{APPEND, CUT_OFF, Consumer, Run},
};

const LOG_LEN: u64 = 256;
const STEP: usize = 9;

/// Runs lie inside the log, follow one another, and stay below 2^63 in the file.
pub(crate) fn log_peer(data: &[u8]) {
    let (session, _fd) = Session::create(0).expect("memfd");
    let slot = session.shared().file(0).expect("in range");
    let bytes = bytes_of(&session, slot);
    let mut consumer = Consumer::new(LOG_LEN);
    for step in data.chunks_exact(STEP) {
        let (action, word) = step.split_at(1);
        if action[0] < 192 {
            put(bytes, action[0], word);
            continue;
        }
        let mut runs = [Run::default(); 8];
        let budget = u64::from(word[0]) + 1;
        let Ok(count) = consumer.runs(slot, budget, &mut runs) else { continue };
        let mut position = consumer.tail();
        for run in &runs[..count] {
            assert_eq!(run.start, position);
            assert!(run.len > 0 && consumer.ring_at(run.start) + run.len <= LOG_LEN);
            let is_placed = !matches!(run.file_at, APPEND | CUT_OFF);
            assert!(!is_placed || run.file_at + run.len <= i64::MAX as u64);
            position += run.len;
        }
        assert!(position - consumer.tail() <= budget.min(LOG_LEN));
        consumer.release(slot, position - position.saturating_sub(consumer.tail()) / 2);
        assert!(slot.tail() <= position);
    }
}

/// Entries are taken in turn, at most one a slot, and never over one that is owed an answer.
pub(crate) fn lane_peer(data: &[u8]) {
    let (session, _fd) = Session::create(0).expect("memfd");
    let lane = session.shared().lane(0).expect("in range");
    let bytes = bytes_of(&session, lane);
    let (mut responder, mut taken, mut owed) = (Responder::default(), 0u32, BTreeSet::new());
    for step in data.chunks_exact(STEP) {
        let (action, word) = step.split_at(1);
        match action[0] {
            0..160 => put(bytes, action[0], word),
            160..208 => {
                // An honest entry, so that the walk gets somewhere.
                let mut first = u64::from(taken.wrapping_add(1)).to_le_bytes();
                first[4..].copy_from_slice(&word[..4]);
                let entries_at = bytes.len() / 8 - SLOTS * 8;
                put_at(bytes, entries_at + (taken as usize + 1) % SLOTS * 8, &first);
            }
            208..250 => match responder.next(lane) {
                Ok(Some((seq, words))) => {
                    taken = taken.wrapping_add(1);
                    assert_eq!((seq, words[0] & u64::from(u32::MAX)), (taken, seq.into()));
                    assert!(owed.insert(seq % SLOTS as u32), "slot taken twice");
                }
                Ok(None) => {}
                Err(reused) => {
                    assert!(owed.contains(&(reused.seq % SLOTS as u32)));
                    return;
                }
            },
            _ => {
                if let Some(slot) = owed.pop_first() {
                    responder.complete(lane, slot, 1, 2);
                }
            }
        }
    }
}

/// The bytes of the segment that `part` consists of.
fn bytes_of<'a, T>(session: &'a Session, part: &'a T) -> &'a [AtomicU8] {
    let at = std::ptr::from_ref(part).addr() - session.bytes().as_ptr().addr();
    &session.bytes()[at..at + size_of::<T>()]
}

/// Writes `word` at a place chosen by `action`; the low places are the control words.
fn put(bytes: &[AtomicU8], action: u8, word: &[u8]) {
    put_at(bytes, usize::from(action) % (bytes.len() / 8), word);
}

fn put_at(bytes: &[AtomicU8], word_index: usize, word: &[u8]) {
    for (byte, value) in bytes[word_index * 8..].iter().zip(word) {
        byte.store(*value, Ordering::Relaxed);
    }
}
