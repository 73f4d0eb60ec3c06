//! The staging log under the model checker.

use loom::sync::Arc;

use super::*;

/// Three bytes (as words) through a log of two: payload and extents are ordered, and so is the
/// reuse of the first byte's place.
#[test]
fn payload_and_its_place_are_ordered() {
    crate::sync::model(3, || three_bytes(2, [10, 11, 50]));
}

/// Three extents through two slots, with room for all bytes: the reuse of the first extent's slot
/// is ordered by `extent_tail` alone.
#[test]
fn an_extent_is_read_before_its_slot_is_used_again() {
    crate::sync::model(3, || three_bytes(4, [10, 50, 70]));
}

fn three_bytes(len: u64, file_at: [u64; 3]) {
    let ring: [Word; 4] = core::array::from_fn(|_| Word::default());
    let shared = Arc::new((FileSlot::default(), ring));
    let client = Arc::clone(&shared);
    let client = loom::thread::spawn(move || {
        let (slot, ring) = &*client;
        let mut producer = Producer::new(len);
        for (value, file_at) in (0..).zip(file_at) {
            let range = loop {
                match producer.reserve(slot, file_at, 1) {
                    Some(range) => break range,
                    None => loom::thread::yield_now(),
                }
            };
            ring[producer.ring_at(range.start) as usize].set(value);
            producer.publish(slot, file_at, 1);
        }
    });
    let (slot, ring) = &*shared;
    let (mut consumer, mut seen) = (Consumer::new(len), 0);
    while seen < 3 {
        let mut runs = [Run::default(); 2];
        let count = consumer.runs(slot, len, &mut runs).expect("honest");
        for run in &runs[..count] {
            for i in 0..run.len {
                let value = ring[consumer.ring_at(run.start + i) as usize].get();
                assert_eq!((value, run.file_at + i), (seen, file_at[seen as usize]));
                seen += 1;
            }
            consumer.release(slot, run.start + run.len);
        }
        if count == 0 {
            loom::thread::yield_now();
        }
    }
    client.join().unwrap();
}

/// A write that does not see the demotion is seen by the demoter.
#[test]
fn demotion_misses_no_write() {
    crate::sync::model(3, || {
        let slot = Arc::new(FileSlot::default());
        let client = Arc::clone(&slot);
        let client = loom::thread::spawn(move || {
            Producer::new(2).publish(&client, 0, 1);
            client.is_synchronous()
        });
        slot.demote();
        let drained = slot.head() == 1;
        let waits = client.join().unwrap();
        assert!(drained || waits);
    });
}

/// Two bytes that both sides may drain: each is written once, in order, and whoever resumes finds
/// `tail` and the extents where the other one left them.
#[test]
fn two_drainers_write_each_byte_once_and_in_order() {
    crate::sync::model(2, || {
        let shared = Arc::new((FileSlot::default(), Word::default()));
        let (slot, _) = &*shared;
        let mut producer = Producer::new(2);
        for file_at in [10, 50] {
            producer.reserve(slot, file_at, 1).expect("room");
            producer.publish(slot, file_at, 1);
        }
        let client = Arc::clone(&shared);
        let client = loom::thread::spawn(move || drain(&client, Drainer::Client));
        drain(&shared, Drainer::Daemon);
        client.join().unwrap();
        drain(&shared, Drainer::Daemon);
        assert_eq!((shared.0.tail(), shared.1.get()), (2, 1050));
    });
}

/// Drains what is there, into a word that no two may touch at a time.
fn drain((slot, file): &(FileSlot, Word), by: Drainer) {
    let Some(claim) = slot.claim_drain(by) else { return };
    let mut consumer = Consumer::resume(slot, 2);
    let mut runs = [Run::default(); 1];
    while consumer.runs(slot, 2, &mut runs).expect("honest") > 0 {
        let [run] = runs;
        file.set(file.get() * 100 + run.file_at);
        consumer.release(slot, run.start + run.len);
    }
    let claim = if by == Drainer::Client { slot.begin_release(claim) } else { Some(claim) };
    slot.end_drain(claim.expect("nobody takes it over"));
}

/// A client whose write is done, and taken over, releases nothing any more.
#[test]
fn claim_that_is_taken_over_is_void() {
    crate::sync::model(3, || {
        let slot = Arc::new(FileSlot::default());
        let mut producer = Producer::new(2);
        producer.reserve(&slot, 0, 1).expect("room");
        producer.publish(&slot, 0, 1);
        let claim = slot.claim_drain(Drainer::Client).expect("free");
        let daemon = Arc::clone(&slot);
        let daemon = loom::thread::spawn(move || {
            release(&daemon, daemon.take_over_drain(claim, Drainer::Daemon))
        });
        let is_mine = release(&slot, slot.begin_release(claim));
        assert!(is_mine != daemon.join().unwrap(), "one of them releases");
        assert_eq!((slot.tail(), slot.drain_holder()), (1, None));
    });
}

/// Releases the one staged byte, if the claim holds.
fn release(slot: &FileSlot, claim: Option<DrainClaim>) -> bool {
    let Some(claim) = claim else { return false };
    let mut consumer = Consumer::resume(slot, 2);
    let mut runs = [Run::default(); 1];
    assert_eq!(consumer.runs(slot, 2, &mut runs), Ok(1));
    consumer.release(slot, 1);
    slot.end_drain(claim);
    true
}
