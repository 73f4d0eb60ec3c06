//! How requested chunk sizes become reserved ones: alone, or several tasks in one aligned group.
//!
//! A group is written through one collector, so only its end has to lie on a file-system block
//! boundary; the tasks inside are packed without gaps (format section 2, rules 2.5 to 2.8).

use core::ops::Range;

use crate::{
    codec::{narrow, round_up, wide},
    error::{Argument, Error, Result},
};

/// How tasks are packed into a physical file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Every chunk is aligned by itself.
    #[default]
    Aligned,
    /// Groups of tasks whose requests fill whole blocks together; `size` is a hint for the number
    /// of tasks in one, or `None` to choose by the number of tasks and their bytes.
    Collective {
        /// Wished number of tasks in a group; positive.
        size: Option<u32>,
    },
    /// The same groups, but all data of a group goes to the chunk of its first task.
    Merge {
        /// Wished number of tasks in a group; positive.
        size: Option<u32>,
    },
    /// Groups of exactly `size` tasks, the last one shorter.
    Modular {
        /// Number of tasks in a group; at least 2.
        size: u32,
    },
}

impl Packing {
    /// The groups of consecutive tasks that `requests` fall into; each task its own when aligned.
    ///
    /// # Errors
    ///
    /// [`Argument::Packing`] for a group size that cannot be, [`Error::TooLarge`].
    pub fn groups(
        self,
        requests: &[u64],
        fs_block_len: u64,
        team: usize,
    ) -> Result<Vec<Range<usize>>> {
        match self {
            Self::Aligned => Ok((0..requests.len()).map(|task| task..task + 1).collect()),
            Self::Collective { size } | Self::Merge { size } => {
                groups_by_bytes(requests, fs_block_len, size, team)
            }
            Self::Modular { size } => {
                let size = usize::try_from(size).ok().filter(|size| *size > 1);
                let size = size.ok_or(Argument::Packing)?;
                let starts = (0..requests.len()).step_by(size);
                Ok(starts.map(|at| at..requests.len().min(at.saturating_add(size))).collect())
            }
        }
    }
}

/// The reserved size of every task.
pub(crate) fn chunks(
    requests: &[u64],
    fs_block_len: u64,
    packing: Packing,
    team: usize,
) -> Result<Vec<u64>> {
    let up = |len| round_up(len, fs_block_len).ok_or(Error::TooLarge);
    if packing == Packing::Aligned {
        return requests.iter().map(|request| up(*request)).collect();
    }
    let merge = matches!(packing, Packing::Merge { .. });
    let mut chunks = Vec::with_capacity(requests.len());
    for group in packing.groups(requests, fs_block_len, team)? {
        let members = requests.get(group);
        let members = invariant!(some members, "a group consists of tasks",
            else return Err(Argument::Packing.into()));
        let total = up(sum(members)?)?;
        if merge {
            chunks.push(total);
            for request in members.iter().skip(1) {
                chunks.push(up(*request)?);
            }
        } else {
            chunks.extend_from_slice(members);
            if let Some(last) = chunks.last_mut() {
                *last += total - sum(members)?;
            }
        }
    }
    invariant!(chunks.len() == requests.len(), "every task is in one group",
        else return Err(Argument::Packing.into()));
    Ok(chunks)
}

/// A task joins the group as long as the group's bytes stay within the average of all groups.
fn groups_by_bytes(
    requests: &[u64],
    fs_block_len: u64,
    size: Option<u32>,
    team: usize,
) -> Result<Vec<Range<usize>>> {
    let total = sum(requests)?;
    let count = collector_count(wide(requests.len()), total.div_ceil(fs_block_len), size)?;
    let average = round_up(total / count, fs_block_len).ok_or(Error::TooLarge)?;
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(narrow(count));
    let mut bytes = 0u64;
    // Only the first thread of a process can collect.
    let joins = |task: usize| task % team.max(1) > 0;
    for (task, request) in requests.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if joins(task) || bytes.saturating_add(*request) <= average => {
                group.end = task + 1;
                bytes = bytes.saturating_add(*request);
            }
            _ => {
                groups.push(task..task + 1);
                bytes = *request;
            }
        }
    }
    debug_assert_eq!(groups.iter().map(ExactSizeIterator::len).sum::<usize>(), requests.len());
    Ok(groups)
}

