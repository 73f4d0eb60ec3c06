//! The process's sessions with its daemon, one after the other: the child of a fork begins without
//! one, and may look at those of its parents.
//!
//! | state | meaning |
//! |---|---|
//! | untried | there is no session; a call that needs one connects |
//! | without number | the program had taken all numbers of descriptors; the next call tries again |
//! | full | the daemon had no room; that is not tried again |
//! | unreachable | no daemon serves this process; that is not tried again |
//! | connected | there is a session, and its daemon lived when it was last looked at |
//! | swept | the daemon is lost, and this process has taken over every file |
//!
//! The transitions, as a test walks them. Nothing else changes a state.
//!
//! | event | transitions |
//! |---|---|
//! | connect | untried -> connected, without number -> connected |
//! | lack number | untried -> without number |
//! | refuse | untried -> full, without number -> full |
//! | fail | untried -> unreachable, without number -> unreachable |
//! | sweep | connected -> swept |
//! | fork | connected -> untried, swept -> untried |

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use shm::{Lock, Once};

use crate::connection::{Connection, Tables};

/// Sessions that a chain of forks can have one after the other: each child needs its own.
const CHAIN_MAX: usize = 16;

/// The state of a process towards its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Untried,
    WithoutNumber,
    Full,
    Unreachable,
    Connected,
    Swept,
}

/// A change of the process's reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A session was made.
    Connect,
    /// No number of a descriptor was free.
    LackNumber,
    /// The daemon had no room.
    Refuse,
    /// There is no daemon, or it serves others.
    Fail,
    /// This process takes over every file of a lost daemon.
    Sweep,
    /// This process is the child of a fork.
    Fork,
}

impl Reach {
    const ALL: [Self; 6] = [
        Self::Untried,
        Self::WithoutNumber,
        Self::Full,
        Self::Unreachable,
        Self::Connected,
        Self::Swept,
    ];

    /// True if a call that needs a session connects.
    pub(crate) const fn may_connect(self) -> bool {
        matches!(self, Self::Untried | Self::WithoutNumber)
    }

    /// The state after an event; `None` where it changes nothing.
    const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Untried | Self::WithoutNumber, Event::Connect) => Some(Self::Connected),
            (Self::Untried, Event::LackNumber) => Some(Self::WithoutNumber),
            (Self::Untried | Self::WithoutNumber, Event::Refuse) => Some(Self::Full),
            (Self::Untried | Self::WithoutNumber, Event::Fail) => Some(Self::Unreachable),
            (Self::Connected, Event::Sweep) => Some(Self::Swept),
            (Self::Connected | Self::Swept, Event::Fork) => Some(Self::Untried),
            _ => None,
        }
    }
}

/// A place for each session.
pub(crate) type Places = [Place; CHAIN_MAX];

/// A connection that is yet to be made, and its tables.
pub(crate) struct Place {
    connection: Once<Connection>,
    tables: Tables,
}

/// Places without a session.
pub(crate) const fn no_sessions() -> Places {
    [const { Place { connection: Once::new(), tables: Tables::new() } }; CHAIN_MAX]
}

/// The sessions of this process and of those it was forked from.
pub(crate) struct Sessions {
    places: &'static Places,
    /// Index of this process's connection; beyond the last: none any more.
    current: AtomicUsize,
    reach: AtomicU8,
    /// Held while a session is made.
    pub(crate) connecting: Lock<()>,
}

impl Sessions {
    pub(crate) const fn new(places: &'static Places) -> Self {
        Self {
            places,
            current: AtomicUsize::new(0),
            reach: AtomicU8::new(Reach::Untried as u8),
            connecting: Lock::new(()),
        }
    }

    /// This process's connection, if there is one already.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Connection> {
        self.places.get(self.current.load(Ordering::Acquire))?.connection.get()
    }

    /// False if this process has no session and had none, which costs no look at its place.
    ///
    /// A connection that somebody has used is found: the lock was taken before it was in its place,
    /// and is given up after the state says so.
    #[inline]
    pub(crate) fn may_have_one(&self) -> bool {
        !self.connecting.is_free() || matches!(self.reach(), Reach::Connected | Reach::Swept)
    }

    /// The place of this process's connection, and its tables.
    pub(crate) fn place(&self) -> Option<(&Once<Connection>, &Tables)> {
        let place = self.places.get(self.current.load(Ordering::Acquire))?;
        Some((&place.connection, &place.tables))
    }

    /// Every connection that there was; this process's first, if it has one, then its parents'.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Connection> {
        let count = self.current.load(Ordering::Acquire) + 1;
        self.places.iter().take(count).rev().filter_map(|place| place.connection.get())
    }

    /// The state by now.
    pub(crate) fn reach(&self) -> Reach {
        decoded(self.reach.load(Ordering::Acquire))
    }

    /// Notes an event. Returns whether the state was another one before.
    pub(crate) fn note(&self, event: Event) -> bool {
        let after = |reach| decoded(reach).after(event).map(|reach| reach as u8);
        self.reach.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok()
    }

    /// In the child of a fork: it begins without a connection, also where its parent was making
    /// one.
    pub(crate) fn fork(&self) {
        let is_first = self.current.load(Ordering::Acquire) == 0;
        if is_first && !self.may_have_one() {
            return; // No lock of a place is held: most often their pages are not there.
        }
        if let Some((_, tables)) = self.place() {
            tables.break_open();
        }
        self.all().for_each(Connection::forget_uses);
        if let Some(connection) = self.current() {
            connection.abandon();
            self.current.fetch_add(1, Ordering::AcqRel);
        }
        self.connecting.break_open();
        self.note(Event::Fork);
    }
}

fn decoded(reach: u8) -> Reach {
    Reach::ALL.get(usize::from(reach)).copied().unwrap_or(Reach::Unreachable)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const STATES: [&str; 6] =
        ["untried", "without number", "full", "unreachable", "connected", "swept"];
    const EVENTS: [(&str, Event); 6] = [
        ("connect", Event::Connect),
        ("lack number", Event::LackNumber),
        ("refuse", Event::Refuse),
        ("fail", Event::Fail),
        ("sweep", Event::Sweep),
        ("fork", Event::Fork),
    ];

    #[test]
    fn every_event_leads_where_the_table_says() {
        static PLACES: Places = no_sessions();
        static SESSIONS: Sessions = Sessions::new(&PLACES);
        for (name, event) in EVENTS {
            for (from, state) in STATES.iter().zip(Reach::ALL) {
                SESSIONS.reach.store(state as u8, Ordering::Relaxed);
                let to = crate::edges::after(include_str!("sessions.rs"), name, from);
                assert_eq!(SESSIONS.note(event), to != *from, "{name} of {from}");
                assert_eq!(STATES[SESSIONS.reach() as usize], to, "{name} of {from}");
            }
        }
    }

    #[test]
    fn a_session_counts_from_the_time_on_when_it_is_being_made() {
        static PLACES: Places = no_sessions();
        static SESSIONS: Sessions = Sessions::new(&PLACES);
        assert!(!SESSIONS.may_have_one());
        let turn = SESSIONS.connecting.lock().expect("once");
        assert!(SESSIONS.may_have_one());
        SESSIONS.note(Event::Connect);
        drop(turn);
        assert!(SESSIONS.may_have_one());
    }

    #[test]
    fn only_a_process_without_a_final_answer_connects() {
        let may = Reach::ALL.into_iter().filter(|reach| reach.may_connect());
        assert_eq!(may.collect::<Vec<_>>(), [Reach::Untried, Reach::WithoutNumber]);
    }
}
