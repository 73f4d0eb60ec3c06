//! The checks of the fuzz targets, from the committed corpora and from seeded bytes.

use std::{fs, path::Path};

use wire::{
    Challenge, CreateFlags, Frame, NONCE_LEN, PathPair, Proof, Record, RemoteWelcome, Request,
    SESSION_LEN, TAG_LEN,
};

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

#[test]
fn any_index_log_decodes_or_is_refused() {
    replay("records", checks::records);
    let how = CreateFlags::TRUNCATES;
    let made =
        Record::Create { inode: 9, folder: 1, mode: 0o644, how, time: (1, 2), name: b"name" };
    let records = [made, Record::Data { inode: 9, len: 100 }, Record::Close { inode: 9 }];
    let mut state = 1;
    for _ in 0..200_000 {
        let mut log = Vec::new();
        for _ in 0..3 {
            let mut space = [0; Record::LEN_MAX];
            let record = &records[below(&mut state, records.len())];
            log.extend_from_slice(record.encode(&mut space).expect("room"));
        }
        for _ in 0..next(&mut state) % 3 {
            let at = below(&mut state, log.len());
            log[at] = next(&mut state).to_le_bytes()[0];
        }
        log.truncate(below(&mut state, log.len() + 1));
        checks::records(&log);
    }
}

/// Hostile frames: every kind, mutated, cut, and joined. A frame is borrowed from what was
/// received, so nothing grows but what the receiver keeps, at most one frame.
#[test]
fn a_million_mutated_frames_parse_or_are_refused() {
    replay("frames", checks::frames);
    let valid = valid_frames();
    let mut state = 1;
    let mut stream = Vec::new();
    for seed in 0..1_000_000_u64 {
        stream.clear();
        for _ in 0..=seed % 3 {
            let frame = &valid[below(&mut state, valid.len())];
            stream.extend_from_slice(frame);
        }
        for _ in 0..next(&mut state) % 4 {
            let at = below(&mut state, stream.len());
            stream[at] = next(&mut state).to_le_bytes()[0];
        }
        if seed % 5 == 0 {
            let len = below(&mut state, stream.len());
            stream.truncate(len);
        }
        if seed % 64 == 0 {
            // With the seed in a panic's message, and not for each: unwinding has its price.
            let outcome = std::panic::catch_unwind(|| checks::frames(&stream));
            assert!(outcome.is_ok(), "SEED={seed}");
        } else {
            checks::frames(&stream);
        }
    }
}

fn below(state: &mut u64, bound: usize) -> usize {
    usize::try_from(next(state) % bound as u64).expect("less than a length")
}

fn valid_frames() -> Vec<Vec<u8>> {
    let paths = PathPair { from_len: 3, to_len: 4 };
    let requests = [
        (Request::Open { file: 1, flags: 0o102, mode: 0o644, path_len: 4, inode: 0 }, "/abc"),
        (Request::Write { file: 1, at: 4096, len: 5, arena_at: 0 }, "bytes"),
        (Request::Read { file: 1, at: 0, len: 65536, arena_at: 0 }, ""),
        (Request::Rename { paths, flags: 0 }, "/a//b/c"),
        (Request::FileStat { file: 1 }, ""),
        (Request::Lock { file: 1, terms: 0x12, start: 0, len: 9 }, ""),
    ];
    let mut frames: Vec<_> = requests
        .iter()
        .map(|(request, text)| {
            let payload = text.as_bytes();
            Frame::Request { id: 7, record: Some(3), request: *request, payload }
        })
        .collect();
    let (boot, root) = ([6; 16], [7; 16]);
    let welcome = RemoteWelcome { requests: 64, buffers: 32, is_known: true, boot, root };
    frames.extend([
        Frame::hello([1; SESSION_LEN], [2; NONCE_LEN]),
        Frame::Challenge(Challenge { version: 1, nonce: [3; NONCE_LEN], tag: [4; TAG_LEN] }),
        Frame::Proof(Proof { tag: [5; TAG_LEN] }),
        Frame::Welcome(welcome),
        Frame::Reply { id: 9, value: 3, payload: b"abc" },
        Frame::Ping,
        Frame::Pong,
        Frame::Goodbye,
        Frame::Worker { address: b"somewhere" },
    ]);
    frames.iter().map(|frame| [frame.head().bytes(), frame.payload()].concat()).collect()
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
