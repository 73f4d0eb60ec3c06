//! Which tasks a set has, and in which order readers count them (format rule 6.3).

use super::mend::Patch;
use crate::{
    blocks::Table,
    codec::{narrow, u64s, wide},
    error::{OnFile as _, Result},
    mark::Mark,
    physical::{Front, mapping_entry, names_all},
    reader::Mapping,
    storage::{File, read_up_to},
    sums::CHECKSUMS_MAGIC,
};

/// Entries that a few faults can damage.
const DAMAGED_MAX: usize = 4;

/// In which order readers count the tasks of a set.
pub(super) enum Order {
    /// As its mapping says.
    Stored(Mapping),
    /// As it must have said, with what puts that in its place if it is certain.
    Lost(Mapping, Option<Patch>),
}

/// The mapping of a closed file, if it names every task of the set once and nothing else; else the
/// one that is `needed`. That is certain if the set says so, and what is left of it agrees.
pub(super) fn mapping_of<F: File>(
    front: &Front<F>,
    table: &Table,
    fronts: &[Front<F>],
    needed: Mapping,
    is_certain: bool,
) -> Result<Order> {
    let Some(at) = table.end() else { return Ok(Order::Lost(needed, None)) };
    let len = narrow(front.size.saturating_sub(at)).min(4 + 8 * ranks(fronts));
    let mut bytes = vec![0; len];
    read_up_to(&*front.file, &mut bytes, at).on_file(front.number)?;
    let order = front.header.order;
    let count = bytes.first_chunk().map_or(0, |count| narrow(order.u32(*count).into()));
    let pairs = u64s(bytes.get(4..).unwrap_or_default(), order);
    let stored: Mapping = pairs.map(|pair| mapping_entry(pair, &front.header)).collect();
    let said = stored.get(..count).unwrap_or_default();
    if is_order(said, fronts) {
        return Ok(Order::Stored(said.to_vec()));
    }
    let differing = stored.iter().zip(&needed).filter(|(stored, needed)| stored != needed).count();
    let agrees = differing <= DAMAGED_MAX && 2 * differing <= needed.len();
    let mut bytes = order.bytes_u32(u32::try_from(needed.len()).unwrap_or(u32::MAX)).to_vec();
    for (file, local) in &needed {
        bytes.extend_from_slice(&order.bytes_u32(*file));
        bytes.extend_from_slice(&order.bytes_u32(*local));
    }
    let fits = match Mark::decode(front.header.flag2) {
        Mark::Closed { checksums_at: Some(sums_at), .. } => {
            at + wide(bytes.len() + CHECKSUMS_MAGIC.len()) == sums_at
        }
        _ => true,
    };
    let patch = (is_certain && agrees && fits).then_some(Patch { at, bytes });
    Ok(Order::Lost(needed, patch))
}

/// True if `mapping` names every task that it has to once, and none that does not exist.
fn is_order<F>(mapping: &[(u32, u32)], fronts: &[Front<F>]) -> bool {
    let exists = |(file, local): &(u32, u32)| {
        let front = fronts.get(narrow(u64::from(*file)));
        front.is_some_and(|front| narrow(u64::from(*local)) < front.ranks.len())
    };
    let mut sorted = mapping.to_vec();
    sorted.sort_unstable();
    let once = sorted.windows(2).all(|pair| pair.first() != pair.last());
    let ranks = fronts.iter().map(|front| (front.number, front.ranks.as_slice()));
    once && mapping.iter().all(exists) && names_all(mapping, ranks)
}

fn ranks<F>(fronts: &[Front<F>]) -> usize {
    fronts.iter().map(|front| front.ranks.len()).sum()
}

/// The mapping a set must have had: tasks in the order of their global ranks, without those that
/// only hold copies; and whether these are all from 0 on. `None` for a single file.
pub(super) fn mapping_to_make<F: File>(fronts: &[Front<F>]) -> Option<(Mapping, bool)> {
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
    let is_certain = tasks.iter().zip(0..).all(|((rank, ..), expected)| *rank == expected);
    Some((tasks.into_iter().map(|(_, file, local)| (file, local)).collect(), is_certain))
}
