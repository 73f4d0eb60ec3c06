//! Several transfers of one thread in flight at a time, to and from shared memory.
//!
//! The daemon moves the bytes between the file and memory that
//! [`allocate_shared`](Client::allocate_shared) gave, so nothing is copied on the way. Requests
//! fill one lane, and then the next; they are finished in the order they were started.
//!
//! # Who writes
//!
//! The daemon alone, until its answer or its end is there. A transfer that it did not do, because
//! it was lost, or had closed the file that this process left to the kernel meanwhile, is done by
//! the client then, as if it were called for that moment. So nothing is lost, what the daemon had
//! written in part is written again to the same place, and never by two at once. Appends are not
//! taken, for they have no place.
//!
//! # Ownership
//!
//! A request in flight keeps its file's slot, so that what has it next is not written to. Lanes are
//! held while anything is in flight, and by all queues together only some of them: a thread that
//! found every lane held by itself would wait for its own requests.

use core::{array, ptr, sync::atomic::Ordering};

use rustix::{
    fd::RawFd,
    io::{self, Errno},
};
use shm::copy::{copy_in, copy_out};
use wire::{Counter, Request};

use crate::{
    buffers::partial,
    client::Client,
    connection::{Connection, Lane, Lost, Sent},
    slot::Slot,
    staging,
    table::{Entry, FileId},
};

/// Lanes a queue may hold: each has room for 32 requests.
const LANES: usize = 2;
/// Most transfers in flight.
const DEPTH_MAX: usize = LANES * shm::lane::SLOTS;
/// Lanes that the queues of a process may hold together.
const HELD_MAX: usize = 32;
const _: () = assert!(HELD_MAX < shm::LANES);
/// Bytes moved at a time when the client does it itself.
const BLOCK: usize = 16 << 10;

/// Bytes to be moved between a file and memory.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The open file.
    pub fd: RawFd,
    /// To the file, else from it.
    pub is_write: bool,
    /// Where the bytes are in this process.
    pub address: usize,
    /// How many.
    pub len: usize,
    /// Where they are in the file, from its start.
    pub at: u64,
}

/// Transfers in flight, started and finished in order. Belongs to one thread at a time.
pub struct Queue {
    client: &'static Client,
    lanes: [Option<Held>; LANES],
    /// A ring: the oldest is at `finished`.
    flights: [Option<Flight>; DEPTH_MAX],
    started: usize,
    finished: usize,
}

/// A transfer that the daemon was asked for.
struct Flight {
    transfer: Transfer,
    id: FileId,
    /// The file's, kept until the answer.
    slot: Slot,
    is_placeholder: bool,
    /// Where the bytes are in the arena.
    arena_at: u64,
    /// Which of the queue's lanes, and the request there.
    lane: usize,
    sent: Sent,
}

/// Place of a transfer.
struct Target {
    id: FileId,
    slot: Slot,
    is_placeholder: bool,
    is_remote: bool,
}

/// A lane that stays with a queue.
struct Held(Lane<'static>, &'static Connection);

impl Client {
    /// A queue for up to 64 transfers. Takes nothing before the first one.
    #[must_use]
    pub fn queue(&'static self) -> Queue {
        Queue {
            client: self,
            lanes: [const { None }; LANES],
            flights: [const { None }; DEPTH_MAX],
            started: 0,
            finished: 0,
        }
    }
}

impl Queue {
    /// Has the daemon do a transfer, and does not wait for it. Returns false when it is not one for
    /// the daemon, and nothing was done: memory that is not shared, a file that is the kernel's or
    /// takes appends, no daemon, 64 in flight.
    pub fn start(&mut self, transfer: &Transfer) -> bool {
        let Some(connection) = self.client.connected().filter(|c| !c.is_lost()) else {
            return false;
        };
        let is_full = self.started.wrapping_sub(self.finished) >= DEPTH_MAX;
        let place = connection.place_of(transfer.address, transfer.len);
        let (Some(arena_at), false) = (place, is_full || transfer.len == 0) else { return false };
        let Some(target) = self.client.hold_file(connection, transfer) else { return false };
        let Some((lane, sent)) = self.submit(transfer, &target, arena_at) else {
            self.give_back();
            return false;
        };
        let Target { id, slot, is_placeholder, .. } = target;
        let transfer = *transfer;
        let flight = Flight { transfer, id, slot, is_placeholder, arena_at, lane, sent };
        if let Some(place) = self.flights.get_mut(self.started % DEPTH_MAX) {
            debug_assert!(place.is_none(), "a full queue refuses");
            *place = Some(flight);
        }
        self.started = self.started.wrapping_add(1);
        true
    }

