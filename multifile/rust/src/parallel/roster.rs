//! Keepers of buddy copies when each physical file is on the storage of its ranks' node, and the
//! small groups in which their data travels.
//!
//! File *k* of level *l* is kept by the ranks of file k + l + 1 of the original, counted in a
//! circle (format rule 9.1): by the first of them, its *keeper*. The keeper and the ranks whose
//! data it copies form a [`Part`]. A rank is in two parts of a level, so parts are made in rounds:
//! within a round no rank is in two. Every rank knows the roster and finds the same rounds.

use super::records::Part as _;
use crate::{
    codec::{Fields, narrow, wide},
    error::{Argument, Error, Result},
    group::Group,
    plan::NewTask,
};

/// A group that does not borrow the one it was split from.
pub type OwnGroup = Box<dyn Group + Send>;

/// Splits a group: returns, to each rank, the group of all ranks that pass the same
/// [`number`](Part::number). Collective.
pub type Split<'a> = dyn Fn(Part) -> Result<OwnGroup> + 'a;

/// One rank's place in a part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Tells the parts of one split apart.
    pub number: u32,
    /// This rank in the part, from 0.
    pub rank: u32,
    /// Ranks of the part.
    pub size: u32,
}

/// The tasks of all ranks, one each, and what each rank said besides.
#[derive(Debug)]
pub(super) struct Roster {
    tasks: Vec<NewTask>,
    said: Vec<u64>,
    /// Ranks of every file in the order of their local ranks.
    files: Vec<Vec<usize>>,
    /// Consecutive ranks of one process.
    team: usize,
}

const RECORD_LEN: usize = NewTask::LEN + u64::LEN;

impl Roster {
    /// Tells all ranks of `task` and what this rank `says`. Costs a gather and a broadcast.
    pub(super) fn meet<G: Group>(group: &G, task: NewTask, says: u64, team: usize) -> Result<Self> {
        let mut mine = Vec::with_capacity(RECORD_LEN);
        task.put(&mut mine);
        says.put(&mut mine);
        let mut all = group.gather(&mine)?;
        all.resize(RECORD_LEN * narrow(group.size().into()), 0);
        group.broadcast(&mut all)?;
        let all = all.chunks_exact(RECORD_LEN).map(|bytes| {
            let mut fields = Fields::little(bytes);
            Some((NewTask::take(&mut fields)?, fields.u64()?))
        });
        let all = all.collect::<Option<Vec<_>>>().ok_or(Error::TooLarge)?;
        let (tasks, said): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        debug_assert_eq!(tasks.len(), narrow(group.size().into()), "every rank brings a task");
        let files = files(&tasks)?;
        Ok(Self { tasks, said, files, team: team.max(1) })
    }

    pub(super) fn file_count(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn said(&self) -> &[u64] {
        &self.said
    }

    /// Ranks whose tasks are in `file`.
    pub(super) fn ranks_of(&self, file: u32) -> &[usize] {
        self.files.get(narrow(file.into())).map_or(&[], Vec::as_slice)
    }

    /// The tasks of `file` in the order of their local ranks.
    pub(super) fn tasks_of(&self, file: u32) -> impl Iterator<Item = NewTask> + '_ {
        self.ranks_of(file).iter().filter_map(|rank| self.tasks.get(*rank).copied())
    }

    /// The file whose ranks keep the copy of `file` at `level`.
    pub(super) fn keeping(&self, file: u32, level: u32) -> u32 {
        let count = u64::from(self.file_count().max(1));
        let keeping = (u64::from(file) + u64::from(level) + 1) % count;
        u32::try_from(keeping).unwrap_or(0)
    }

    /// The file whose copy at `level` the ranks of file `keeping` keep.
    pub(super) fn kept(&self, keeping: u32, level: u32) -> u32 {
        debug_assert!(keeping < self.file_count(), "file {keeping} is of the set");
        let count = u64::from(self.file_count().max(1));
        let back = (u64::from(level) + 1) % count;
        u32::try_from((u64::from(keeping) + count - back) % count).unwrap_or(0)
    }

