//! What the daemon tells whoever watches it, on standard error.

use tracing_subscriber::filter::LevelFilter;

use crate::settings::Level;

/// Starts logging at `level`.
pub(crate) fn start(level: Level) {
    let filter = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(filter).with_writer(std::io::stderr);
    // A second start in one process would keep the first one's level.
    subscriber.try_init().ok();
}
