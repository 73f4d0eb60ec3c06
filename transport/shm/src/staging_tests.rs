//! Tests of the staging log: one file's bytes against a model, and what a hostile client can do.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "lengths and offsets of a 256-byte log"
)]

use std::{boxed::Box, vec, vec::Vec};

use super::*;

const LEN: u64 = 256;

struct Log {
    slot: Box<FileSlot>,
    ring: Vec<u8>,
    producer: Producer,
    consumer: Consumer,
    file: Vec<u8>,
}

impl Log {
    fn new() -> Self {
        let slot = Box::<FileSlot>::default();
        slot.reset();
        let (producer, consumer) = (Producer::new(LEN), Consumer::new(LEN));
        Self { slot, ring: vec![0; LEN as usize], producer, consumer, file: Vec::new() }
    }

    /// Stages as much of `data` as fits and returns how much that was.
    fn stage(&mut self, file_at: u64, data: &[u8]) -> usize {
        let mut done = 0;
        while done < data.len() {
            let at = if file_at == APPEND { APPEND } else { file_at + done as u64 };
            let left = (data.len() - done) as u64;
            let Some(range) = self.producer.reserve(&self.slot, at, left) else { break };
            let len = (range.end - range.start) as usize;
            let ring_at = self.producer.ring_at(range.start) as usize;
            self.ring[ring_at..ring_at + len].copy_from_slice(&data[done..done + len]);
            self.producer.publish(&self.slot, at, len as u64);
            done += len;
        }
        done
    }

    fn drain(&mut self, budget: u64) -> Vec<Run> {
        let mut runs = [Run::default(); 8];
        let count = self.consumer.runs(&self.slot, budget, &mut runs).expect("honest");
        for run in &runs[..count] {
            let ring_at = self.consumer.ring_at(run.start) as usize;
            let data = self.ring[ring_at..ring_at + run.len as usize].to_vec();
            match run.file_at {
                CUT_OFF => {}
                APPEND => self.file.extend(data),
                at => write(&mut self.file, at as usize, &data),
            }
            self.consumer.release(&self.slot, run.start + run.len);
        }
        runs[..count].to_vec()
    }
}

fn write(file: &mut Vec<u8>, at: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    file.resize(file.len().max(at + data.len()), 0);
    file[at..at + data.len()].copy_from_slice(data);
}

#[test]
fn sequential_writes_leave_one_extent() {
    let mut log = Log::new();
    for i in 0..8 {
        assert_eq!(log.stage(1000 + i * 16, &[i as u8; 16]), 16);
    }
    assert_eq!(log.drain(LEN), [Run { file_at: 1000, start: 0, len: 128 }]);
    log.stage(1128, &[9; 8]);
    assert_eq!(log.drain(LEN), [Run { file_at: 1128, start: 128, len: 8 }]);
}

#[test]
fn a_full_log_refuses_and_keeps_what_it_has() {
    let mut log = Log::new();
    assert_eq!(log.stage(0, &[1; 300]), LEN as usize);
    assert_eq!(log.stage(300, &[2; 1]), 0);
    log.drain(LEN);
    assert_eq!(log.file, [1; LEN as usize]);
    assert_eq!(log.stage(LEN, &[2; 1]), 1);
}

#[test]
fn extents_run_out_before_bytes_and_come_back() {
    let mut log = Log::new();
    for i in 0..EXTENTS as u64 {
        assert_eq!(log.stage(i * 10, &[1]), 1, "extent {i}");
    }
    assert_eq!(log.stage(9999, &[1]), 0);
    assert_eq!(log.stage((EXTENTS as u64 - 1) * 10 + 1, &[1]), 1, "continues the last one");
    let runs = &mut [Run::default(); EXTENTS];
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), Ok(EXTENTS));
    log.consumer.release(&log.slot, log.slot.head());
    for i in 0..EXTENTS as u64 - 1 {
        assert_eq!(log.stage(9999 + 10 * i, &[1]), 1, "extent {i}");
    }
}