    /// The tasks in file `file` of level `level`: those that only hold the copies, then the copies.
    pub(super) fn copies(&self, file: u32, level: u32) -> Vec<NewTask> {
        let holders = self.tasks_of(self.keeping(file, level)).zip(0u32..);
        let holders = holders.map(|(task, local_rank)| NewTask {
            file,
            local_rank,
            global_rank: -1 - task.global_rank,
            chunk_len: 0,
        });
        let mut tasks: Vec<NewTask> = holders.collect();
        let before = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        tasks.extend(
            self.tasks_of(file)
                .map(|task| NewTask { local_rank: task.local_rank.saturating_add(before), ..task }),
        );
        tasks
    }

    /// (file, local rank) of all copies of `level`, in the order of their global ranks.
    pub(super) fn mapping(&self, level: u32) -> Vec<(u32, u32)> {
        let mut copies: Vec<NewTask> =
            (0..self.file_count()).flat_map(|file| self.copies(file, level)).collect();
        copies.retain(|task| task.global_rank >= 0);
        debug_assert!(copies.len() <= self.tasks.len(), "a rank is in the mapping once");
        copies.sort_by_key(|task| task.global_rank);
        copies.iter().map(|task| (task.file, task.local_rank)).collect()
    }

    /// The ranks of the part of `file` at `level`, the keeper's process first, and how many stand
    /// before those that have data to copy.
    pub(super) fn part(&self, file: u32, level: u32) -> (Vec<usize>, usize) {
        let keeping = self.keeping(file, level);
        let own = self.ranks_of(file);
        if keeping == file {
            return (own.to_vec(), 0);
        }
        let mut ranks: Vec<usize> =
            self.ranks_of(keeping).iter().copied().take(self.team).collect();
        let ahead = ranks.len();
        ranks.extend(own);
        (ranks, ahead)
    }

    /// Splits the group into the parts of `files` at `level`, round by round, and returns this
    /// `rank`'s.
    pub(super) fn lines(
        &self,
        rank: u32,
        files: &[u32],
        level: u32,
        split: &Split<'_>,
    ) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        let rank = narrow(rank.into());
        for round in self.rounds(files, level) {
            let parts = round.into_iter().map(|file| (file, self.part(file, level)));
            let mut parts = parts.filter_map(|(file, (ranks, ahead))| {
                let at = ranks.iter().position(|member| *member == rank)?;
                Some((file, at, ranks.len(), ahead))
            });
            let number = |number: usize| u32::try_from(number).map_err(|_| Error::TooLarge);
            if let Some((file, at, size, ahead)) = parts.next() {
                let place = Part { number: file, rank: number(at)?, size: number(size)? };
                lines.push(Line { file, ahead, sends: at >= ahead, part: split(place)? });
            } else {
                // A process without a part in this round has one of its own.
                let others = number(rank / self.team)?.checked_add(self.file_count());
                let (at, size) = (number(rank % self.team)?, number(self.team)?);
                split(Part { number: others.ok_or(Error::TooLarge)?, rank: at, size })?;
            }
        }
        Ok(lines)
    }

    /// Cuts `files` into rounds in which no rank is in two parts of `level`.
    fn rounds(&self, files: &[u32], level: u32) -> Vec<Vec<u32>> {
        let mut rounds: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
        for file in files {
            let both = [*file, self.keeping(*file, level)];
            let is_free = |busy: &Vec<u32>| both.iter().all(|file| !busy.contains(file));
            match rounds.iter_mut().find(|(_, busy)| is_free(busy)) {
                Some((round, busy)) => {
                    round.push(*file);
                    busy.extend(both);
                }
                None => rounds.push((vec![*file], both.to_vec())),
            }
        }
        let all = rounds.iter().map(|(round, _)| round.len()).sum::<usize>();
        debug_assert_eq!(all, files.len(), "a file is in one round");
        rounds.into_iter().map(|(round, _)| round).collect()
    }
}

/// A part that this rank is in; the part's rank 0 is the keeper.
pub(super) struct Line {
    /// The file whose tasks are copied.
    pub(super) file: u32,
    /// Ranks of the part before those whose data is copied.
    pub(super) ahead: usize,
    /// True if this rank's data is copied here.
    pub(super) sends: bool,
    pub(super) part: OwnGroup,
}

/// Bytes that a keeper has in memory of what is on its way, about.
const UNDER_WAY_MAX: usize = 16 << 20;

