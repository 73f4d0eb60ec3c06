//! Several writes of one thread in flight at a time, under policy `delegate`.
//!
//! Writes go round the lanes in turn and are waited for in the order they were started. Their
//! buffers lie in the arena, so that nothing is copied on the way.

use core::{fmt, sync::atomic::AtomicU8};

use rustix::{
    fd::RawFd,
    io::{self, Errno},
};
use shm::copy::copy_in;
use wire::Request;

use crate::{
    client::Client,
    connection::{Connection, Lane, Lost, Sent},
};

/// Lanes a queue may hold: each has room for 32 requests.
const LANES: usize = 2;
/// Most writes in flight.
const DEPTH_MAX: usize = LANES * shm::lane::SLOTS;

/// Writes to one file, started and finished in order. Belongs to one thread.
pub struct WriteQueue {
    connection: &'static Connection,
    lanes: [Option<Lane<'static>>; LANES],
    lane_count: usize,
    slot: u32,
    arena_at: u64,
    arena_len: u64,
    write_len: u32,
    /// The writes in flight.
    in_flight: [Sent; DEPTH_MAX],
    started: usize,
    finished: usize,
}

impl Client {
    /// A queue for up to `depth` writes of `data` to a file that was opened under policy
    /// `delegate`.
    ///
    /// # Errors
    ///
    /// - `INVAL`: `depth` is 0 or more than 64, or `data` is longer than fits beside others.
    /// - `BADF`: `fd` is no such file.
    /// - `NOTCONN`: the daemon is gone.
    /// - `NOMEM`: the session has no memory left for the buffers.
    pub fn write_queue(
        &'static self,
        fd: RawFd,
        data: &[u8],
        depth: usize,
    ) -> io::Result<WriteQueue> {
        let (_, file) = self.process().locked_fd(fd).ok_or(Errno::BADF)?;
        let link = file.link.filter(|_| file.placeholder).ok_or(Errno::BADF)?;
        let connection = link.connection;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Errno::INVAL);
        }
        let write_len = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
        let arena_len = (data.len() * depth) as u64;
        let mut lanes = [const { None }; LANES];
        let lane_count = depth.div_ceil(shm::lane::SLOTS);
        for lane in lanes.iter_mut().take(lane_count) {
            *lane = Some(connection.lane().map_err(|Lost| Errno::NOTCONN)?);
        }
        let arena_at = connection.arena.lock().map_err(|_| Errno::DEADLK)?.take(arena_len);
        let queue = WriteQueue {
            connection,
            lanes,
            lane_count,
            slot: link.slot,
            arena_at: arena_at.ok_or(Errno::NOMEM)?,
            arena_len,
            write_len,
            in_flight: [Sent::default(); DEPTH_MAX],
            started: 0,
            finished: 0,
        };
        for index in 0..depth {
            let buffer = queue.buffer(index).ok_or(Errno::NOMEM)?;
            copy_in(buffer, data);
        }
        Ok(queue)
    }
}

impl WriteQueue {
    /// Starts a write at `at` bytes from the start of the file. Does not wait for anything.
    ///
    /// # Errors
    ///
    /// - `AGAIN`: as many are in flight as the queue takes; finish one first.
    /// - `NOTCONN`: the daemon is gone.
    pub fn start(&mut self, at: u64) -> io::Result<()> {
        let depth = usize::try_from(self.arena_len / u64::from(self.write_len.max(1)));
        let depth = depth.unwrap_or(DEPTH_MAX).min(DEPTH_MAX);
        if self.started - self.finished >= depth {
            return Err(Errno::AGAIN);
        }
        let buffer = (self.started % depth) as u64 * u64::from(self.write_len);
        let request = Request::Write {
            file: self.slot,
            at,
            len: self.write_len,
            arena_at: self.arena_at + buffer,
        };
        let lane = self.started % self.lane_count;
        let lane = self.lanes.get_mut(lane).and_then(Option::as_mut).ok_or(Errno::NOTCONN)?;
        let sent = lane.submit(request).ok_or(Errno::NOTCONN)?;
        if let Some(place) = self.in_flight.get_mut(self.started % DEPTH_MAX) {
            *place = sent;
        }
        self.started += 1;
        Ok(())
    }

    /// Waits for the oldest write in flight and returns the bytes written.
    ///
    /// # Errors
    ///
    /// - `AGAIN`: none is in flight.
    /// - `NOTCONN`: the daemon is gone; what became of the write is unknown.
    /// - Those of `pwrite(2)`.
    pub fn finish(&mut self) -> io::Result<u64> {
        if self.started == self.finished {
            return Err(Errno::AGAIN);
        }
        let sent = *self.in_flight.get(self.finished % DEPTH_MAX).ok_or(Errno::NOTCONN)?;
        let lane = self.finished % self.lane_count;
        let lane = self.lanes.get_mut(lane).and_then(Option::as_mut).ok_or(Errno::NOTCONN)?;
        self.finished += 1;
        lane.wait(sent).map_err(|Lost| Errno::NOTCONN)?
    }

    fn buffer(&self, index: usize) -> Option<&[AtomicU8]> {
        let len = self.write_len as usize;
        let start = usize::try_from(self.arena_at).ok()? + index * len;
        self.connection.session.arena().get(start..start + len)
    }
}

impl Drop for WriteQueue {
    /// Waits for what is in flight: the buffers are the daemon's until then.
    fn drop(&mut self) {
        while self.started != self.finished {
            if self.finish() == Err(Errno::NOTCONN) {
                return;
            }
        }
        if let Ok(mut arena) = self.connection.arena.lock() {
            arena.give(self.arena_at, self.arena_len);
        }
    }
}

impl fmt::Debug for WriteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteQueue")
            .field("started", &self.started)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
