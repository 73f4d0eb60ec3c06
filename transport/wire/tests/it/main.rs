//! The checks of the fuzz targets, from the committed corpora and from seeded bytes.

use std::{fs, path::Path};

#[path = "../../../../fuzz/checks/wire.rs"]
mod checks;

#[test]
fn any_entry_decodes_or_is_refused() {
    replay("entry", checks::entry);
    seeded(checks::entry);
}

#[test]
fn any_message_decodes_or_is_refused() {
    replay("message", checks::message);
    seeded(checks::message);
}

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    for file in fs::read_dir(corpus).expect("committed corpus") {
        check(&fs::read(file.expect("readable").path()).expect("readable"));
    }
}
/// Random words, most with a kind or role that exists.
fn seeded(check: fn(&[u8])) {
    for seed in 0..20_000 {
        let mut state = seed;
        let mut data = Vec::new();
        for word in 0..8 {
            let value = next(&mut state);
            let value = if word == 0 { value & 0x1f_ffff_ffff } else { value >> (value % 64) };
            data.extend((if seed % 4 == 0 { value % 3 } else { value }).to_le_bytes());
        }
        data.truncate(if seed % 8 == 7 { 63 } else { 64 });
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
