//! Which tasks a set has, and in which order readers count them (format rule 6.3).

use crate::{
    error::{Readable as _, Result},
    physical::{self, Front, Physical},
    reader::Mapping,
    storage::File,
};

/// The mapping of a closed file, if it is the one it needs, in whatever order, or one of `every`
/// task. `None`, too, where none is needed.
pub(super) fn mapping_of<F: File>(
    physical: &Physical<F>,
    needed: Option<&[(u32, u32)]>,
    every: &[(u32, u32)],
) -> Result<Option<Mapping>> {
    let Some((needed, at)) = needed.zip(physical.table.end()) else { return Ok(None) };
    let stored = physical::mapping(&*physical.front.file, &physical.front.header, at).readable()?;
    let sorted = |mapping: &[(u32, u32)]| {
        let mut mapping = mapping.to_vec();
        mapping.sort_unstable();
        mapping
    };
    let is_one = |stored: &Mapping| {
        let stored = sorted(stored);
        stored == sorted(needed) || stored == every
    };
    Ok(stored.filter(is_one))
}

/// All tasks of a set in the order of their files, those that only hold copies, too.
pub(super) fn every<F>(fronts: &[Front<F>]) -> Vec<(u32, u32)> {
    let of = |front: &Front<F>| {
        let number = front.number;
        (0u32..).zip(&front.ranks).map(move |(local, _)| (number, local)).collect::<Vec<_>>()
    };
    fronts.iter().flat_map(of).collect()
}

/// The mapping a set must have had: tasks in the order of their global ranks, without those that
/// only hold copies. `None` for a single file.
pub(super) fn mapping_to_make<F: File>(fronts: &[Front<F>]) -> Option<Mapping> {
    if fronts.len() == 1 {
        return None;
    }
    let mut tasks = Vec::new();
    for front in fronts {
        let ranks = front.ranks.iter().zip(0u32..);
        tasks.extend(ranks.map(|(rank, local)| (*rank, front.number, local)));
    }
    tasks.retain(|(rank, ..)| *rank >= 0);
    tasks.sort_unstable();
    let unique = tasks.windows(2).all(|pair| match pair {
        [(a, ..), (b, ..)] => a != b,
        _ => true,
    });
    if !unique {
        tasks.sort_unstable_by_key(|(_, file, local)| (*file, *local));
    }
    Some(tasks.into_iter().map(|(_, file, local)| (file, local)).collect())
}
