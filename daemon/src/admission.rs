//! Admission: session slots, seats, staging memory, and descriptors are given out here and come
//! back when the session has ended.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::seats::Seats;

/// Descriptors kept for the daemon itself and for its control connections.
const FD_RESERVE: u64 = 64;
/// Descriptors a session needs besides its files: socket, process.
const FDS_PER_SESSION: u64 = 2;
/// Each session has room for one file, so that a thousand processes are let in at a limit of 4,096.
const FILE_CREDIT_MIN: u64 = 1;
const FILE_CREDIT_MAX: u64 = 256;
/// A session gets this part of the descriptors that the sessions to come do not need.
const FILE_CREDIT_SHARE: u64 = 16;
/// Part of the descriptors for files where they are too few for as many sessions as there may be.
const FILE_PART: u64 = 4;
/// A session gets no more than this part of the memory that is left, so that hundreds get some.
const MEMORY_SHARE: u64 = 16;
/// Longest arena of a session, bytes: so much its client can give out.
const ARENA_MAX: u64 = 1 << 30;
/// Growth of an arena leaves free this many times as much.
const GROWTH_SHARE: u64 = 4;
/// Least staging memory that a session works with, bytes: with less, none is let in.
pub const STAGING_MIN: u64 = 256 << 10;

/// Bounds of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Files registered at a time.
    pub(crate) file_credit: u32,
    /// Bytes of the arena that may be used: a power of two.
    pub(crate) arena_len: u64,
    /// Bytes of address space for the arena, in which it may grow: a power of two.
    pub(crate) arena_max: u64,
    /// Index of the executor that serves it.
    pub(crate) executor: usize,
}

impl Grant {
    fn fds(self) -> u64 {
        u64::from(self.file_credit) + FDS_PER_SESSION
    }
}

/// Remaining resources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Session ids in use.
    sessions: Vec<bool>,
    memory: u64,
    /// Set if there is twice the memory that as many sessions as there may be need at least.
    has_for_all: bool,
    fds: u64,
    /// Most memory one session gets at first.
    staging: u64,
    /// Most it may get as it grows.
    arena_max: u64,
    seats: Seats,
}

impl Admission {
    /// Everything is left: `memory` bytes, of which a session gets `staging` at first, `fds`
    /// descriptors, less what the daemon keeps for itself, and the seats.
    pub(crate) fn new(staging: u64, memory: u64, fds: u64, seats: Seats) -> Self {
        let sessions = vec![false; shm::SESSIONS_MAX];
        let has_for_all = memory >= 2 * sessions.len() as u64 * STAGING_MIN;
        let fds = fds.saturating_sub(FD_RESERVE);
        let arena_max = floor_power_of_two((memory / MEMORY_SHARE).min(longest_segment()));
        Self { sessions, memory, has_for_all, fds, staging, arena_max, seats }
    }

    /// Lets a session in and names it; `None` when something has run out.
    pub(crate) fn enter(&mut self) -> Option<(u32, Grant)> {
        let share = self.share().max(STAGING_MIN);
        let arena_len = floor_power_of_two(self.staging.min(share));
        let (file_credit, arena_max) = (self.file_credit(), arena_len.max(self.arena_max));
        let mut grant = Grant { file_credit, arena_len, arena_max, executor: 0 };
        let fds = self.fds.checked_sub(grant.fds())?;
        if arena_len < STAGING_MIN || arena_len > self.memory {
            return None;
        }
        let id = self.sessions.iter().position(|used| !used)?;
        *self.sessions.get_mut(id)? = true;
        self.memory -= arena_len;
        self.fds = fds;
        grant.executor = self.seats.take();
        debug_assert!(grant.arena_len.is_power_of_two(), "logs and windows tile the arena");
        Some((u32::try_from(id).ok()?, grant))
    }

    /// Makes an arena as long as there is memory for, of which `free` bytes may be used now.
    pub(crate) fn grow(&mut self, grant: &mut Grant, free: u64) {
        let more = self.share().min(free / GROWTH_SHARE);
        let len = floor_power_of_two(grant.arena_len + more).min(grant.arena_max);
        debug_assert!(len >= grant.arena_len, "an arena only grows");
        self.memory -= len - grant.arena_len;
        grant.arena_len = len;
    }

    /// Memory that one session may take of what is left.
    fn share(&self) -> u64 {
        let needed = if self.has_for_all { self.free_count() * STAGING_MIN } else { 0 };
        self.memory.saturating_sub(needed) / MEMORY_SHARE
    }

    /// Files of this machine that the next session may have open at a time.
    fn file_credit(&self) -> u32 {
        let needed = self.free_count() * (FDS_PER_SESSION + FILE_CREDIT_MIN);
        let spare = self.fds.checked_sub(needed).unwrap_or(self.fds / FILE_PART);
        let credit = (spare / FILE_CREDIT_SHARE).clamp(FILE_CREDIT_MIN, FILE_CREDIT_MAX);
        u32::try_from(credit).unwrap_or(1)
    }

    /// Sessions that may come yet.
    fn free_count(&self) -> u64 {
        self.sessions.iter().filter(|used| !**used).count() as u64
    }

    /// Takes back what session `id` was granted.
    pub(crate) fn leave(&mut self, id: u32, grant: Grant) {
        if let Some(used) = self.sessions.get_mut(id as usize) {
            debug_assert!(*used, "session {id} was admitted");
            *used = false;
        }
        self.memory += grant.arena_len;
        self.fds += grant.fds();
        self.seats.leave(grant.executor);
    }

    /// Seats of the executors.
    pub(crate) fn seats(&mut self) -> &mut Seats {
        &mut self.seats
    }

