//! Frames between a daemon and a remote server, over any stream of bytes
//! (`docs/reference/protocol.md`, section 8): a header that says how much follows, then a handshake
//! message, a request, or a reply.
//!
//! # Trust
//!
//! [`Frame::parse`] and [`Frame::decode`] are total. They look at no byte beyond the frame, refuse
//! a length before that much has been received, and hand out a request only when its payload has
//! the length that the request asks for: the bound on what a receiver has to hold is
//! [`FRAME_LEN_MAX`].
//!
//! # Checksums
//!
//! A header ends with the CRC32C of the body and, last, that of the header before it. They find
//! what a network card, a cable, or memory on the way has changed. Against somebody who changes
//! frames on purpose they do nothing.

use crate::{
    VERSION,
    entry::{ENTRY_WORDS, Entry, Invalid},
    payload::TRANSFER_LEN_MAX,
    request::Request,
    words::{Reader, WORD_LEN, narrow},
};

/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = 24;
/// Payload up to this length, bytes, needs no buffer credit.
pub const INLINE_LEN_MAX: usize = 8 << 10;
/// Bytes of a body that [`Frame::decode`] reads, at most.
pub const BODY_START_LEN: usize = HEAD_LEN_MAX - HEADER_LEN;
/// Bytes before the payload in the body of a frame that may be long, at most.
pub const LONG_START_LEN: usize = REQUEST_LEN;
/// Length of the longest frame in bytes.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + REQUEST_LEN + TRANSFER_LEN_MAX;
/// Length of a session's name in bytes.
pub const SESSION_LEN: usize = 16;
/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 32;
/// Length of what names a boot of a machine in bytes.
pub const BOOT_LEN: usize = 16;
/// Length of a root's name in bytes.
pub const ROOT_LEN: usize = 16;
/// Length of a proof of the job key in bytes.
pub const TAG_LEN: usize = 32;
/// Length of the longest address of a UCX worker in bytes: some hundreds are usual.
pub const WORKER_LEN_MAX: usize = 16 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"kakehi\0\x03");
/// Record slot and entry, before the payload.
const REQUEST_LEN: usize = WORD_LEN + ENTRY_WORDS * WORD_LEN;
const HELLO_LEN: usize = 2 * WORD_LEN + SESSION_LEN + NONCE_LEN;
const CHALLENGE_LEN: usize = 2 * WORD_LEN + NONCE_LEN + TAG_LEN;
const WELCOME_LEN: usize = 2 * WORD_LEN + BOOT_LEN + ROOT_LEN;
const HEAD_LEN_MAX: usize = HEADER_LEN + CHALLENGE_LEN;
const _: () = assert!(CHALLENGE_LEN >= REQUEST_LEN && CHALLENGE_LEN >= HELLO_LEN);

/// The first message of a connection, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version spoken; see [`VERSION`].
    pub version: u32,
    /// Name of the session, the same at every connection of it.
    pub session: [u8; SESSION_LEN],
    /// Never used before.
    pub nonce: [u8; NONCE_LEN],
}

/// The server's answer to [`Hello`]: it knows the job key, and asks for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The version the server speaks.
    pub version: u32,
    /// Never used before.
    pub nonce: [u8; NONCE_LEN],
    /// The server's proof.
    pub tag: [u8; TAG_LEN],
}

/// The client's answer to [`Challenge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The client's proof.
    pub tag: [u8; TAG_LEN],
}

/// The server lets the client in and grants credits; every reply returns those of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWelcome {
    /// Requests that may be unanswered at a time.
    pub requests: u32,
    /// Of these, how many may read or write more than [`INLINE_LEN_MAX`] bytes.
    pub buffers: u32,
    /// True if the server still has the files that the session has open.
    pub is_known: bool,
    /// The boot of its machine. What was written in an earlier one and not synced may be lost.
    pub boot: [u8; BOOT_LEN],
    /// The name of its root: a job does not go on in another.
    pub root: [u8; ROOT_LEN],
}

