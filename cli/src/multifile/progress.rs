//! How far a long command is: a line on standard error, if that is a terminal, and the question
//! whether somebody wants it to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::{
    failure::{Code, Failure},
    signals::heeded,
    voice,
};

/// States of the line a second.
const REDRAWS: u8 = 10;
const LINE: &str = "{msg} {percent:>3}% [{bar:24}] {binary_bytes} of {binary_total_bytes}, \
                    {binary_bytes_per_sec}, {eta} left";

/// Bytes done of a known total, counted by any number of threads.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Begins to count to `total` bytes.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let shown = match voice::is_quiet() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(REDRAWS),
        };
        let style = ProgressStyle::with_template(LINE).expect("a template");
        let bar = ProgressBar::with_draw_target(Some(total), shown).with_message(what);
        Self { what, bar: bar.with_style(style.progress_chars("= ")), stop: Arc::default() }
    }

    /// From here on SIGINT, SIGTERM, and SIGHUP make [`advance`](Self::advance) fail instead of
    /// ending the process, so that what is half written can be removed; those that are ignored stay
    /// so.
    pub(crate) fn stop_on_signals(self) -> Result<Self, Failure> {
        for signal in heeded([SIGINT, SIGTERM, SIGHUP].into_iter()) {
            flag::register(signal, Arc::clone(&self.stop))
                .map_err(|why| Failure::new(Code::Failure, "signals", why, "try again"))?;
        }
        Ok(self)
    }

    /// Counts `len` bytes.
    pub(crate) fn advance(&self, len: u64) -> Result<(), Failure> {
        self.bar.inc(len);
        if self.stop.load(Ordering::Relaxed) {
            let why = "it was interrupted, nothing was left behind";
            return Err(Failure::new(Code::Failure, self.what, why, "start it again"));
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
