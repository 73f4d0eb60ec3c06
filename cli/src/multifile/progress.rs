//! How far a long command is: a line on standard error, if that is a terminal, and the question
//! whether somebody wants it to stop.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::{
    failure::{Code, Failure},
    signals::heeded,
    size::Size,
    voice,
};

/// Time between two states of the line.
const REDRAW: Duration = Duration::from_millis(100);
/// Width of the bar in letters.
const WIDTH: usize = 24;

/// Bytes done of a known total, counted by any number of threads.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    done: AtomicU64,
    start: Instant,
    /// When the line was last drawn; `None` when nobody would see it.
    drawn: Option<Mutex<Instant>>,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Begins to count to `total` bytes.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let start = Instant::now();
        let is_seen = io::stderr().is_terminal() && !voice::is_quiet();
        let drawn = is_seen.then(|| Mutex::new(start));
        Self { what, total, done: AtomicU64::new(0), start, drawn, stop: Arc::default() }
    }

    /// From here on SIGINT, SIGTERM, and SIGHUP make [`advance`](Self::advance) fail instead of
    /// ending the process, so that what is half written can be removed; those that are ignored stay
    /// so.
    ///
    /// # Errors
    ///
    /// When the system refuses handlers.
    pub(crate) fn stop_on_signals(self) -> Result<Self, Failure> {
        for signal in heeded(&[SIGINT, SIGTERM, SIGHUP]) {
            flag::register(*signal, Arc::clone(&self.stop))
                .map_err(|why| Failure::new(Code::Failure, "signals", why, "try again"))?;
        }
        Ok(self)
    }

    /// Counts `len` bytes.
    ///
    /// # Errors
    ///
    /// When a signal asked to stop.
    pub(crate) fn advance(&self, len: u64) -> Result<(), Failure> {
        let done = self.done.fetch_add(len, Ordering::Relaxed) + len;
        if self.stop.load(Ordering::Relaxed) {
            let why = "it was interrupted, nothing was left behind";
            return Err(Failure::new(Code::Failure, self.what, why, "start it again"));
        }
        // Whoever finds another thread drawing need not wait for it.
        let Some(mut drawn) = self.drawn.as_ref().and_then(|drawn| drawn.try_lock().ok()) else {
            return Ok(());
        };
        if drawn.elapsed() >= REDRAW {
            *drawn = Instant::now();
            let state = State { done, total: self.total, elapsed: self.start.elapsed() };
            // A terminal that is gone needs no line.
            write!(io::stderr(), "\r{} {state}\x1b[K", self.what).ok();
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}

/// One state of the line.
struct State {
    done: u64,
    total: u64,
    elapsed: Duration,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, total, elapsed } = self;
        let millis = elapsed.as_millis().max(1);
        let rate = u64::try_from(u128::from(*done) * 1000 / millis).unwrap_or(u64::MAX);
        let share = |of: u128| u128::from(*done) * of / u128::from((*total).max(1));
        let full = usize::try_from(share(WIDTH as u128)).unwrap_or(WIDTH).min(WIDTH);
        let (done, total) = (Size(*done), Size(*total));
        write!(f, "{:3}% [{}{}] ", share(100), "=".repeat(full), " ".repeat(WIDTH - full))?;
        write!(f, "{} of {}, ", done.approximate(), total.approximate())?;
        write!(f, "{}/s", Size(rate).approximate())?;
        let left = total.0.saturating_sub(done.0).checked_div(rate);
        left.map_or(Ok(()), |left| write!(f, ", {}:{:02} left", left / 60, left % 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_share_rate_and_time_left() {
        let (done, total) = (256 << 20, 1 << 30);
        let state = State { done, total, elapsed: Duration::from_secs(2) };
        let bar = "[======                  ]";
        assert_eq!(state.to_string(), format!(" 25% {bar} 256MiB of 1GiB, 128MiB/s, 0:06 left"));
    }

    #[test]
    fn nothing_of_nothing_is_a_line_too() {
        let state = State { done: 0, total: 0, elapsed: Duration::ZERO };
        assert!(state.to_string().starts_with("  0% ["));
    }
}