    /// Waits for the oldest transfer in flight and returns the bytes moved; `None` when there is
    /// none.
    ///
    /// # Errors
    ///
    /// Those of `pread(2)` and `pwrite(2)`; `BADF` also when the file was closed meanwhile, and
    /// `IO` when it was a server's that nobody reaches any more.
    pub fn finish(&mut self) -> Option<io::Result<usize>> {
        let oldest = self.flights.get_mut(self.finished % DEPTH_MAX)?.take()?;
        let Flight { transfer, id, slot, is_placeholder, arena_at, lane, sent } = oldest;
        let connection = slot.connection();
        let held = self.lanes.get_mut(lane).and_then(Option::as_mut);
        let answer = held.map_or(Err(Lost), |held| held.wait(sent));
        drop(slot);
        debug_assert!(self.started != self.finished, "what finishes was started");
        self.finished = self.finished.wrapping_add(1);
        self.give_back();
        if transfer.is_write && is_placeholder {
            // What was read ahead while this was in flight may be older.
            self.client.forget_read_ahead();
        }
        Some(match answer {
            // The daemon has no such file, or is no more.
            Ok(Err(Errno::BADF)) | Err(Lost) => {
                self.client.transfer(connection, id, &transfer, arena_at)
            }
            Ok(Ok(len)) => Ok(self.client.count_transfer(id, &transfer, len)),
            Ok(Err(errno)) => Err(errno),
        })
    }

    /// True if [`finish`](Self::finish) would not wait for the daemon's answer.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.oldest().is_none_or(|flight| {
            let held = self.lanes.get(flight.lane).and_then(Option::as_ref);
            held.is_none_or(|held| held.1.is_lost() || held.0.is_done(flight.sent))
        })
    }

    fn oldest(&self) -> Option<&Flight> {
        self.flights.get(self.finished % DEPTH_MAX)?.as_ref()
    }

    /// Publishes a request in the first lane that has room; returns which, and the request.
    fn submit(
        &mut self,
        transfer: &Transfer,
        target: &Target,
        arena_at: u64,
    ) -> Option<(usize, Sent)> {
        let Transfer { at, len, .. } = *transfer;
        let (connection, file) = (target.slot.connection(), target.slot.number());
        let (moved_len, len) = (len as u64, u32::try_from(len).ok()?);
        let request = if transfer.is_write {
            Request::Write { file, at, len, arena_at }
        } else {
            Request::Read { file, at, len, arena_at }
        };
        self.lanes.iter_mut().enumerate().find_map(|(index, lane)| {
            if lane.is_none() {
                *lane = Held::take(connection);
            }
            let held = lane.as_mut().filter(|held| ptr::eq(held.1, connection))?;
            let sent = held.0.submit(request)?;
            Some((index, if target.is_remote { sent } else { sent.moving(moved_len) }))
        })
    }

    /// Holds no lane for nothing.
    fn give_back(&mut self) {
        if self.started == self.finished {
            self.lanes = array::from_fn(|_| None);
        }
    }
}

impl Drop for Queue {
    /// Waits for what is in flight: the memory is the daemon's until then.
    fn drop(&mut self) {
        while self.finish().is_some() {}
    }
}

impl Held {
    /// Takes a lane, if one is free and queues may hold it.
    fn take(connection: &'static Connection) -> Option<Self> {
        let count = connection.held_count.fetch_add(1, Ordering::Relaxed);
        let lane = (count < HELD_MAX).then(|| connection.free_lane()).flatten();
        if lane.is_none() {
            connection.held_count.fetch_sub(1, Ordering::Relaxed);
        }
        lane.map(|lane| Self(lane, connection))
    }

    fn wait(&mut self, sent: Sent) -> Result<io::Result<u64>, Lost> {
        // Each wait would sleep before it looks whether the daemon lives.
        if self.1.is_lost() && !self.0.is_done(sent) {
            return Err(Lost);
        }
        self.0.wait(sent)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let before = self.1.held_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a held lane is counted once");
    }
}

