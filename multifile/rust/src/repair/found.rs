//! Tasks as repair finds them.

use crate::{
    estimate::{Extent, Flaw},
    reader::Task,
};

/// A task as repair found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTask {
    /// The task, as the header describes it.
    pub task: Task,
    /// Length of its stream in bytes, as it reads after the repair.
    pub len: u64,
    /// How sure that is.
    pub doubt: Doubt,
}

/// How sure the length of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Every completed write is there, and nothing else.
    None,
    /// The stream may have been longer if it ended in zeros: up to `most` bytes, or without a
    /// bound that is known (`u64::MAX`).
    Zeros {
        /// Largest length possible.
        most: u64,
    },
    /// So many bytes more are left out: the journal has lost the length of a block before them.
    Gap {
        /// Bytes left out.
        lost: u64,
    },
    /// Data differs from the checksum that was recorded for it.
    Checksum,
    /// The file was closed and has been cut since, before the end of what the task's last block may
    /// have been.
    Cut,
    /// The file was closed, and its header, tables, and length contradict each other about the
    /// task.
    Contradiction,
}

/// The length of a task's stream, and how sure that is.
pub(super) fn found_of(extent: &Extent) -> (u64, Doubt) {
    let len = extent.lens.iter().sum();
    let doubt = match extent.flaw {
        Flaw::Damage => Doubt::Checksum,
        Flaw::Cut => Doubt::Cut,
        Flaw::Contradiction => Doubt::Contradiction,
        Flaw::None if extent.lost > 0 => Doubt::Gap { lost: extent.lost },
        Flaw::None if extent.most > len => Doubt::Zeros { most: extent.most },
        Flaw::None => Doubt::None,
    };
    (len, doubt)
}
