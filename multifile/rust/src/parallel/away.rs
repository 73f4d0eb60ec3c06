//! Buddy copies on the storage of other nodes: each physical file, of the set and of every level of
//! copies, is created, written, and completed by ranks that reach it.
//!
//! A file of a level belongs to its keeper ([`roster`](super::roster)), who writes it from what the
//! copied ranks send in every collective write: their data crosses the network once a level.

use crate::{
    codec::{Fields, narrow, put_u64, wide},
    error::{Argument, Error, Result},
    group::Group,
    name,
    parallel::{
        create::NewSet,
        exchange::agree,
        roster::{Line, Roster, Split},
        writer::ParWriter,
    },
    plan::NewTask,
    storage::Storage,
};

/// One level of copies, as one rank sees it.
#[derive(Debug)]
pub(super) struct Away<S: Storage> {
    /// Of the keeper: all tasks of the file it keeps. Nothing on other ranks.
    set: ParWriter<S>,
    lines: Vec<Line>,
    mapping: Vec<(u32, u32)>,
    /// Error that kept the keeper from writing its data.
    failed: Option<Error>,
}

/// Creates `levels` of copies of a set whose rank has `task`, as all ranks do.
pub(super) fn create<G: Group, S: Storage>(
    group: &G,
    set: NewSet<'_, S>,
    levels: u32,
    task: NewTask,
    split: &Split<'_>,
) -> Result<Vec<Away<S>>> {
    let NewSet { storage, path, options } = set;
    let roster = Roster::meet(group, task, levels.into(), options.team)?;
    if roster.said().iter().any(|said| *said != u64::from(levels)) {
        return Err(Argument::Disagree.into());
    }
    let files: Vec<u32> = (0..roster.file_count()).collect();
    let level = |level| {
        let brings = if task.local_rank == 0 {
            roster.copies(roster.kept(task.file, level), level)
        } else {
            Vec::new()
        };
        let path = name::buddy(path, level);
        let set = ParWriter::create_mapped(group, storage, &path, &brings, options)?;
        let lines = roster.lines(group.rank(), &files, level, split)?;
        Ok(Away { set, lines, mapping: roster.mapping(level), failed: None })
    };
    (0..levels).map(level).collect()
}

impl<S: Storage> Away<S> {
    /// Sends `bytes`, which begin in `block` of this rank's task, to the rank that keeps its copy,
    /// and writes what this rank keeps.
    ///
    /// # Errors
    ///
    /// [`Error::Group`]. What the storage reports is kept for closing.
    pub(super) fn carry(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        for line in &self.lines {
            let bytes = if line.sends { bytes } else { &[] };
            let mut told = Vec::with_capacity(16);
            put_u64(&mut told, block);
            put_u64(&mut told, wide(bytes.len()));
            let all = line.part.gather(&told)?;
            let senders: Vec<(u64, u64)> = all.chunks_exact(16).filter_map(told_by).collect();
            let most = senders.iter().map(|(_, len)| *len).max().unwrap_or(0);
            let mut most = most.to_le_bytes();
            line.part.broadcast(&mut most)?;
            for (at, len) in line.pieces(u64::from_le_bytes(most)) {
                let from = narrow(at).min(bytes.len());
                let part = bytes.get(from..from.saturating_add(len).min(bytes.len()));
                let part = invariant!(some part, "a piece is of the bytes",
                    else return Err(Error::Poisoned));
                let mut piece = part.to_vec();
                piece.resize(len, 0);
                let pieces = line.part.gather(&piece)?;
                if line.is_keeper() && self.failed.is_none() {
                    let kept = keep(&mut self.set, line, &senders, at, pieces.chunks_exact(len));
                    self.failed = kept.err();
                }
            }
        }
        Ok(())
    }

    /// Completes this level together with all ranks: file 0 last, because it makes the set
    /// readable.
    pub(super) fn close<G: Group>(mut self, group: &G) -> Result<()> {
        let used = self.failed.map_or(Ok(()), Err).and_then(|()| self.set.used(0));
        agree(group, used.map(|_| ()))?;
        let first = self.set.first_file();
        let complete = |number: Option<u32>| match number {
            Some(0) => self.set.complete_file(0, Some(self.mapping.clone())),
            Some(number) => self.set.complete_file(number, None),
            None => Ok(()),
        };
        agree(group, complete(first.filter(|number| *number > 0)))?;
        agree(group, complete(first.filter(|number| *number == 0)))?;
        self.set.release();
        Ok(())
    }
}

/// Writes what came of the step that begins at byte `at` to the copies of its senders.
fn keep<'a, S: Storage>(
    set: &mut ParWriter<S>,
    line: &Line,
    senders: &[(u64, u64)],
    at: u64,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<()> {
    debug_assert!(line.ahead <= senders.len(), "the keeper's process is of its group");
    let copies = set.task_count().saturating_sub(senders.len() - line.ahead.min(senders.len()));
    let both = senders.iter().zip(pieces).skip(line.ahead).zip(copies..);
    for (((block, len), piece), task) in both {
        let len = narrow(len.saturating_sub(at)).min(piece.len());
        if len == 0 {
            continue;
        }
        let mut task = set.task(task)?;
        while at == 0 && wide(task.fill().block().0) < *block {
            task.next_block()?;
        }
        task.write(piece.get(..len).ok_or(Error::TooLarge)?)?;
    }
    Ok(())
}

/// The block and the number of bytes that a sender told of.
fn told_by(told: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Fields::little(told);
    Some((fields.u64()?, fields.u64()?))
}