#[test]
fn random_writes_and_drains_match_a_plain_file() {
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    for seed in 0..rounds {
        let (mut random, mut log, mut model) = (Random(seed), Log::new(), Vec::new());
        for _ in 0..60 {
            match random.below(4) {
                0 => drop(log.drain(random.below(LEN))),
                1 => {
                    // The daemon dies; another consumer takes over from what is shared.
                    log.consumer = Consumer::resume(&log.slot, LEN);
                }
                _ => {
                    let at = random.below(600);
                    let data = vec![random.below(256) as u8; random.below(100) as usize];
                    let staged = log.stage(at, &data);
                    write(&mut model, at as usize, &data[..staged]);
                }
            }
        }
        while !log.drain(LEN).is_empty() {}
        model.truncate(log.file.len().max(model.len()));
        assert_eq!(log.file, model, "SEED={seed}");
    }
}

/// The file is truncated, or has holes punched, while some bytes are staged.
#[test]
fn file_that_is_cut_gets_no_staged_bytes_from_before_the_cut() {
    for seed in 0..if cfg!(miri) { 20 } else { 2000 } {
        let (mut random, mut log, mut model) = (Random(seed), Log::new(), Vec::new());
        for _ in 0..60 {
            match random.below(4) {
                0 => drop(log.drain(random.below(LEN))),
                1 => log.consumer = Consumer::resume(&log.slot, LEN),
                2 => {
                    let (from, len) = (random.below(600), random.below(200));
                    let to = if random.below(2) == 0 { u64::MAX } else { from + len };
                    let cut = Cut::new(log.slot.head(), from, to);
                    let Some(cut) = cut.with(log.slot.cut(), log.slot.tail()) else { continue };
                    log.slot.set_cut(cut);
                    for file in [&mut model, &mut log.file] {
                        match to {
                            u64::MAX => file.resize(from as usize, 0),
                            to => file
                                .iter_mut()
                                .take(to as usize)
                                .skip(from as usize)
                                .for_each(|byte| *byte = 0),
                        }
                    }
                    log.file.resize(log.file.len().max(model.len()), 0);
                }
                _ => {
                    let (at, byte) = (random.below(600), 1 + random.below(255) as u8);
                    let data = vec![byte; random.below(100) as usize];
                    let staged = log.stage(at, &data);
                    write(&mut model, at as usize, &data[..staged]);
                }
            }
            let end = log.consumer.end(&log.slot, log.file.len() as u64);
            assert_eq!(end, Ok(model.len() as u64), "SEED={seed}");
        }
        while !log.drain(LEN).is_empty() {}
        assert_eq!(log.file, model, "SEED={seed}");
    }
}

#[test]
fn append_goes_to_the_end_of_a_truncated_file_only_if_it_came_later() {
    let mut log = Log::new();
    log.stage(APPEND, b"before");
    log.slot.set_cut(Cut::new(log.slot.head(), 0, u64::MAX));
    log.stage(APPEND, b"later");
    assert_eq!(log.consumer.end(&log.slot, 0), Ok(5));
    while !log.drain(LEN).is_empty() {}
    assert_eq!(log.file, b"later");
}

#[test]
fn appends_stay_appends() {
    let mut log = Log::new();
    log.stage(APPEND, b"one ");
    log.stage(APPEND, b"two ");
    assert_eq!(log.drain(LEN), [Run { file_at: APPEND, start: 0, len: 8 }]);
    log.slot.write_begins(8, 8, 3);
    assert_eq!(log.slot.last_write(), Some((8, 8, 3)));
}