impl Line {
    pub(super) fn is_keeper(&self) -> bool {
        self.part.rank() == 0
    }

    /// Bytes of each rank that travel at once.
    pub(super) fn piece_len(&self) -> usize {
        let ranks = narrow(self.part.size().into()).max(1);
        (UNDER_WAY_MAX / ranks).clamp(1 << 12, 1 << 20)
    }

    /// Bytes of each rank in every step, if the longest brings `most`.
    pub(super) fn pieces(&self, most: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
        let step = self.piece_len();
        (0..most).step_by(step).map(move |at| (at, narrow((most - at).min(wide(step)))))
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Line");
        shown.field("file", &self.file).field("sends", &self.sends).finish_non_exhaustive()
    }
}

fn files(tasks: &[NewTask]) -> Result<Vec<Vec<usize>>> {
    let last = tasks.iter().map(|task| task.file).max().unwrap_or(0);
    if narrow(last.into()) >= tasks.len().max(1) {
        return Err(Argument::Mapping.into());
    }
    let mut files: Vec<Vec<(u32, usize)>> = vec![Vec::new(); narrow(last.into()) + 1];
    for (rank, task) in tasks.iter().enumerate() {
        let members = files.get_mut(narrow(task.file.into())).ok_or(Argument::Mapping)?;
        members.push((task.local_rank, rank));
    }
    for members in &mut files {
        members.sort_unstable();
        let is_whole = members.iter().zip(0u32..).all(|((local, _), index)| *local == index);
        if members.is_empty() || !is_whole {
            return Err(Argument::Mapping.into());
        }
    }
    let ranks = |members: Vec<(u32, usize)>| members.into_iter().map(|(_, rank)| rank).collect();
    Ok(files.into_iter().map(ranks).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Alone;

    fn roster(sizes: &[u32], team: usize) -> Roster {
        let tasks: Vec<NewTask> = (0u32..)
            .zip(sizes)
            .flat_map(|(file, size)| (0..*size).map(move |local_rank| (file, local_rank)))
            .zip(0i64..)
            .map(|((file, local_rank), global_rank)| NewTask {
                file,
                local_rank,
                global_rank,
                chunk_len: 8,
            })
            .collect();
        let files = files(&tasks).unwrap();
        Roster { said: vec![0; tasks.len()], tasks, files, team }
    }

    #[test]
    fn rank_is_in_one_part_of_a_round_and_every_file_in_one_round() {
        for count in 2..9u32 {
            for level in 0..3 {
                let sizes: Vec<u32> = (0..count).map(|file| 1 + file % 3).collect();
                let roster = roster(&sizes, 1);
                let files: Vec<u32> = (0..count).collect();
                let rounds = roster.rounds(&files, level);
                assert!(rounds.len() <= 3, "{count} files need {} rounds", rounds.len());
                let mut seen: Vec<u32> = rounds.iter().flatten().copied().collect();
                seen.sort_unstable();
                assert_eq!(seen, files);
                for round in rounds {
                    let parts = round.iter().flat_map(|file| roster.part(*file, level).0);
                    let mut ranks: Vec<usize> = parts.collect();
                    let all = ranks.len();
                    ranks.sort_unstable();
                    ranks.dedup();
                    assert_eq!(ranks.len(), all, "{count} files, level {level}");
                }
                for file in files {
                    assert_eq!(roster.kept(roster.keeping(file, level), level), file);
                }
            }
        }
    }

    #[test]
    fn threads_of_the_keeper_are_in_its_part() {
        let roster = roster(&[4, 2, 4], 2);
        assert_eq!(roster.part(0, 0), (vec![4, 5, 0, 1, 2, 3], 2));
        assert_eq!(roster.part(1, 0), (vec![6, 7, 4, 5], 2));
        assert_eq!(roster.part(2, 2), (vec![6, 7, 8, 9], 0));
    }

    #[test]
    fn local_ranks_with_gaps_are_refused() {
        let task = NewTask { file: 0, local_rank: 1, global_rank: 0, chunk_len: 0 };
        let met = Roster::meet(&Alone, task, 0, 1);
        assert_eq!(met.err(), Some(Argument::Mapping.into()));
    }
}
