//! A line on the terminal that says how far a bench is.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time between two states of the line.
const BEAT: Duration = Duration::from_secs(1);

/// How far the bench is, if it counts its steps.
static LINE: Mutex<String> = Mutex::new(String::new());

/// Says on standard error that a bench runs: at once, and on a terminal for how long, every second
/// until dropped.
#[derive(Debug)]
pub(crate) struct Running(Option<(Sender<()>, JoinHandle<()>)>);

impl Running {
    /// The bench begins.
    pub(crate) fn start(bench: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            writeln!(io::stderr(), "kakehi-bench: {bench} runs; its results come at its end").ok();
            return Self(None);
        }
        let (sender, receiver) = mpsc::channel();
        let beats = move || {
            let start = Instant::now();
            loop {
                let steps = LINE.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let line = if steps.is_empty() { bench.to_owned() } else { steps };
                show(&format!("{line} ({} s)", start.elapsed().as_secs()));
                if receiver.recv_timeout(BEAT) != Err(RecvTimeoutError::Timeout) {
                    return show("");
                }
            }
        };
        Self(Some((sender, thread::spawn(beats))))
    }
}

/// Says a line on standard error at once; on a terminal the line that counts seconds from then on.
pub(crate) fn say(line: &str) {
    if io::stderr().is_terminal() {
        line.clone_into(&mut LINE.lock().unwrap_or_else(PoisonError::into_inner));
    } else {
        // Nobody is left to read it when standard error is gone.
        writeln!(io::stderr(), "kakehi-bench: {line}").ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((sender, beats)) = self.0.take() {
            drop(sender);
            beats.join().ok(); // A panic in it has been printed.
        }
    }
}

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
            let line = self.line(self.start.elapsed().as_secs());
            show(&line);
            *LINE.lock().unwrap_or_else(PoisonError::into_inner) = line;
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
