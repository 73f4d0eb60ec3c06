//! The large parts of a client, apart from the small ones that every process uses.
//!
//! They are zeros at first: so they take no room in the library's file, and a process gets pages
//! only for what it uses. An `exec` that opens nothing pays for none of them.
//!
//! Numbers and files come first: they share their 2 MiB of addresses with the library's code, so
//! the kernel makes no huge page there, which it would clear for the first file that is opened.

use shm::Lock;

use crate::{
    file::{Entries, FILES_MAX, FileEntry},
    marks::{Bits, no_bits},
    recorder::Lines,
    sessions::{Places, no_sessions},
    table::{Numbers, no_numbers},
    watch::{FileWatch, FileWatches},
};

/// Memory of one [`Client`](crate::Client).
#[repr(C)]
pub struct Backing {
    pub(crate) numbers: Numbers,
    pub(crate) files: Entries,
    pub(crate) mapped: Bits,
    pub(crate) locked: Bits,
    pub(crate) sessions: Places,
    pub(crate) watched: FileWatches,
    pub(crate) lines: Lock<Lines>,
}

impl Backing {
    /// That of a client that has done nothing yet.
    #[expect(clippy::new_without_default, reason = "megabytes, which only a static has room for")]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            numbers: no_numbers(),
            files: [const { FileEntry::free() }; FILES_MAX],
            mapped: no_bits(),
            locked: no_bits(),
            sessions: no_sessions(),
            watched: [const { FileWatch::new() }; FILES_MAX],
            lines: Lock::new(Lines::NONE),
        }
    }
}
