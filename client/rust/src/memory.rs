//! Memory that a program shares with the daemon, so that nothing is copied on the way there.
//!
//! It is the program's part of the arena, and the program's like any other until it is freed. It
//! outlives the daemon, whose end leaves the segment mapped. Children do not get it: it cannot be
//! copied for them on writing, and what they changed would be changed for the parent, too.
//!
//! # Trust
//!
//! Calls take it like any memory of the program's, as slices: the daemon writes to it what a
//! request of the program asks for, and only until that is answered. One that does not keep to that
//! changes bytes of the program's, which are copied and never looked at here.

use core::{ops::Range, ptr, sync::atomic::AtomicU8};

use rustix::process::{Resource, getrlimit};
use wire::Request;

use crate::{
    arena::BLOCK,
    client::Client,
    clock::{coarse_now, nanoseconds},
    connection::Connection,
};

impl Client {
    /// At least `len` bytes of what is shared with the daemon, at the start of a page, with any
    /// contents; connects first if need be. `None`: there is no daemon, or the process has its
    /// share, half of its staging memory, of which each part takes a power of two of 64 KiB or
    /// more.
    #[must_use]
    pub fn allocate_shared(&'static self, len: usize) -> Option<&'static [AtomicU8]> {
        let connection = self.connection().filter(|_| !self.attention.is_exiting())?;
        let mut arena = connection.arena.lock().ok()?;
        let lent = arena.lend(u64::try_from(len).ok()?)?;
        drop(arena);
        connection.take_memory(lent.start, lent.end - lent.start);
        let lent = within(lent)?;
        connection.session.inherit(lent.start, lent.len(), false);
        connection.session.arena().get(lent)
    }

    /// Takes back what [`allocate_shared`](Self::allocate_shared) gave, by its address. Returns
    /// whether this was such memory; a parent's, of which a child has nothing, counts as such.
    pub fn free_shared(&'static self, address: usize) -> bool {
        let found = self.all_connections().find_map(|c| Some((c, c.place_of(address, 1)?)));
        let Some((connection, at)) = found else { return false };
        let is_ours = self.connected().is_some_and(|ours| ptr::eq(ours, connection));
        if let Some(mut arena) = connection.arena.lock().ok().filter(|_| is_ours) {
            // Before somebody else is given it: a log is inherited, and has its own bytes.
            if let Some(lent) = arena.regain(at) {
                connection.release_grown(&lent).into_iter().for_each(|at| arena.untouch(at));
                if let Some(lent) = within(lent) {
                    connection.session.inherit(lent.start, lent.len(), true);
                }
            }
        }
        true
    }
}

impl Connection {
    /// Where `len` bytes of memory lie in the arena, if they do.
    pub(crate) fn place_of(&self, address: usize, len: usize) -> Option<u64> {
        self.session.place_of(address, len).map(|at| at as u64)
    }

    /// Makes the arena as long as there is memory for, once. Not where the program's address space
    /// is limited, for it may need all of that.
    pub(crate) fn grow(&self) {
        let (granted, now_ns) = (self.growth.granted, nanoseconds(coarse_now()));
        let most = self.session.arena_max();
        let has_room = getrlimit(Resource::As).current.is_none();
        if most as u64 <= granted || !self.growth.is_due(now_ns) || !has_room {
            return;
        }
        let Ok(Ok(len)) = self.call(Request::Grow) else { return };
        let longer = usize::try_from(len).map_or(most, |len| len.min(most));
        let is_mapped = len <= granted || self.session.lengthen(longer).is_ok();
        if let Ok(mut arena) = self.arena.lock() {
            arena.lengthen(len.min(self.session.arena().len() as u64));
            self.growth.answered(if is_mapped { len } else { granted }, now_ns);
        }
    }

    /// Gives back the memory of `len` bytes at `at`, as far as it was not granted at first.
    pub(crate) fn give_memory(&self, at: u64, len: u64) {
        let start = self.release_grown(&(at..at.saturating_add(len)));
        if let (Some(start), Ok(mut arena)) = (start, self.arena.lock()) {
            arena.untouch(start);
        }
    }

    /// Releases what of `range` was not granted at first; returns where that starts, if it is any.
    fn release_grown(&self, range: &Range<u64>) -> Option<u64> {
        let start = range.start.max(self.growth.granted);
        let grown = within(start..range.end).filter(|grown| !grown.is_empty())?;
        self.session.release(grown.start, grown.len());
        Some(start)
    }

    /// Has memory behind the blocks of `len` bytes that start at `at`, as far as nobody has touched
    /// them: a copy that faults page by page takes a third longer.
    pub(crate) fn take_memory(&self, at: u64, len: u64) {
        let (start, end) = (at / BLOCK * BLOCK, at.saturating_add(len).next_multiple_of(BLOCK));
        let untouched =
            self.arena.lock().ok().and_then(|mut arena| arena.untouched(start, end - start));
        if let Some(range) = untouched.and_then(|(at, len)| within(at..at + len)) {
            self.session.populate(range.start, range.len());
        }
    }
}

fn within(lent: Range<u64>) -> Option<Range<usize>> {
    Some(usize::try_from(lent.start).ok()?..usize::try_from(lent.end).ok()?)
}