fn collector_count(tasks: u64, blocks: u64, size: Option<u32>) -> Result<u64> {
    let wished = match size {
        Some(0) => return Err(Argument::Packing.into()),
        Some(size) => tasks.div_ceil(u64::from(size)),
        None => match tasks {
            512.. => 32,
            256.. => 16,
            32.. => 8,
            16.. => 4,
            _ => tasks,
        },
    };
    Ok(wished.min(blocks).max(1))
}

fn sum(lens: &[u64]) -> Result<u64> {
    lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)).ok_or(Error::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [u64; 7] = [300, 200, 100, 700, 50, 60, 70];

    /// Format rules 2.5 and 2.6; the numbers of a file of SIONlib.
    #[test]
    fn groups_follow_bytes_not_counts() {
        let packing = Packing::Collective { size: Some(3) };
        assert_eq!(packing.groups(&REQUESTS, 512, 1).unwrap(), [0..2, 2..3, 3..4, 4..7]);
        let packed = chunks(&REQUESTS, 512, packing, 1).unwrap();
        assert_eq!(packed, [300, 212, 512, 1024, 50, 60, 402]);
    }

    /// Format rule 2.5.
    #[test]
    fn without_a_wish_the_number_of_groups_follows_that_of_tasks() {
        let counts =
            [(15, 15), (16, 4), (31, 4), (32, 8), (255, 8), (256, 16), (511, 16), (512, 32)];
        for (tasks, groups) in counts {
            assert_eq!(collector_count(tasks, u64::MAX, None), Ok(groups));
            assert_eq!(collector_count(tasks, 3, None), Ok(3));
        }
        assert_eq!(collector_count(7, 0, None), Ok(1));
    }

    /// Format rule 2.7.
    #[test]
    fn merged_groups_reserve_everything_at_the_collector() {
        let packing = Packing::Merge { size: Some(2) };
        assert_eq!(chunks(&[1000; 4], 512, packing, 1).unwrap(), [2048, 1024, 2048, 1024]);
    }

    /// Format rule 2.8.
    /// Format rule 2.5.
    #[test]
    fn threads_of_a_process_join_its_collector() {
        let packing = Packing::Merge { size: None };
        let requests = [1000; 6];
        assert_eq!(packing.groups(&requests, 512, 1).unwrap().len(), 6);
        assert_eq!(packing.groups(&requests, 512, 3).unwrap(), [0..3, 3..6]);
        assert_eq!(packing.groups(&requests, 512, 6).unwrap().len(), 1);
        assert_eq!(chunks(&requests, 512, packing, 3).unwrap()[..2], [3072, 1024]);
        // The next process joins, too, while there is room.
        let wished = Packing::Merge { size: Some(6) };
        assert_eq!(wished.groups(&requests, 512, 2).unwrap().len(), 1);
    }

    #[test]
    fn modular_groups_have_exactly_their_size() {
        let packing = Packing::Modular { size: 3 };
        assert_eq!(packing.groups(&REQUESTS, 512, 1).unwrap(), [0..3, 3..6, 6..7]);
        assert_eq!(chunks(&REQUESTS, 512, packing, 1).unwrap(), [300, 200, 524, 700, 50, 274, 512]);
        let refused = Packing::Modular { size: 1 }.groups(&REQUESTS, 512, 1);
        assert_eq!(refused, Err(Argument::Packing.into()));
    }

    #[test]
    fn tasks_without_bytes_can_be_packed() {
        let packing = Packing::Collective { size: None };
        assert_eq!(chunks(&[0, 0], 512, packing, 1).unwrap(), [0, 0]);
        assert_eq!(chunks(&[], 512, packing, 1).unwrap(), [0; 0]);
        let refused = chunks(&[1], 512, Packing::Merge { size: Some(0) }, 1);
        assert_eq!(refused, Err(Argument::Packing.into()));
    }
}
