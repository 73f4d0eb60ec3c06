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
