//! The attention that a process pays to the descriptors that it opens.
//!
//! | state | a descriptor |
//! |---|---|
//! | eager | is examined when it is opened: nothing is delegated, or first writes are staged |
//! | lazy | is examined when a call on it depends on its file |
//! | connected | is examined when it is opened: there is a session, or soon will be |
//! | detached | is left to the kernel if it is of this node |
//! | exiting | is left to the kernel if it is of this node: the last destructor has run |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | start | eager -> lazy |
//! | connect | lazy -> connected |
//! | detach | eager -> detached, lazy -> detached, connected -> detached |
//! | exit | eager -> exiting, lazy -> exiting, connected -> exiting, detached -> exiting |
//! | fork | connected -> lazy |

use core::sync::atomic::{AtomicU8, Ordering};

use wire::Reason;

const EAGER: u8 = 0;
const LAZY: u8 = 1;
const CONNECTED: u8 = 2;
const DETACHED: u8 = 3;
const EXITING: u8 = 4;

/// A change of a process's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its settings leave the first writes of a file to the kernel.
    Start,
    /// It is about to connect.
    Connect,
    /// It leaves every file of this node to the kernel.
    Detach,
    /// Its last destructor has run.
    Exit,
    /// It is the child of a fork.
    Fork,
}

/// The state of a process towards the descriptors that it opens.
#[derive(Debug)]
pub(crate) struct Attention(AtomicU8);

impl Attention {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(EAGER))
    }

    /// True if a descriptor that is opened may stay unexamined.
    #[inline]
    pub(crate) fn is_lazy(&self) -> bool {
        self.0.load(Ordering::Acquire) == LAZY
    }

    pub(crate) fn is_exiting(&self) -> bool {
        self.0.load(Ordering::Acquire) == EXITING
    }

    /// Why a file of this node that is opened is not delegated.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        (self.0.load(Ordering::Acquire) == DETACHED).then_some(Reason::Unsupported)
    }

    /// Notes an event. Returns whether the state was another one before.
    pub(crate) fn note(&self, event: Event) -> bool {
        let after = |state| match (state, event) {
            (EAGER, Event::Start) | (CONNECTED, Event::Fork) => Some(LAZY),
            (LAZY, Event::Connect) => Some(CONNECTED),
            (..DETACHED, Event::Detach) => Some(DETACHED),
            (..EXITING, Event::Exit) => Some(EXITING),
            _ => None,
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happen(state: &mut u8, event: Event) {
        let attention = Attention(AtomicU8::new(*state));
        let before = *state;
        let is_other = attention.note(event);
        *state = attention.0.into_inner();
        assert_eq!(is_other, *state != before, "{event:?}");
    }

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        let states = [
            ("eager", EAGER),
            ("lazy", LAZY),
            ("connected", CONNECTED),
            ("detached", DETACHED),
            ("exiting", EXITING),
        ];
        crate::edges::walk(
            include_str!("attention.rs"),
            &states,
            &[
                ("start", |state| happen(state, Event::Start)),
                ("connect", |state| happen(state, Event::Connect)),
                ("detach", |state| happen(state, Event::Detach)),
                ("exit", |state| happen(state, Event::Exit)),
                ("fork", |state| happen(state, Event::Fork)),
            ],
        );
    }
}
