//! A simulated client that drains its own log, and is stopped or killed at any point of that.

use std::{rc::Rc, time::Duration};

use shm::{
    copy,
    staging::{APPEND, Consumer, Drainer, Run},
};

use super::{
    client::{Client, LOG_LEN},
    disk::Open,
};

/// Longest stop; a request that needs what a stopped client has written must not wait for its end.
const STOP_MS_MAX: u64 = 40;

/// How a drain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As it should.
    Released,
    /// The client is stopped once the kernel has the bytes, and goes on later.
    Stopped,
    /// It is killed before the kernel has them.
    KilledBefore,
    /// It is killed once the kernel has them.
    KilledAfter,
}

impl Client {
    /// Drains the oldest run of a log. Returns whether the client lives.
    pub(super) async fn drain_here(&mut self, slot: u32) -> bool {
        let end = match self.rng.u32(0..12) {
            0 => End::Stopped,
            1 => End::KilledBefore,
            2 => End::KilledAfter,
            _ => End::Released,
        };
        let segment = Rc::new(std::sync::Arc::clone(&self.segment));
        let shared = segment.slot(slot).expect("a slot");
        let open = Rc::clone(self.open_file(slot));
        let Some(claim) = shared.claim_drain(Drainer::Client) else { return true };
        let mut consumer = Consumer::resume(shared, self.log_len(slot));
        let mut runs = [Run::default(); 1];
        let count = consumer.runs(shared, u64::MAX, &mut runs).expect("honest");
        let [run] = runs;
        if count == 0 {
            shared.end_drain(claim);
            return true;
        }
        let size = self.storage.size_of(&open);
        open.position.set(if run.file_at == APPEND { 0 } else { run.file_at });
        shared.write_begins(run.start, size, run.len);
        if end == End::KilledBefore {
            return false;
        }
        let written = self.write_at_position(slot, &open, run).await;
        match end {
            End::KilledAfter => return false,
            End::Stopped => {
                let stop = Duration::from_millis(self.rng.u64(1..STOP_MS_MAX));
                self.handle.sleep(stop).await;
            }
            _ => {}
        }
        if let Some(claim) = shared.begin_release(claim) {
            consumer.release(shared, run.start + written);
            shared.end_drain(claim);
        } else {
            assert!(end == End::Stopped && written > 0, "taken over from a client that runs");
        }
        true
    }

    /// Writes a run as `write(2)` does. Returns the bytes written; an error is the drain's own.
    async fn write_at_position(&mut self, slot: u32, open: &Rc<Open>, run: Run) -> u64 {
        let at = u64::from(slot) * LOG_LEN + (run.start & (self.log_len(slot) - 1));
        let at = usize::try_from(at).unwrap();
        let mut bytes = vec![0; usize::try_from(run.len).unwrap()];
        copy::copy_out(&mut bytes, &self.segment.arena()[at..]);
        match self.storage.write_at_position(open, run.file_at, &bytes).await {
            Ok(len) => len as u64,
            Err(_) => {
                self.errors_met(slot);
                0
            }
        }
    }
}
