//! A line on the terminal that says how far a bench is.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two states of the line.
const BEAT: Duration = Duration::from_secs(1);

/// The line, while a bench runs on a terminal.
static LINE: OnceLock<ProgressBar> = OnceLock::new();

/// Says on standard error that a bench runs: at once, and on a terminal for how long, every second
/// until dropped.
#[derive(Debug)]
pub(crate) struct Running;

impl Running {
    /// The bench begins.
    pub(crate) fn start(bench: &'static str) -> Self {
        if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{msg} ({elapsed})").expect("a template");
            let bar = LINE.get_or_init(ProgressBar::new_spinner);
            bar.set_style(style);
            bar.set_message(bench);
            bar.enable_steady_tick(BEAT);
        } else {
            say(&format!("{bench} runs; its results come at its end"));
        }
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        LINE.get().inspect(|bar| bar.finish_and_clear());
    }
}

/// Says a line on standard error: in place of the one that counts seconds, if there is one.
pub(crate) fn say(line: &str) {
    match LINE.get() {
        Some(bar) => bar.set_message(line.to_owned()),
        // Nobody is left to read it when standard error is gone.
        None => drop(writeln!(io::stderr(), "kakehi-bench: {line}")),
    }
}

/// Steps of a bench, counted on standard error while it is a terminal.
pub(crate) struct Progress {
    bench: &'static str,
    total: usize,
    done: usize,
    start: Instant,
}

impl Progress {
    /// None of `total` steps is done, which take about as long as each other.
    pub(crate) fn of(bench: &'static str, total: usize) -> Self {
        Self { bench, total, done: 0, start: Instant::now() }
    }

    /// One step more is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if let Some(bar) = LINE.get() {
            bar.set_message(self.line(self.start.elapsed().as_secs()));
        }
    }

    fn line(&self, seconds: u64) -> String {
        let Self { bench, total, done, .. } = self;
        let left = seconds * total.saturating_sub(*done) as u64 / (*done).max(1) as u64;
        let (gone, left) = (seconds / 60, left.div_ceil(60));
        format!("{bench}: {done} of {total} steps, {gone} min, {left} min left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_is_done() {
        let mut progress = Progress::of("file", 40);
        (0..10).for_each(|_| progress.step());

        assert_eq!(progress.line(120), "file: 10 of 40 steps, 2 min, 6 min left");
        (10..40).for_each(|_| progress.step());
        assert_eq!(progress.line(480), "file: 40 of 40 steps, 8 min, 0 min left");
    }
}
