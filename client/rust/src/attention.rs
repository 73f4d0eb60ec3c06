//! When a process examines the descriptors that it opens.
//!
//! | state | a descriptor is examined |
//! |---|---|
//! | lazy | when a call on it depends on its file |
//! | connected | when it is opened: there is a session, or soon will be |
//! | final | when it is opened: it is left to the kernel, or the process exits |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | connect | lazy -> connected |
//! | end | lazy -> final, connected -> final |
//! | fork | connected -> lazy |

use core::sync::atomic::{AtomicU8, Ordering};

const LAZY: u8 = 0;
const CONNECTED: u8 = 1;
const FINAL: u8 = 2;

/// A change of a process's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is about to connect.
    Connect,
    /// It leaves every file to the kernel, or exits.
    End,
    /// It is the child of a fork.
    Fork,
}

/// The state of a process towards the descriptors that it opens.
#[derive(Debug)]
pub(crate) struct Attention(AtomicU8);

impl Attention {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(LAZY))
    }

    /// True if a descriptor that is opened may stay unexamined.
    #[inline]
    pub(crate) fn is_lazy(&self) -> bool {
        self.0.load(Ordering::Acquire) == LAZY
    }

    pub(crate) fn note(&self, event: Event) {
        let after = |state| match (state, event) {
            (LAZY, Event::Connect) => Some(CONNECTED),
            (_, Event::End) => Some(FINAL),
            (CONNECTED, Event::Fork) => Some(LAZY),
            _ => None,
        };
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, after) {
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        const STATES: [&str; 3] = ["lazy", "connected", "final"];
        let events = [("connect", Event::Connect), ("end", Event::End), ("fork", Event::Fork)];
        for (name, event) in events {
            for (state, from) in (LAZY..=FINAL).zip(STATES) {
                let attention = Attention(AtomicU8::new(state));
                attention.note(event);
                let to = STATES[usize::from(attention.0.into_inner())];
                let documented = crate::edges::after(include_str!("attention.rs"), name, from);
                assert_eq!(to, documented, "{name} of {from}");
            }
        }
    }
}