    /// Sessions that are in.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.iter().filter(|used| **used).count()
    }
}

/// Bytes that the daemon can map for every session, and may give a segment.
fn longest_segment() -> u64 {
    let is_free = getrlimit(Resource::As).current.is_none();
    let longest = getrlimit(Resource::Fsize).current.map_or(ARENA_MAX, |len| len / 2);
    if is_free { longest.min(ARENA_MAX) } else { 0 }
}

fn floor_power_of_two(len: u64) -> u64 {
    len.checked_ilog2().map_or(0, |log| 1 << log)
}

/// Raises the soft limit of a resource to the hard one and returns what it is then.
pub(crate) fn raise_limit(resource: Resource) -> u64 {
    let limit = getrlimit(resource);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(resource, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX >> 1),
        Err(_) => limit.current.unwrap_or(u64::MAX >> 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn admission(staging: u64, memory: u64, fds: u64) -> Admission {
        Admission::new(staging, memory, fds, Seats::spread(2))
    }

    #[test]
    fn everything_comes_back() {
        let (mut admission, fresh) =
            (admission(3 * MIB, 64 * MIB, 1024), admission(3 * MIB, 64 * MIB, 1024));
        let entered: Vec<_> = std::iter::from_fn(|| admission.enter()).collect();
        assert!(entered.len() > 8);
        for (id, grant) in entered {
            assert!(grant.arena_len.is_power_of_two() && grant.arena_len <= 2 * MIB);
            admission.leave(id, grant);
        }
        assert_eq!(admission, fresh);
    }

    #[test]
    fn memory_bounds_sessions() {
        let mut admission = admission(MIB, 2 * STAGING_MIN + 100, 1 << 20);
        let (first, grant) = admission.enter().expect("room");
        let (arena_len, arena_max) = (STAGING_MIN, STAGING_MIN);
        assert_eq!(grant, Grant { file_credit: 256, arena_len, arena_max, executor: 0 });
        assert!(admission.enter().is_some());
        assert_eq!(admission.enter(), None);
        admission.leave(first, grant);
        assert_eq!(admission.enter().map(|(id, _)| id), Some(first));
    }

    #[test]
    fn early_sessions_leave_memory_for_late_ones() {
        let mut admission = admission(32 * MIB, 256 * MIB, 1 << 20);
        let entered: Vec<_> = std::iter::from_fn(|| admission.enter()).collect();
        assert!(entered.len() >= 100, "{}", entered.len());
        let granted: u64 = entered.iter().map(|(_, grant)| grant.arena_len).sum();
        assert!((128 * MIB..=256 * MIB).contains(&granted), "{granted}");
    }

    #[test]
    fn arenas_grow_by_what_is_left_and_free() {
        let mut admission = admission(32 * MIB, 16 << 30, 1 << 20);
        let (free, before) = (64 << 30, admission.memory);
        let (_, mut first) = admission.enter().expect("room");
        assert_eq!((first.arena_len, first.arena_max), (32 * MIB, 1 << 30));
        admission.grow(&mut first, 0);
        assert_eq!(first.arena_len, 32 * MIB, "nothing is free");
        admission.grow(&mut first, 1 << 30);
        assert_eq!(first.arena_len, 256 * MIB, "a quarter is taken");
        admission.grow(&mut first, free);
        assert_eq!(first.arena_len, 1 << 30);
        let mut rest = vec![first];
        while let Some((_, mut grant)) = admission.enter() {
            admission.grow(&mut grant, free);
            rest.push(grant);
        }
        assert_eq!(rest.len(), shm::SESSIONS_MAX);
        assert_eq!(admission.memory, before - rest.iter().map(|one| one.arena_len).sum::<u64>());
    }

    #[test]
    fn descriptors_bound_sessions() {
        let mut admission = admission(MIB, 1 << 40, FD_RESERVE + 2 * 3 + 2);
        assert_eq!(admission.enter().map(|(_, grant)| grant.file_credit), Some(1));
        assert!(admission.enter().is_some());
        assert_eq!(admission.enter(), None);
    }

    #[test]
    fn every_session_is_let_in_at_a_limit_of_4096_descriptors() {
        let mut admission = admission(32 * MIB, 1 << 30, 4096);
        let entered: Vec<_> = std::iter::from_fn(|| admission.enter()).collect();
        assert_eq!(entered.len(), shm::SESSIONS_MAX);
        let credits: Vec<_> = entered.iter().map(|(_, grant)| grant.file_credit).collect();
        assert!(credits[0] >= 48 && credits[16] >= 16, "{:?}", &credits[..32]);
        assert!(credits.iter().all(|credit| *credit >= 1));
        assert_eq!(entered[0].1.arena_len, 32 * MIB);
    }

    #[test]
    fn sessions_share_what_is_too_little_for_all() {
        for limit in [256, 1024] {
            let mut admission = admission(MIB, 1 << 40, limit);
            let entered: Vec<_> = std::iter::from_fn(|| admission.enter()).collect();
            let sessions = entered.len() as u64;
            assert!(sessions >= limit / 10 && entered[0].1.file_credit > 1, "{entered:?}");
        }
    }

    #[test]
    fn no_session_is_let_in_beyond_the_table() {
        let mut admission = admission(MIB, 1 << 50, 1 << 40);
        for id in 0..shm::SESSIONS_MAX {
            assert_eq!(admission.enter().map(|(given, _)| given as usize), Some(id));
        }
        assert_eq!(admission.enter(), None);
        assert_eq!(admission.session_count(), shm::SESSIONS_MAX);
    }
}