/// One frame, its payload borrowed from the bytes it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Challenge`].
    Challenge(Challenge),
    /// See [`Proof`].
    Proof(Proof),
    /// See [`RemoteWelcome`].
    Welcome(RemoteWelcome),
    /// The UCX worker at which a side takes the frames that follow the welcome, once both have
    /// proven the key.
    Worker {
        /// Its address, as UCX has made it.
        address: &'a [u8],
    },
    /// A request; `file` is a handle that the client chose.
    Request {
        /// Chosen by the client, increasing; the reply carries it.
        id: u64,
        /// Where the server records that it was done: a slot that no unanswered request uses.
        record: Option<u32>,
        /// The request.
        request: Request,
        /// Paths, or the bytes to write.
        payload: &'a [u8],
    },
    /// Result of a request.
    Reply {
        /// The request's.
        id: u64,
        /// A count, or a negated errno.
        value: u64,
        /// Bytes read, or what else was asked for.
        payload: &'a [u8],
    },
    /// Asks whether the peer is there.
    Ping,
    /// It is.
    Pong,
    /// The session is over: its files are closed and its records removed.
    Goodbye,
}

/// Where the checksum of the body stands in a header, and that of the header.
const BODY_SUM_AT: usize = 16;
const HEADER_SUM_AT: usize = 20;

