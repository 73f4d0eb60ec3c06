//! The protocol between client and daemon as values: no I/O, no clock, no `unsafe`.
//!
//! Layouts are described in `docs/reference/protocol.md`; this crate is the only code that knows
//! where a field lies inside an entry, an answer, or a message. Everything decoded here is a copy
//! that the peer can no longer change, and decoding is total: any bytes give a value, or an
//! [`Invalid`] or `None`.
#![forbid(unsafe_code)]
#![no_std]

#[cfg(test)]
extern crate std;

#[macro_use]
mod named;

mod answer;
mod base;
mod counter;
mod entry;
#[cfg(feature = "frames")]
mod envelope;
#[cfg(feature = "frames")]
mod frame;
mod greeting;
mod lease;
mod listing;
mod lock;
mod mode;
mod payload;
mod phase;
mod place;
mod record;
mod replay;
mod request;
mod sample;
mod times;
mod whence;
mod words;

pub use answer::{FileSystem, FoundLock, Status, Value};
pub use base::Base;
pub use counter::{COUNTER_COUNT, Counter, RULES_COUNTED, Reason};
pub use entry::{ENTRY_WORDS, Entry, Invalid};
#[cfg(feature = "frames")]
pub use envelope::Envelope;
#[cfg(feature = "frames")]
pub use frame::{
    BODY_START_LEN, BOOT_LEN, Challenge, FRAME_LEN_MAX, Frame, HEADER_LEN, Head, Hello,
    INLINE_LEN_MAX, LONG_START_LEN, NONCE_LEN, Proof, ROOT_LEN, RemoteWelcome, SESSION_LEN,
    TAG_LEN, WORKER_LEN_MAX, reseal, sum,
};
pub use greeting::{
    Control, FileFlags, Greeting, MESSAGE_LEN, Message, Refusal, Registration, Role, Welcome,
};
pub use lease::Uses;
pub use listing::{Listed, Listing, ListingWriter, NameKind, names};
pub use lock::{LockKind, LockOwner, LockTerms};
pub use mode::NewMode;
pub use payload::TRANSFER_LEN_MAX;
pub use phase::{Phase, Reply};
pub use place::{Place, PlaceName, SOURCES_MAX};
pub use record::{CreateFlags, Record};
pub use request::{Kind, PathPair, Replay, Request, Subject};
pub use sample::is_sampled;
pub use times::Times;
pub use whence::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};

/// Version of entries, messages, and segment layout. A daemon serves exactly one. Raised with every
/// change of what any of their bytes is, or means: a peer on another node may be of another build.
pub const VERSION: u32 = 19;
