//! How a process sees files by name, beside its daemon: what it denied itself the daemon must not
//! do for it, and what it sees elsewhere the daemon cannot find.
//!
//! | state | names |
//! |---|---|
//! | shared | mean the same to the daemon |
//! | own | may mean something else: the process has other mounts, or is another user |
//! | confined | are denied to the process, and the daemon is told none |
//! | elsewhere | begin at another root folder: no absolute one is what a rule is about |
//!
//! The transitions, as a test walks them. There is no way back.
//!
//! | event | transitions |
//! |---|---|
//! | change | shared -> own |
//! | confine | shared -> confined, own -> confined |
//! | change root | shared -> elsewhere, own -> elsewhere, confined -> elsewhere |

use core::sync::atomic::{AtomicU8, Ordering};

/// A sight of names; a later one shares less with the daemon's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Shared,
    Own,
    Confined,
    Elsewhere,
}

/// The sight of a process, by its calls that have changed it.
#[derive(Debug)]
pub(crate) struct OwnSight(AtomicU8);

impl OwnSight {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(Sight::Shared as u8))
    }

    /// The sight is `other` from now on, or shares less already.
    pub(crate) fn leave_for(&self, other: Sight) {
        self.0.fetch_max(other as u8, Ordering::AcqRel);
    }

    pub(crate) fn is(&self, sight: Sight) -> bool {
        self.0.load(Ordering::Acquire) == sight as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave_for(sight: &mut Sight, other: Sight) {
        let own = OwnSight(AtomicU8::new(*sight as u8));
        own.leave_for(other);
        let all = [Sight::Shared, Sight::Own, Sight::Confined, Sight::Elsewhere];
        *sight = all.into_iter().find(|sight| own.is(*sight)).expect("a sight");
    }

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        let states = [
            ("shared", Sight::Shared),
            ("own", Sight::Own),
            ("confined", Sight::Confined),
            ("elsewhere", Sight::Elsewhere),
        ];
        crate::edges::walk(
            include_str!("sight.rs"),
            &states,
            &[
                ("change", |sight| leave_for(sight, Sight::Own)),
                ("confine", |sight| leave_for(sight, Sight::Confined)),
                ("change root", |sight| leave_for(sight, Sight::Elsewhere)),
            ],
        );
    }
}