/// CRC32C of what `sum` is of, followed by `bytes`; nothing has 0.
#[must_use]
pub fn sum(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// Gives every frame in `bytes` the checksums that fit what stands there now, as far as their
/// lengths tell where they are: for tests of what lies behind the checksums.
pub fn reseal(mut bytes: &mut [u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk_mut::<HEADER_LEN>() {
        let (len, ..) = words_of(header);
        let Some((body, next)) = rest.split_at_mut_checked(len) else { return };
        let (summed, own) = header.split_at_mut(HEADER_SUM_AT);
        if let Some((_, of_body)) = summed.split_at_mut_checked(BODY_SUM_AT) {
            of_body.copy_from_slice(&sum(0, body).to_le_bytes());
        }
        own.copy_from_slice(&sum(0, summed).to_le_bytes());
        bytes = next;
    }
}

/// The start of an encoded frame; the payload follows.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD_LEN_MAX],
    len: usize,
}

const HELLO: u32 = 1;
const CHALLENGE: u32 = 2;
const PROOF: u32 = 3;
const WELCOME: u32 = 4;
const REQUEST: u32 = 5;
const REPLY: u32 = 6;
const PING: u32 = 7;
const PONG: u32 = 8;
const GOODBYE: u32 = 9;
const WORKER: u32 = 10;

impl<'a> Frame<'a> {
    /// The first frame in `bytes` and its length in bytes; `None` when more has to be received.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when what is there cannot become a frame; the stream is of no use then.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Invalid> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let len = Self::body_len(header)?;
        let Some(body) = rest.get(..len) else { return Ok(None) };
        if sum(0, body) != Self::body_sum(header) {
            return Err(Invalid::Checksum);
        }
        let (frame, payload_at) = Self::decode(header, body)?;
        let payload = body.get(payload_at..).unwrap_or_default();
        Ok(Some((frame.with_payload(payload), HEADER_LEN + len)))
    }

    /// How many bytes follow this header.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: no frame begins so.
    pub fn body_len(header: &[u8; HEADER_LEN]) -> Result<usize, Invalid> {
        let (summed, own) = header.split_at(HEADER_SUM_AT);
        if Reader(own).half() != Some(sum(0, summed)) {
            return Err(Invalid::Checksum);
        }
        let (len, kind, _) = words_of(header);
        let (shortest, longest) = match kind {
            HELLO => (HELLO_LEN, HELLO_LEN),
            CHALLENGE => (CHALLENGE_LEN, CHALLENGE_LEN),
            PROOF => (TAG_LEN, TAG_LEN),
            WELCOME => (WELCOME_LEN, WELCOME_LEN),
            REQUEST => (REQUEST_LEN, REQUEST_LEN + TRANSFER_LEN_MAX),
            REPLY => (WORD_LEN, WORD_LEN + TRANSFER_LEN_MAX),
            PING | PONG | GOODBYE => (0, 0),
            WORKER => (1, WORKER_LEN_MAX),
            _ => return Err(Invalid::Message(kind)),
        };
        if (shortest..=longest).contains(&len) { Ok(len) } else { Err(Invalid::Length(len)) }
    }

    /// Returns the [`sum`] that the body after this header must have.
    #[must_use]
    pub fn body_sum(header: &[u8; HEADER_LEN]) -> u32 {
        Reader(header.get(BODY_SUM_AT..).unwrap_or_default()).half().unwrap_or(0)
    }

    /// The frame with this header, without its payload, and where in the body that begins. Of the
    /// body, `start` is the first [`BODY_START_LEN`] bytes, or all when there are fewer. Whoever
    /// receives the body compares its sum.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn decode(
        header: &[u8; HEADER_LEN],
        start: &[u8],
    ) -> Result<(Frame<'static>, usize), Invalid> {
        let len = Self::body_len(header)?;
        let (_, kind, id) = words_of(header);
        let frame = Frame::of(kind, id, len, Reader(start)).ok_or(Invalid::Length(len))??;
        let payload_at = match kind {
            REQUEST => REQUEST_LEN,
            REPLY => WORD_LEN,
            WORKER => 0,
            _ => len,
        };
        Ok((frame, payload_at))
    }

    /// `None`: the body is too short, which the caller has excluded.
    fn of(
        kind: u32,
        id: u64,
        len: usize,
        mut body: Reader<'_>,
    ) -> Option<Result<Frame<'static>, Invalid>> {
        let greets = matches!(kind, HELLO | CHALLENGE);
        if greets && body.word()? != MAGIC {
            return Some(Err(Invalid::Magic));
        }
        Some(Ok(match kind {
            HELLO => {
                let version = narrow(body.word()?);
                Frame::Hello(Hello { version, session: body.array()?, nonce: body.array()? })
            }
            CHALLENGE => {
                let version = narrow(body.word()?);
                Frame::Challenge(Challenge { version, nonce: body.array()?, tag: body.array()? })
            }
            PROOF => Frame::Proof(Proof { tag: body.array()? }),
            WELCOME => {
                let (requests, buffers) = (body.half()?, body.half()?);
                let is_known = body.word()? != 0;
                let (boot, root) = (body.array()?, body.array()?);
                Frame::Welcome(RemoteWelcome { requests, buffers, is_known, boot, root })
            }
            REQUEST => return request(id, len.checked_sub(REQUEST_LEN)?, body),
            REPLY => Frame::Reply { id, value: body.word()?, payload: &[] },
            PING => Frame::Ping,
            PONG => Frame::Pong,
            WORKER => Frame::Worker { address: &[] },
            _ => Frame::Goodbye,
        }))
    }

    /// The same frame with this payload, if it is of those that have one.
    #[must_use]
    pub const fn with_payload<'b>(self, payload: &'b [u8]) -> Frame<'b>
    where
        'a: 'b,
    {
        match self {
            Self::Request { id, record, request, .. } => {
                Frame::Request { id, record, request, payload }
            }
            Self::Reply { id, value, .. } => Frame::Reply { id, value, payload },
            Self::Worker { .. } => Frame::Worker { address: payload },
            other => other,
        }
    }

    /// The frame without its payload, encoded.
    #[must_use]
    pub fn head(&self) -> Head {
        let payload = self.payload();
        self.head_before(payload.len(), |start| sum(start, payload))
    }

    /// The frame encoded, to be followed by a payload of `payload_len` bytes that is elsewhere;
    /// `with_payload` continues a [`sum`] over it.
    #[must_use]
    pub fn head_before(&self, payload_len: usize, with_payload: impl FnOnce(u32) -> u32) -> Head {
        let mut head = Head { bytes: [0; HEAD_LEN_MAX], len: HEADER_LEN };
        let (kind, id) = match *self {
            Self::Hello(hello) => {
                head.words(&[MAGIC, u64::from(hello.version)]);
                head.put(&hello.session);
                head.put(&hello.nonce);
                (HELLO, 0)
            }
            Self::Challenge(challenge) => {
                head.words(&[MAGIC, u64::from(challenge.version)]);
                head.put(&challenge.nonce);
                head.put(&challenge.tag);
                (CHALLENGE, 0)
            }
            Self::Proof(proof) => {
                head.put(&proof.tag);
                (PROOF, 0)
            }
            Self::Welcome(welcome) => {
                let credits = u64::from(welcome.requests) | u64::from(welcome.buffers) << 32;
                head.words(&[credits, u64::from(welcome.is_known)]);
                head.put(&welcome.boot);
                head.put(&welcome.root);
                (WELCOME, 0)
            }
            Self::Request { id, record, request, .. } => {
                head.words(&[record.map_or(0, |slot| u64::from(slot) + 1)]);
                head.words(&request.encode().0);
                (REQUEST, id)
            }
            Self::Reply { id, value, .. } => {
                head.words(&[value]);
                (REPLY, id)
            }
            Self::Ping => (PING, 0),
            Self::Pong => (PONG, 0),
            Self::Goodbye => (GOODBYE, 0),
            Self::Worker { .. } => (WORKER, 0),
        };
        let body_len = head.len - HEADER_LEN + payload_len;
        let body = head.bytes.get(HEADER_LEN..head.len).unwrap_or_default();
        let body_sum = with_payload(sum(0, body));
        head.header(u32::try_from(body_len).unwrap_or(u32::MAX), kind, id, body_sum);
        head
    }

    /// Returns the bytes after the head.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        match self {
            Self::Request { payload, .. } | Self::Reply { payload, .. } => payload,
            Self::Worker { address } => address,
            _ => &[],
        }
    }

    /// A hello in this version.
    #[must_use]
    pub const fn hello(session: [u8; SESSION_LEN], nonce: [u8; NONCE_LEN]) -> Self {
        Self::Hello(Hello { version: VERSION, session, nonce })
    }
}

