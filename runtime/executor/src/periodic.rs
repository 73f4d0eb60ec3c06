//! Things to do from time to time on an executor that never sleeps, without asking the clock at
//! every turn: an idle turn takes about as long as asking.

use std::time::Duration;

use crate::{handle::Handle, time::Instant};

/// Turns between two looks at the clock.
const TURNS: u32 = 32;

/// Says when a time has passed again.
#[derive(Debug)]
pub struct Periodic {
    handle: Handle,
    period: Duration,
    last: Instant,
    turns: u32,
}

impl Periodic {
    /// A time that begins now.
    pub fn new(handle: &Handle, period: Duration) -> Self {
        Self { handle: handle.clone(), period, last: handle.now(), turns: 0 }
    }

    /// Counts a turn. True if `period` has passed since this was last true.
    pub fn tick(&mut self) -> bool {
        self.turns += 1;
        if self.turns < TURNS {
            return false;
        }
        self.turns = 0;
        let now = self.handle.now();
        let is_due = now.saturating_since(self.last) >= self.period;
        if is_due {
            self.last = now;
        }
        is_due
    }
}
