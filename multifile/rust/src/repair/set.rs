//! Consistency of the files of a set.

use super::{mend::Patch, state::State};
use crate::{header::FILE_COUNT_AT, physical::Front, storage::File};

/// A physical file that does not say how many there are by now.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) number: u32,
    /// How it says so.
    pub(super) count: [u8; 4],
}

/// The files that say of another number of files than file 0, while that is being written: their
/// writer died before it said that the set got another one, or that was lost with the node, of any
/// of them and for any number of files.
pub(super) fn behind<F: File>(fronts: &[Front<F>], states: &[State]) -> Vec<Behind> {
    let Some((first, others)) = fronts.split_first() else { return Vec::new() };
    let count = first.header.file_count;
    let is_written = matches!(states.first(), Some(State::Unclosed { .. }));
    let is_other = |other: &&Front<F>| other.header.file_count != count;
    let others = others.iter().filter(|other| is_written && is_other(other));
    let behind = |other: &Front<F>| Behind {
        number: other.number,
        count: other.header.order.bytes_u32(count),
    };
    others.map(behind).collect()
}

/// Files that contradict file 0 about the set.
#[derive(Debug, Default)]
pub(super) struct Contrary {
    /// Numbers of files that are certain.
    pub(super) patches: Vec<(u32, Patch)>,
    /// The first file of which nothing is.
    pub(super) doubtful: Option<u32>,
}

/// Compares what the files say of the set, but the number of files of those that are `behind`. A
/// file that knows the set and not its own number has it from its name.
pub(super) fn contrary<F: File>(fronts: &[Front<F>], behind: &[Behind]) -> Contrary {
    let mut contrary = Contrary::default();
    let Some((first, others)) = fronts.split_first() else { return contrary };
    for other in others {
        let is_behind = behind.iter().any(|behind| behind.number == other.number);
        let counts = is_behind || other.header.file_count == first.header.file_count;
        let is_own = other.header.file_number == other.number;
        if !counts || other.header.keyval != first.header.keyval {
            contrary.doubtful = contrary.doubtful.or(Some(other.number));
        } else if !is_own {
            let bytes = other.header.order.bytes_u32(other.number).to_vec();
            let patch = Patch { at: FILE_COUNT_AT + 4, bytes };
            contrary.patches.push((other.number, patch));
        }
    }
    contrary
}
