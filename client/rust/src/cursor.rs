//! The file position of an open file, and who keeps it.
//!
//! | keeper | the position | who moves it |
//! |---|---|---|
//! | kernel | the kernel's; here stands what nested writes have moved it by | system calls |
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
//! It is read and moved without the file's lock: by a signal handler, which may interrupt whoever
//! has that. What hands the position over sees whether it was moved meanwhile, and looks again.

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

    /// Moves it, and returns where it was; while the kernel keeps it, counts the move.
    pub(crate) fn advance(&self, len: u64) -> u64 {
        self.at.fetch_add(len, Ordering::Relaxed)
    }

    /// Moves it back to where a short write has ended, unless a signal handler has moved it on.
    pub(crate) fn retreat(&self, from: u64, to: u64) {
        debug_assert!(to <= from, "no more is written than was reserved");
        self.at.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Moves it by one instruction of this core; `None` if a signal handler came in between.
    #[inline]
    pub(crate) fn move_on(&self, from: u64, to: u64) -> Option<()> {
        debug_assert!(from <= to, "a write moves the position on");
        shm::exchange(&self.at, from, to).ok().map(drop)
    }

    /// The client keeps it, at the start of a new file.
    pub(crate) fn begin(&self) {
        self.set(0);
        self.is_clients.store(true, Ordering::Release);
    }

    /// The client takes it from the kernel, which `position` asks for it.
    pub(crate) fn take(&self, position: impl Fn() -> u64) {
        while !self.is_clients() {
            // Only now: until here a signal handler's write moved the kernel's. One that comes in
            // between moves both.
            let before = self.at();
            self.hand_over(before, position(), true);
        }
    }

    /// The client gives it to the kernel, which `tell` tells where it is.
    pub(crate) fn give(&self, tell: impl Fn(u64)) {
        while self.is_clients() {
            let position = self.at();
            tell(position);
            // A signal handler that has written since has moved it on; from now on the kernel does.
            self.hand_over(position, AT_END, false);
        }
    }

    /// The kernel keeps it, wherever it is: in the child of a fork, or for another file.
    pub(crate) fn forget(&self) {
        self.is_clients.store(false, Ordering::Release);
    }

    /// Changes the keeper, if the position is still where it was.
    fn hand_over(&self, from: u64, to: u64, is_clients: bool) {
        let moved = self.at.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        self.is_clients.store(is_clients == moved.is_ok(), Ordering::Release);
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

    #[test]
    fn handler_that_writes_while_the_position_changes_hands_is_seen() {
        let cursor = Cursor::new();
        let asked = core::cell::Cell::new(0);
        cursor.take(|| {
            asked.set(asked.get() + 1);
            if asked.get() == 1 {
                cursor.advance(5);
            }
            100
        });
        assert_eq!((cursor.keeper(), asked.get()), (Keeper::Client(100), 2));
        let told = core::cell::Cell::new((0, 0));
        cursor.give(|at| {
            if told.get().0 == 0 {
                cursor.advance(5);
            }
            told.set((told.get().0 + 1, at));
        });
        assert_eq!((cursor.keeper(), told.get()), (Keeper::Kernel, (2, 105)));
    }
}