/// Calls append to a log that is drained now and then, by few bytes and runs at a time.
#[test]
fn what_one_call_appends_is_drained_together() {
    const EXTENT_MAX: u64 = 96;
    for seed in 0..if cfg!(miri) { 20 } else { 2000 } {
        let (mut random, mut log) = (Random(seed), Log::new());
        let (mut ends, mut drained_to) = (vec![0], 0);
        for _ in 0..60 {
            if random.below(2) == 0 {
                let len = 1 + random.below(EXTENT_MAX);
                let range = log.producer.reserve_whole(&log.slot, len, EXTENT_MAX);
                let Some(range) = range else { continue };
                assert_eq!(range.end - range.start, len);
                log.producer.publish(&log.slot, APPEND, len);
                ends.push(range.end);
                continue;
            }
            let mut runs = [Run::default(); 3];
            let runs_max = 2 + random.below(2) as usize;
            let budget = EXTENT_MAX + random.below(LEN);
            let count = log.consumer.runs(&log.slot, budget, &mut runs[..runs_max]);
            for run in &runs[..count.expect("honest")] {
                let end = run.start + run.len;
                let wraps = log.consumer.ring_at(end) == 0;
                assert!(wraps || ends.contains(&end), "SEED={seed}: {run:?} of {ends:?}");
                drained_to = end;
            }
            assert!(ends.contains(&drained_to), "SEED={seed}: until {drained_to} of {ends:?}");
            log.consumer.release(&log.slot, drained_to);
        }
    }
}

#[test]
fn errors_are_reported_once_and_the_first_one_wins() {
    let slot = FileSlot::default();
    slot.owe(28);
    slot.owe(5);
    assert_eq!(slot.take_error(), Some(28));
    assert_eq!(slot.take_error(), None);
}

#[test]
fn a_hostile_client_gets_an_error_not_a_walk() {
    let runs = &mut [Run::default(); 4];

    let log = Log::new();
    log.slot.producer.0.head.store(LEN + 1, Ordering::Relaxed);
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), Err(Corrupt::Head { claimed: LEN + 1 }));

    log.slot.producer.0.head.store(4, Ordering::Relaxed);
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), Err(Corrupt::Extents { claimed: 0 }));

    log.slot.producer.0.extent_head.store(65, Ordering::Relaxed);
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), Err(Corrupt::Extents { claimed: 65 }));

    log.slot.producer.0.extent_head.store(1, Ordering::Relaxed);
    log.slot.extents[0].start.set(3);
    let gap = Err(Corrupt::Extent { start: 3, file_at: 0 });
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), gap);

    log.slot.extents[0].start.set(0);
    log.slot.extents[0].file_at.set(FILE_AT_MAX - 2);
    let past_the_end = Err(Corrupt::Extent { start: 0, file_at: FILE_AT_MAX - 2 });
    assert_eq!(log.consumer.runs(&log.slot, LEN, runs), past_the_end);
}

#[test]
fn a_head_behind_the_tail_is_corrupt_at_the_end_of_the_range_too() {
    let (slot, runs) = (FileSlot::default(), &mut [Run::default(); 4]);
    slot.consumer.0.tail.store(u64::MAX - 1, Ordering::Relaxed); // What a hostile daemon left.
    slot.producer.0.head.store(6, Ordering::Relaxed);
    let consumer = Consumer::resume(&slot, LEN);
    assert_eq!(consumer.runs(&slot, LEN, runs), Err(Corrupt::Head { claimed: 8 }));
}

#[test]
fn any_shared_words_give_runs_inside_the_log() {
    let mut random = Random(7);
    for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
        let slot = FileSlot::default();
        slot.producer.0.head.store(random.below(2 * LEN), Ordering::Relaxed);
        slot.producer.0.extent_head.store(random.below(70) as u32, Ordering::Relaxed);
        for extent in &slot.extents {
            extent.start.set(random.below(LEN));
            extent.file_at.set(random.next() >> random.below(64));
        }
        let [upto, from, to] = [(); 3].map(|()| random.next() >> random.below(64));
        slot.set_cut(Cut::new(upto, from, to));
        let consumer = Consumer::new(LEN);
        consumer.end(&slot, 7).inspect(|end| assert!(*end >= 7)).ok();
        let mut runs = [Run::default(); 8];
        if let Ok(count) = consumer.runs(&slot, LEN, &mut runs) {
            for run in &runs[..count] {
                assert!(run.len > 0 && consumer.ring_at(run.start) + run.len <= LEN);
                let is_placed = !matches!(run.file_at, APPEND | CUT_OFF);
                assert!(!is_placed || run.file_at + run.len <= FILE_AT_MAX);
            }
        }
    }
}

/// xorshift: the tests need no better randomness than this.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let mut x = self.0;
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^ x >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