impl Client {
    /// Keeps the slot of a file that the daemon is to do this transfer for; `None` where it cannot.
    fn hold_file(
        &'static self,
        connection: &'static Connection,
        transfer: &Transfer,
    ) -> Option<Target> {
        let Transfer { fd, is_write, len, at, .. } = *transfer;
        let Entry::File(id) = self.look_up(fd) else { return None };
        let mut file = self.locked(fd, id)?;
        let access = file.access;
        let is_allowed = if is_write {
            let is_limited = self.is_limited.load(Ordering::Relaxed);
            access.writes_at_position() && !is_limited
        } else {
            access.readable
        };
        let has_place = i64::try_from(at.saturating_add(len as u64)).is_ok();
        let is_told_first = file.owed.is_untold() || file.state.refusal().is_some();
        if !is_allowed || !has_place || is_told_first {
            return None;
        }
        if file.state.link().is_none() {
            if file.unfit().is_some() {
                return None;
            }
            staging::link(connection, &mut file, self.borrow(fd), false).ok()?;
        }
        let link = file.state.link().filter(|link| ptr::eq(link.connection, connection))?;
        if !file.state.is_placeholder() {
            self.settle_others(&file);
        }
        if is_write {
            file.state.empty_window();
        }
        let slot = link.keep();
        let (is_placeholder, is_remote) = (file.state.is_placeholder(), file.state.is_remote());
        Some(Target { id, slot, is_placeholder, is_remote })
    }

    /// Does a transfer that the daemon has not done, and never will.
    fn transfer(
        &'static self,
        connection: &'static Connection,
        id: FileId,
        transfer: &Transfer,
        arena_at: u64,
    ) -> io::Result<usize> {
        let Transfer { fd, is_write, len, at, .. } = *transfer;
        self.sweep();
        let is_same = self.table.get(fd) == Entry::File(id);
        if !is_same || self.locked(fd, id).is_none() {
            return Err(Errno::BADF);
        }
        let start = usize::try_from(arena_at).map_err(|_| Errno::FAULT)?;
        let memory = connection.session.arena().get(start..start + len).ok_or(Errno::FAULT)?;
        let (mut block, mut done) = ([0; BLOCK], 0);
        for part in memory.chunks(BLOCK) {
            let block = invariant!(some block.get_mut(..part.len()), "a part is a block at most",
                else return Err(Errno::IO));
            let to = Some(at + done as u64);
            let moved = if is_write {
                copy_out(block, part);
                self.write_vectored(fd, &[block], to)
            } else {
                self.read_vectored(fd, &mut [&mut *block], to)
            };
            let moved = match moved {
                Ok(moved) => moved,
                Err(errno) => return partial(done, errno),
            };
            let bytes = invariant!(some block.get(..moved), "no more is moved than there is",
                else return Err(Errno::IO));
            if !is_write {
                copy_in(part, bytes);
            }
            done += moved;
            if moved < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Counts what the daemon has moved.
    fn count_transfer(&'static self, id: FileId, transfer: &Transfer, len: u64) -> usize {
        if transfer.is_write {
            self.count(Counter::BytesWritten, len);
        } else if let Some(entry) = self.files.get(id) {
            entry.read_len.fetch_add(len, Ordering::Relaxed);
        }
        usize::try_from(len).unwrap_or(usize::MAX).min(transfer.len)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fd::BorrowedFd;

    use super::*;
    use crate::{
        Backing,
        host::{Host, Peer},
    };

    struct Nobody;

    impl Host for Nobody {
        fn borrow(&self, _fd: RawFd) -> BorrowedFd<'static> {
            unreachable!("no number is looked at without a daemon")
        }

        fn replace(&self, _fd: RawFd, _with: BorrowedFd<'_>) -> io::Result<()> {
            Err(Errno::NOSYS)
        }

        fn peer(&self, _socket: BorrowedFd<'_>) -> io::Result<Peer> {
            Err(Errno::NOSYS)
        }
    }

    #[test]
    fn without_a_daemon_nothing_is_shared_and_nothing_started() {
        static BACKING: Backing = Backing::new();
        static CLIENT: Client = Client::new(&Nobody, &BACKING);
        let memory = [0_u8; 8];
        let address = memory.as_ptr().addr();
        assert!(CLIENT.allocate_shared(1).is_none());
        assert!(!CLIENT.free_shared(address));
        let mut queue = CLIENT.queue();
        for is_write in [false, true] {
            let transfer = Transfer { fd: 0, is_write, address, len: memory.len(), at: 0 };
            assert!(!queue.start(&transfer));
        }
        assert!(queue.is_finished());
        assert_eq!(queue.finish(), None);
    }
}
