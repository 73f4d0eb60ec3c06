//! Invariants under any bytes that a peer sends: used by the fuzz targets and, from seeded bytes,
//! by the tests of `wire`.

use wire::{
    ENTRY_WORDS, Entry, FRAME_LEN_MAX, Frame, Greeting, HEADER_LEN, MESSAGE_LEN, Message, Record,
    Request, Welcome, reseal,
};

/// Decoding an entry is total, and a request means the same after another trip.
pub(crate) fn entry(data: &[u8]) {
    let mut entry = Entry([0; ENTRY_WORDS]);
    for (word, bytes) in entry.0.iter_mut().zip(data.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
    }
    let Ok(request) = Request::decode(&entry) else { return };
    let again = request.encode();
    assert_eq!(again.kind(), entry.kind());
    assert_eq!(Request::decode(&again), Ok(request));
}

/// Reading an index log is total, never goes past the end, and a record means the same after one
/// more trip.
pub(crate) fn records(data: &[u8]) {
    let mut rest = data;
    while let Ok((record, len)) = Record::decode(rest) {
        assert!(len > 0 && len <= rest.len() && len == record.encoded_len());
        let mut space = [0; Record::LEN_MAX];
        let again = record.encode(&mut space).expect("no longer than any record");
        assert_eq!(Record::decode(again), Ok((record, len)));
        rest = rest.get(len..).unwrap_or_default();
    }
}

/// Decoding a message is total, refuses every wrong length, and is undone by encoding.
pub(crate) fn message(data: &[u8]) {
    let greeting = Greeting::decode(data);
    let welcome = Welcome::decode(data);
    let message = Message::decode(data);
    if data.len() != MESSAGE_LEN {
        assert!(greeting.is_err() && welcome.is_err() && message.is_err());
    }
    assert!(greeting.is_err() || message.is_err(), "no message passes for a greeting");
    if let Ok(greeting) = greeting {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    }
    if let Ok(welcome) = welcome {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
    if let Ok(message) = message {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
}

/// Parsing a stream of frames is total, never goes past the end, and is undone by encoding; also
/// with checksums that fit, which hardly any bytes have.
pub(crate) fn frames(data: &[u8]) {
    stream_of_frames(data);
    let mut sealed = data.to_vec();
    reseal(&mut sealed);
    stream_of_frames(&sealed);
}

fn stream_of_frames(mut rest: &[u8]) {
    while let Ok(Some((frame, len))) = Frame::parse(rest) {
        assert!((HEADER_LEN..=FRAME_LEN_MAX.min(rest.len())).contains(&len));
        let head = frame.head();
        let again = [head.bytes(), frame.payload()].concat();
        assert_eq!(again.len(), len);
        assert_eq!(Frame::parse(&again), Ok(Some((frame, len))));
        rest = rest.get(len..).unwrap_or_default();
    }
}
