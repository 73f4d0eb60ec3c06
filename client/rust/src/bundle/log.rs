//! The two logs of a session's bundle, as their producer has them.

use core::time::Duration;

use rustix::{
    io::Errno,
    thread::{NanosleepRelativeResult, nanosleep, sched_yield},
    time::Timespec,
};
use shm::{
    bundle::{ALIGNMENT, Logs, stretches},
    copy::copy_in,
};
use wire::{Record, Request};

use super::{Lease, Leases};
use crate::{client::Client, clock::coarse_now, connection::Connection};

/// Lengths of the logs, bytes: what a program writes in the time between two looks of the daemon.
const INDEX_LEN: u64 = 256 << 10;
const DATA_LEN: u64 = 8 << 20;
/// The shortest data log, bytes: twice what a file may have.
const DATA_LEN_MIN: u64 = 2 * super::LEN_MAX;
/// A data log takes no more than this part of what is free of the arena.
const SHARE: u64 = 4;
/// Part of the data log after which the daemon is told that there is a lot to take in: until then
/// its ticks do, and each takes in more by as many calls.
const KICK_PART: u64 = 4;
/// Time after which a daemon that has taken nothing in is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Rounds for which room is waited for by yielding, then by sleeping, before the daemon is asked.
const YIELDS: u32 = 20;
const SLEEPS: u32 = 1000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// As many as there may be before the first byte of a file.
static ZEROS: [u8; 15] = [0; 15];

/// The bundle of a connection.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) leases: Leases,
    logs: Option<Logs>,
    /// The arena has no room for logs.
    is_without: bool,
    /// Ends of what is written, and how far it may be written over.
    head: u64,
    data_head: u64,
    index_tail: u64,
    data_tail: u64,
    /// End of the data at which the daemon was last told.
    kicked: u64,
    looked_at: Duration,
}

impl Bundle {
    pub(crate) const fn new() -> Self {
        Self {
            leases: Leases::new(),
            logs: None,
            is_without: false,
            head: 0,
            data_head: 0,
            index_tail: 0,
            data_tail: 0,
            kicked: 0,
            looked_at: Duration::ZERO,
        }
    }

    /// Has logs, and says where.
    pub(crate) fn begin(&mut self, connection: &Connection) -> Option<()> {
        if self.logs.is_some() || self.is_without {
            return self.logs.map(drop);
        }
        self.is_without = true;
        let mut arena = connection.arena.lock().ok()?;
        let data_len = DATA_LEN.min(arena.share(SHARE));
        if data_len < DATA_LEN_MIN {
            return None;
        }
        let index_at = arena.take(INDEX_LEN)?;
        let Some(data_at) = arena.take(data_len) else {
            arena.give(index_at, INDEX_LEN);
            return None;
        };
        let logs = Logs { index_at, index_len: INDEX_LEN, data_at, data_len };
        connection.session.shared().bundle.place(logs);
        (self.logs, self.is_without) = (Some(logs), false);
        Some(())
    }

    /// What the daemon owes, or finds out that it is gone.
    pub(super) fn owed(&mut self, connection: &Connection) -> Option<Errno> {
        self.watch(connection);
        if connection.is_lost() {
            return Some(Errno::IO);
        }
        let errno = connection.session.shared().bundle.take_error()?;
        Some(Errno::from_raw_os_error(i32::try_from(errno & 0xfff).unwrap_or(5)))
    }

    /// Looks whether the daemon lives when it has taken nothing in for a while: a program that
    /// never waits for it would not notice otherwise.
    fn watch(&mut self, connection: &Connection) {
        let now = coarse_now();
        if now.saturating_sub(self.looked_at) < LOOK_EVERY {
            return;
        }
        self.looked_at = now;
        let before = self.index_tail;
        self.refresh(connection);
        if self.index_tail == before && self.index_tail != self.head {
            connection.check_alive();
        }
    }

