//! Layout of frames, and refusals.

use std::vec::Vec;

use super::*;

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    [frame.head().bytes(), frame.payload()].concat()
}

fn all() -> Vec<Frame<'static>> {
    let challenge = Challenge { version: 7, nonce: [3; NONCE_LEN], tag: [4; TAG_LEN] };
    let (boot, root) = ([6; BOOT_LEN], [7; ROOT_LEN]);
    let welcome = RemoteWelcome { requests: 64, buffers: 16, is_known: true, boot, root };
    let write = Request::Write { file: 3, at: 1 << 40, len: 5, arena_at: 0 };
    let rename = Request::Rename { paths: crate::PathPair { from_len: 2, to_len: 3 }, flags: 1 };
    [
        Frame::hello([1; SESSION_LEN], [2; NONCE_LEN]),
        Frame::Challenge(challenge),
        Frame::Proof(Proof { tag: [5; TAG_LEN] }),
        Frame::Welcome(welcome),
        Frame::Request { id: 9, record: None, request: write, payload: b"bytes" },
        Frame::Request { id: 10, record: Some(0), request: rename, payload: b"a/b/c" },
        Frame::Reply { id: 9, value: 5, payload: b"" },
        Frame::Reply { id: u64::MAX, value: 3, payload: b"abc" },
        Frame::Ping,
        Frame::Pong,
        Frame::Goodbye,
        Frame::Worker { address: b"somewhere" },
    ]
    .to_vec()
}

#[test]
fn every_frame_survives_the_way_and_takes_no_byte_of_the_next() {
    for frame in all() {
        let bytes = encoded(frame);
        let (header, body) = bytes.split_first_chunk().expect("a header");
        let start = &body[..body.len().min(BODY_START_LEN)];
        let (bare, payload_at) = Frame::decode(header, start).expect("the same frame");
        assert_eq!(bare.with_payload(&body[payload_at..]), frame);
        let payload = frame.payload();
        let elsewhere = bare.head_before(payload.len(), |start| sum(start, payload));
        assert_eq!(elsewhere.bytes(), frame.head().bytes());
        assert_eq!(Frame::body_sum(header), sum(0, body));
        let followed = [&bytes[..], b"next"].concat();
        assert_eq!(Frame::parse(&followed), Ok(Some((frame, bytes.len()))));
    }
}

/// As for entries: who changes a frame raises the version, and writes down both.
#[test]
fn frames_that_look_different_have_another_version() {
    let bytes = all().into_iter().flat_map(encoded);
    let fingerprint = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((VERSION, fingerprint), (19, 0xb621_1d9c_117c_0ab1));
}

#[test]
fn every_prefix_waits_for_more() {
    for frame in all() {
        let bytes = encoded(frame);
        for len in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..len]), Ok(None), "{frame:?} cut to {len}");
        }
    }
}

#[test]
fn a_length_no_frame_has_is_refused_before_it_is_received() {
    let parse = |kind: u32, len: usize| {
        let mut head = Head { bytes: [0; HEAD_LEN_MAX], len: HEADER_LEN };
        head.header(u32::try_from(len).expect("32 bits"), kind, 0, 0);
        Frame::parse(head.bytes()).map(|found| found.is_some())
    };
    let lens = [
        (REQUEST, REQUEST_LEN, REQUEST_LEN + TRANSFER_LEN_MAX),
        (REPLY, WORD_LEN, WORD_LEN + TRANSFER_LEN_MAX),
        (PROOF, TAG_LEN, TAG_LEN),
        (WORKER, 1, WORKER_LEN_MAX),
    ];
    for (kind, shortest, longest) in lens {
        for len in [shortest - 1, longest + 1, u32::MAX as usize] {
            assert_eq!(parse(kind, len), Err(Invalid::Length(len)));
        }
        assert_eq!([shortest, longest].map(|len| parse(kind, len)), [Ok(false); 2]);
    }
    assert_eq!(parse(PING, 1), Err(Invalid::Length(1)));
}

#[test]
fn a_frame_with_any_bit_changed_is_refused() {
    for frame in all() {
        let bytes = encoded(frame);
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::parse(&changed), Err(Invalid::Checksum), "{frame:?}, bit {bit}");
        }
    }
}

#[test]
fn a_payload_of_another_length_than_the_request_says_is_refused() {
    let request = Request::Write { file: 0, at: 0, len: 6, arena_at: 0 };
    let frame = Frame::Request { id: 1, record: None, request, payload: b"bytes" };
    assert_eq!(Frame::parse(&encoded(frame)), Err(Invalid::Length(5)));
    let request = Request::Read { file: 0, at: 0, len: 1 << 20, arena_at: 0 };
    let frame = Frame::Request { id: 1, record: None, request, payload: b"" };
    assert_eq!(Frame::parse(&encoded(frame)), Err(Invalid::Kind(3)));
}

#[test]
fn what_stays_on_its_node_is_refused() {
    let request = Request::Flush { file: 0, upto: 1 };
    let frame = Frame::Request { id: 1, record: None, request, payload: b"" };
    assert_eq!(Frame::parse(&encoded(frame)), Err(Invalid::Kind(9)));
}
