//! The daemon's log, on standard error.
//!
//! Lines that a person sees among those of the command are like these; in a log, and where more is
//! asked for than what went wrong, they have times and levels.

use std::{
    fmt,
    io::{self, IsTerminal as _},
};

use tracing_subscriber::{
    filter::LevelFilter,
    fmt::{format::Writer, time::FormatTime},
};

use crate::{plain::without_numbers, settings::Level};

/// Starts logging at `level`; `is_runs`: what is said comes among a program's own lines.
pub(crate) fn start(level: Level, is_runs: bool) {
    let filter = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(filter).with_writer(|| Plain);
    let is_seen = is_runs || io::stderr().is_terminal();
    // Which of our modules speaks concerns whoever debugs them, and nobody else.
    let subscriber = subscriber.with_target(filter >= LevelFilter::DEBUG);
    // A second start in one process would keep the first one's level.
    if is_seen && filter <= LevelFilter::WARN {
        let plain = subscriber.with_timer(Name).with_level(false);
        plain.with_ansi(false).try_init().ok();
    } else {
        subscriber.try_init().ok();
    }
}

/// Standard error, as people read it. What is logged comes line by line.
struct Plain;

impl io::Write for Plain {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = without_numbers(&String::from_utf8_lossy(line));
        io::stderr().write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stands where a log has the time.
struct Name;

impl FormatTime for Name {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str("kakehi:")
    }
}
