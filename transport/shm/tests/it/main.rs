//! The checks of the fuzz targets, from the committed corpora and from seeded bytes.
#![cfg(not(any(loom, miri)))]

use std::{fs, path::Path};

#[path = "../../../../fuzz/checks/shm.rs"]
mod checks;

#[test]
fn any_words_in_a_file_slot_give_runs_inside_the_log() {
    replay("log_peer", checks::log_peer);
    seeded(checks::log_peer);
}

#[test]
fn any_words_in_a_lane_give_each_entry_once() {
    replay("lane_peer", checks::lane_peer);
    seeded(checks::lane_peer);
}

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    for file in fs::read_dir(corpus).expect("committed corpus") {
        check(&fs::read(file.expect("readable").path()).expect("readable"));
    }
}
/// Random scripts whose words are mostly small, as positions and numbers are.
fn seeded(check: fn(&[u8])) {
    for seed in 0..5000 {
        let mut state = seed;
        let mut data = Vec::new();
        // A long one goes round the lane.
        for _ in 0..if seed % 16 == 0 { 1000 } else { 100 } {
            let (action, word) = (next(&mut state), next(&mut state));
            let small = if action & 1 == 0 { word % 4 } else { word % 512 };
            let word = if action & 6 == 0 { word } else { small };
            let place = if action & 8 == 0 { action >> 32 & 63 } else { action >> 32 };
            data.push(place.to_le_bytes()[0]);
            data.extend(word.to_le_bytes());
        }
        let outcome = std::panic::catch_unwind(|| check(&data));
        assert!(outcome.is_ok(), "SEED={seed}");
    }
}

/// splitmix64: the checks need no better randomness than this.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
