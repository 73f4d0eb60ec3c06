//! Locks that a process may have, by its calls that asked for one.
//!
//! | state | the process may have locks |
//! |---|---|
//! | none | on nothing |
//! | tracked | on files that are marked |
//! | untracked | on descriptors that Kakehi does not track, too, such as folders |
//!
//! The transitions, as a test walks them. No unlock is followed: there is no way back.
//!
//! | event | transitions |
//! |---|---|
//! | add | none -> tracked |
//! | add untracked | none -> untracked, tracked -> untracked |

use core::sync::atomic::{AtomicU8, Ordering};

use crate::marks::{Bits, Marks};

const NONE: u8 = 0;
const TRACKED: u8 = 1;
const UNTRACKED: u8 = 2;

/// Locks that the process may have.
pub(crate) struct Locks {
    state: AtomicU8,
    files: Marks,
}

impl Locks {
    pub(crate) const fn new(bits: &'static Bits) -> Self {
        Self { state: AtomicU8::new(NONE), files: Marks::new(bits) }
    }

    /// The process asks for a lock on a file.
    pub(crate) fn add(&self, device: u64, inode: u64) {
        self.files.add(device, inode);
        self.state.fetch_max(TRACKED, Ordering::AcqRel);
    }

    /// The process asks for a lock on what is not tracked.
    pub(crate) fn add_untracked(&self) {
        self.state.fetch_max(UNTRACKED, Ordering::AcqRel);
    }

    /// True if the process may have any lock.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.state.load(Ordering::Acquire) != NONE
    }

    /// True if it may have one on the file.
    pub(crate) fn may_be_on(&self, device: u64, inode: u64) -> bool {
        self.files.has(device, inode)
    }

    /// True if it may have one on what is not tracked.
    pub(crate) fn may_be_untracked(&self) -> bool {
        self.state.load(Ordering::Acquire) == UNTRACKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::no_bits;

    static BITS: Bits = no_bits();

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        const STATES: [&str; 3] = ["none", "tracked", "untracked"];
        type Event = (&'static str, fn(&Locks));
        let events: [Event; 2] =
            [("add", |locks| locks.add(7, 1)), ("add untracked", Locks::add_untracked)];
        for (name, event) in events {
            for (state, from) in (NONE..=UNTRACKED).zip(STATES) {
                let locks = Locks { state: AtomicU8::new(state), files: Marks::new(&BITS) };
                event(&locks);
                let to = STATES[usize::from(locks.state.load(Ordering::Relaxed))];
                let documented = crate::edges::after(include_str!("locks.rs"), name, from);
                assert_eq!(to, documented, "{name} of {from}");
            }
        }
    }

    #[test]
    fn marks_of_files_are_kept_apart() {
        let locks = Locks::new(&BITS);
        assert!(!locks.are_any() && !locks.may_be_untracked());
        locks.add(7, 1);
        assert!(locks.are_any() && !locks.may_be_untracked());
        assert!(locks.may_be_on(7, 1) && !locks.may_be_on(7, 2));
    }
}