    fn refresh(&mut self, connection: &Connection) {
        let (index_tail, data_tail) = connection.session.shared().bundle.tails();
        // Never ahead of what was written, whatever the segment says.
        self.index_tail = index_tail.min(self.head).max(self.index_tail);
        self.data_tail = data_tail.min(self.data_head).max(self.data_tail);
    }

    /// Has room for a record of `len` bytes and `data_len` bytes, and padding.
    ///
    /// # Errors
    ///
    /// `EIO`: the daemon is lost.
    pub(super) fn make_room(
        &mut self,
        client: &'static Client,
        (connection, lease): (&Connection, usize),
        (len, data_len): (usize, u64),
    ) -> Result<(), Errno> {
        let logs = self.logs.ok_or(Errno::IO)?;
        let has_room = |this: &Self| {
            let index_len = this.head - this.index_tail + len as u64;
            let data_len = this.data_head - this.data_tail + data_len + ALIGNMENT;
            index_len <= logs.index_len && data_len <= logs.data_len
        };
        let mut round = 0;
        while !has_room(self) {
            self.refresh(connection);
            if has_room(self) {
                break;
            }
            match round {
                0 => connection.announce(),
                1..YIELDS => sched_yield(),
                YIELDS..SLEEPS => {
                    let (NanosleepRelativeResult::Ok | _) = nanosleep(&SLEEP);
                }
                // It takes in all there is, or is found to be lost.
                _ => self.flush(client, lease)?,
            }
            round += 1;
        }
        Ok(())
    }

    /// Has all that is published taken in, by a call on the folder that a lease is of.
    ///
    /// # Errors
    ///
    /// `EIO`: the daemon is lost.
    pub(super) fn flush(&self, client: &'static Client, lease: usize) -> Result<(), Errno> {
        let path = self.leases.all.get(lease).map_or(&b"/"[..], Lease::path);
        let request = |path_len| Request::Access { path_len, mode: 0 };
        // What that call says is nothing to the file.
        client.ask(path, &[], request).map(drop).ok_or(Errno::IO)
    }

    /// Writes a record behind the others, for which there is room.
    pub(super) fn push(&mut self, connection: &Connection, record: &Record<'_>) -> Option<()> {
        let logs = self.logs?;
        let mut space = [0; Record::LEN_MAX];
        let bytes = record.encode(&mut space)?;
        put(connection, (logs.index_at, logs.index_len), self.head, bytes)?;
        self.head += bytes.len() as u64;
        Some(())
    }

    /// Writes bytes, for which there is room; the first ones of a file if `is_first`.
    pub(super) fn push_data(
        &mut self,
        connection: &Connection,
        data: &[&[u8]],
        is_first: bool,
    ) -> Option<()> {
        let logs = self.logs?;
        if is_first {
            // Zeros, since files that are neighbours are written as they lie.
            let aligned = self.data_head.next_multiple_of(ALIGNMENT);
            let padding = ZEROS.get(..usize::try_from(aligned - self.data_head).ok()?)?;
            put(connection, (logs.data_at, logs.data_len), self.data_head, padding)?;
            self.data_head = aligned;
        }
        for piece in data {
            put(connection, (logs.data_at, logs.data_len), self.data_head, piece)?;
            self.data_head += piece.len() as u64;
        }
        Some(())
    }

    /// Publishes what was written.
    pub(super) fn publish(&mut self, connection: &Connection) {
        let shared = &connection.session.shared().bundle;
        shared.publish(self.head);
        let kick = self.logs.map_or(0, |logs| logs.data_len / KICK_PART);
        if shared.must_announce() || self.data_head - self.kicked >= kick {
            self.kicked = self.data_head;
            connection.announce();
        }
    }
}

/// Copies bytes to where `position` lies in a ring.
fn put(connection: &Connection, ring: (u64, u64), position: u64, bytes: &[u8]) -> Option<()> {
    let mut rest = bytes;
    for (at, len) in stretches(ring, position, bytes.len() as u64) {
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        let (part, behind) = rest.split_at_checked(len)?;
        copy_in(connection.session.arena().get(at..at + len)?, part);
        rest = behind;
    }
    Some(())
}
