//! The protocol that the Linux kernel speaks on `/dev/fuse` (`linux/fuse.h`, version 7): requests
//! as values, replies as bytes. No I/O, no system calls.
//!
//! One `read(2)` of the device brings one request, and one `write(2)` takes one reply. Integers are
//! in the machine's byte order. The kernel is the peer, so a request that makes no sense is not
//! hostile: it is one this crate does not know, and is refused with `ENOSYS`.
#![forbid(unsafe_code)]

mod bytes;
mod reply;
mod request;

pub use self::{
    reply::{
        Attributes, Lock, Names, OUT_HEADER_LEN, Settings, attributes, created, empty, entry,
        error, file_system, initialised, locked, opened, position, read_header, text, written,
    },
    request::{
        Changes, Header, IN_HEADER_LEN, Lookups, Open, Operation, ROOT, Request, Time, Transfer,
        WRITE_HEADER_LEN,
    },
};
