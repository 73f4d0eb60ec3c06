//! Files to drain, in a queue for each device, with workers of its own: one that stands still, as a
//! file server that does not answer, holds up the files of no other.

mod queue;

use self::queue::Queue;

/// Bytes of a unit of a short log, and a session's share of a round: the longest append of a log
/// is one unit.
pub(crate) const UNIT_LEN: u64 = shm::staging::APPEND_MAX;

/// Units of a device that may be under way for files nobody waits for.
const WORKERS_MAX: usize = 4;

/// The devices with files to drain; few at a time.
#[derive(Debug, Default)]
pub(crate) struct DrainQueues(Vec<DeviceQueue>);

#[derive(Debug)]
struct DeviceQueue {
    device: u64,
    queue: Queue,
    /// Tasks that drain its files.
    workers: usize,
}

impl DrainQueues {
    /// Puts a file in, unless it is; whether another worker is to begin.
    pub(crate) fn push(&mut self, device: u64, session: u32, slot: u32) -> bool {
        let found = self.of(device);
        found.queue.push(session, slot);
        let begins = found.workers < WORKERS_MAX;
        found.workers += usize::from(begins);
        begins
    }

    /// Takes the next file of a device, as session and slot. `None`: there is none, and the worker
    /// that asks has ended.
    pub(crate) fn next(&mut self, device: u64) -> Option<(u32, u32)> {
        let found = self.of(device);
        let next = found.queue.pop();
        debug_assert!((1..=WORKERS_MAX).contains(&found.workers), "a worker asks");
        if next.is_none() {
            found.workers -= 1;
            self.0.retain(|found| found.workers > 0);
        }
        next
    }

    /// Says that the file taken cost `len` bytes; puts it back if more of it `is_wanted`.
    pub(crate) fn spent(
        &mut self,
        device: u64,
        session: u32,
        slot: u32,
        len: u64,
        is_wanted: bool,
    ) {
        let queue = &mut self.of(device).queue;
        if is_wanted {
            queue.push(session, slot);
        }
        queue.spent(session, len);
    }

    fn of(&mut self, device: u64) -> &mut DeviceQueue {
        let place = self.0.iter().position(|found| found.device == device);
        let place = place.unwrap_or_else(|| {
            self.0.push(DeviceQueue { device, queue: Queue::default(), workers: 0 });
            self.0.len() - 1
        });
        self.0.get_mut(place).expect("it was found, or made")
    }
}

#[cfg(test)]
impl DrainQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