/// A request whose payload has the length it asks for.
fn request(
    id: u64,
    found_len: usize,
    mut body: Reader<'_>,
) -> Option<Result<Frame<'static>, Invalid>> {
    let record = body.word()?;
    let mut entry = Entry([0; ENTRY_WORDS]);
    for word in &mut entry.0 {
        *word = body.word()?;
    }
    let request = match Request::decode(&entry) {
        Ok(request) => request,
        Err(invalid) => return Some(Err(invalid)),
    };
    let Some(payload_len) = request.payload_len() else {
        return Some(Err(Invalid::Kind(entry.kind())));
    };
    if payload_len != found_len as u64 {
        return Some(Err(Invalid::Length(found_len)));
    }
    let record = record.checked_sub(1).map(narrow);
    Some(Ok(Frame::Request { id, record, request, payload: &[] }))
}

/// Length of the body, kind, and id.
fn words_of(header: &[u8; HEADER_LEN]) -> (usize, u32, u64) {
    let mut header = Reader(header);
    let (len, kind) = (header.half().unwrap_or(0), header.half().unwrap_or(0));
    (usize::try_from(len).unwrap_or(usize::MAX), kind, header.word().unwrap_or(0))
}

impl Head {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn put(&mut self, bytes: &[u8]) {
        let rest = self.bytes.get_mut(self.len..).unwrap_or_default();
        rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.len += bytes.len();
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.put(&word.to_le_bytes()));
    }

    fn header(&mut self, len: u32, kind: u32, id: u64, body_sum: u32) {
        let end = core::mem::replace(&mut self.len, 0);
        self.words(&[u64::from(len) | u64::from(kind) << 32, id]);
        self.put(&body_sum.to_le_bytes());
        let own = sum(0, self.bytes());
        self.put(&own.to_le_bytes());
        self.len = end;
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
