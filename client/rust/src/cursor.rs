//! The file position of an open file, and who keeps it.
//!
//! | keeper | the position | who moves it |
//! |---|---|---|
//! | kernel | the kernel's | system calls |
//! | client | stands here, in bytes | each call, before it writes |
//! | end | right after an append, known once that is drained | an append |
//!
//! The transitions, as a test walks them. Every other pair leaves the keeper.
//!
//! | event | transitions |
//! |---|---|
//! | begin | kernel -> client, end -> client |
//! | take | kernel -> client |
//! | append | client -> end |
//! | set | end -> client |
//! | give | client -> kernel, end -> kernel |
//! | forget | client -> kernel, end -> kernel |
//!
//! It is moved under the file's lock, and read without it: by who only looks who keeps it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The position right after an append; or the kernel has it.
pub(crate) const AT_END: u64 = u64::MAX;

/// Keeper of a file position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The kernel.
    Kernel,
    /// The client, at so many bytes.
    Client(u64),
    /// The client, behind an append.
    End,
}

/// A file position.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursor {
    /// Bytes, or [`AT_END`].
    at: AtomicU64,
    is_clients: AtomicBool,
}

impl Cursor {
    pub(crate) const fn new() -> Self {
        Self { at: AtomicU64::new(0), is_clients: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn keeper(&self) -> Keeper {
        match (self.is_clients(), self.at()) {
            (false, _) => Keeper::Kernel,
            (true, AT_END) => Keeper::End,
            (true, at) => Keeper::Client(at),
        }
    }

    /// True if the client keeps it: something may be staged.
    #[inline]
    pub(crate) fn is_clients(&self) -> bool {
        self.is_clients.load(Ordering::Acquire)
    }

    /// Where it is while the client keeps it: bytes, or [`AT_END`].
    #[inline]
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Says where it is from now on.
    pub(crate) fn set(&self, at: u64) {
        self.at.store(at, Ordering::Relaxed);
    }

    /// Says that it is behind an append.
    pub(crate) fn append(&self) {
        self.set(AT_END);
    }

    /// The client keeps it, at the start of a new file.
    pub(crate) fn begin(&self) {
        self.set(0);
        self.is_clients.store(true, Ordering::Release);
    }

    /// The client takes it from the kernel, which `position` asks for it.
    pub(crate) fn take(&self, position: impl FnOnce() -> u64) {
        if !self.is_clients() {
            self.set(position());
            self.is_clients.store(true, Ordering::Release);
        }
    }

    /// The client gives it to the kernel, which `tell` tells where it is.
    pub(crate) fn give(&self, tell: impl FnOnce(u64)) {
        if self.is_clients() {
            tell(self.at());
            self.forget();
        }
    }

    /// The kernel keeps it, wherever it is: in the child of a fork, or for another file.
    pub(crate) fn forget(&self) {
        self.is_clients.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPERS: [&str; 3] = ["kernel", "client", "end"];
    const EVENTS: [&str; 6] = ["begin", "take", "append", "set", "give", "forget"];

    fn cursor(keeper: &str) -> Cursor {
        let cursor = Cursor::new();
        match keeper {
            "client" => cursor.begin(),
            "end" => {
                cursor.begin();
                cursor.append();
            }
            _ => {}
        }
        cursor
    }

    fn name(cursor: &Cursor) -> &'static str {
        match cursor.keeper() {
            Keeper::Kernel => "kernel",
            Keeper::Client(_) => "client",
            Keeper::End => "end",
        }
    }

    fn happen(event: &str, cursor: &Cursor) {
        match event {
            "begin" => cursor.begin(),
            "take" => cursor.take(|| 7),
            "append" => cursor.append(),
            "set" => cursor.set(9),
            "give" => cursor.give(|_| ()),
            "forget" => cursor.forget(),
            event => panic!("unknown event {event}"),
        }
    }

    #[test]
    fn every_pair_of_keeper_and_event_leads_where_the_table_says() {
        for event in EVENTS {
            for from in KEEPERS {
                let cursor = cursor(from);
                happen(event, &cursor);
                let to = crate::edges::after(include_str!("cursor.rs"), event, from);
                assert_eq!(name(&cursor), to, "{event} of {from}");
            }
        }
    }
}
