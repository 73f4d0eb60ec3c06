//! The memory that a client and the daemon share.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicU8},
    thread,
};

use shm::{SessionShared, staging::FileSlot};
use uring::{Buffer, Memory};

/// Bytes from which on the kernel takes more time to have memory back than to begin a thread.
const LARGE: usize = 4 << 20;

/// The memory a session shares with its client. A thread of its own gives it back: the kernel
/// takes milliseconds.
#[derive(Debug)]
pub struct Segment(Arc<shm::Session>);

impl Segment {
    /// Creates the memory, and the descriptor the client maps it from.
    ///
    /// # Errors
    ///
    /// As [`shm::Session::create`].
    pub fn create(arena_len: usize) -> io::Result<(Self, OwnedFd)> {
        let (session, fd) = shm::Session::create(arena_len)?;
        Ok((Self(Arc::new(session)), fd))
    }

    /// The shared struct.
    pub fn shared(&self) -> &SessionShared {
        self.0.shared()
    }

    /// The slot of a file.
    pub fn slot(&self, slot: u32) -> Option<&FileSlot> {
        self.shared().file(slot as usize)
    }

    /// The buffer of a lane.
    pub fn lane_buffer(&self, lane: usize) -> &[AtomicU8] {
        self.0.buffer(lane)
    }

    /// The bytes that staging logs and windows lie in.
    pub fn arena(&self) -> &[AtomicU8] {
        self.0.arena()
    }

    /// True if the range lies in the arena.
    pub fn has(&self, arena_at: u64, len: u64) -> bool {
        arena_at.checked_add(len).is_some_and(|end| end <= self.arena().len() as u64)
    }

    /// A range of the arena as a buffer; `None` when it is not in the arena.
    pub fn buffer(self: &Arc<Self>, arena_at: u64, len: u64) -> Option<Buffer> {
        if !self.has(arena_at, len) {
            return None;
        }
        let at = self.0.arena_at() + usize::try_from(arena_at).ok()?;
        debug_assert!(len <= (self.0.bytes().len() - at) as u64, "the arena ends the segment");
        let memory: Arc<dyn Memory> = Arc::<Self>::clone(self);
        Buffer::new(memory, at, usize::try_from(len).ok()?)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.0.bytes().len() >= LARGE {
            let session = Arc::clone(&self.0);
            let thread = thread::Builder::new().name("kakehi-memory".to_owned());
            // Where there can be no other thread, this one does it.
            thread.spawn(move || drop(session)).ok();
        }
    }
}

impl Memory for Segment {
    fn bytes(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}
