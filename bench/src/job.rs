//! Jobs of a worker, and what it answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A worker's job, and which part of it is timed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    /// Creates the file and writes it from start to end; timed: the writes and the close.
    Write,
    /// The same; timed: the writes alone.
    Burst,
    /// Reads the file from its start; timed: the reads.
    Read,
    /// Sends requests without I/O to the daemon in the folder `path`; timed: all of them.
    Nothing,
}

/// One measurement: `count` calls of `size` bytes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) verb: Verb,
    pub(crate) size: usize,
    pub(crate) count: usize,
    pub(crate) path: PathBuf,
}

/// Duration of the timed part: by the clock, and by the thread's CPU time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
}

impl Job {
    /// Bytes that all calls move.
    pub(crate) fn volume(&self) -> u64 {
        (self.size as u64) * (self.count as u64)
    }
}
