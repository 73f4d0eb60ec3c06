//! A line on the terminal that says how far a bench is.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

/// Steps of a bench, counted on standard error while it is a terminal. The line goes when dropped.
pub(crate) struct Progress {
    bench: &'static str,
    total: usize,
    done: usize,
    start: Instant,
    is_shown: bool,
}

impl Progress {
    /// None of `total` steps is done, which take about as long as each other.
    pub(crate) fn of(bench: &'static str, total: usize) -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { bench, total, done: 0, start: Instant::now(), is_shown }
    }

    /// One step more is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.is_shown {
            show(&self.line(self.start.elapsed().as_secs()));
        }
    }

    fn line(&self, seconds: u64) -> String {
        let Self { bench, total, done, .. } = self;
        let left = seconds * total.saturating_sub(*done) as u64 / (*done).max(1) as u64;
        let (gone, left) = (seconds / 60, left.div_ceil(60));
        format!("{bench}: {done} of {total} steps, {gone} min, {left} min left")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            show("");
        }
    }
}

/// In place of what was there.
fn show(line: &str) {
    // Who closes the terminal wants the rest all the same.
    write!(io::stderr(), "\r\x1b[K{line}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_is_done() {
        let mut progress = Progress { is_shown: false, ..Progress::of("file", 40) };
        (0..10).for_each(|_| progress.step());

        assert_eq!(progress.line(120), "file: 10 of 40 steps, 2 min, 6 min left");
        (10..40).for_each(|_| progress.step());
        assert_eq!(progress.line(480), "file: 40 of 40 steps, 8 min, 0 min left");
    }
}
