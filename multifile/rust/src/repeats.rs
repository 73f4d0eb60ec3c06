//! Which writes need no slot in the journal (format rule 8.7).
//!
//! A slot costs a system call, and a program that streams writes the same length again and again.
//! From the second such write on, the slot says that more of this length may follow it. They are
//! not recorded: each ends in a byte that is not zero, which tells repair how many there are. A
//! write that is not like them ends the run, and this is recorded before it begins, so that no part
//! of it is taken for one of them.

use crate::journal::Slot;

/// The block that the waiting bytes belong to, and its state once they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) task: u32,
    pub(crate) block: u64,
    pub(crate) slot: Slot,
}

impl Owner {
    pub(crate) const fn is_in_block_of(&self, other: &Self) -> bool {
        self.task == other.task && self.block == other.block
    }
}

/// The last write to a physical file, and whether its slot says that more like it may follow.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    owner: Owner,
    len: u32,
    open: bool,
}

/// Length of a write, 0 if it cannot be part of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece(u32);

impl Piece {
    /// Bytes written by other means, or behind which there may be anything but zeros.
    pub(crate) const UNLIKE: Self = Self(0);

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let told = bytes.len() > 1 && bytes.last().is_some_and(|last| *last != 0);
        u32::try_from(bytes.len()).ok().filter(|_| told).map_or(Self::UNLIKE, Self)
    }
}

impl Repeats {
    /// Returns the slot to record before `piece` is written to the block of `owner`.
    pub(crate) fn before(&mut self, owner: &Owner, piece: Piece) -> Option<Owner> {
        let last = self.last.as_mut().filter(|last| last.open)?;
        let like = last.owner.is_in_block_of(owner) && last.len == piece.0;
        // A task never comes back to a block that it left.
        let left = last.owner.task == owner.task && last.owner.block != owner.block;
        debug_assert!(!left || last.owner.block < owner.block, "a task returns to a block it left");
        if like || left {
            return None;
        }
        last.open = false;
        Some(last.owner)
    }

    /// Returns the slot to record when `piece` is written and the block of `owner` is as that says.
    pub(crate) fn after(&mut self, owner: &Owner, piece: Piece) -> Option<Owner> {
        debug_assert_eq!(owner.slot.more, 0, "only a run says how its pieces repeat");
        let mut owner = *owner;
        let like = |last: &Last| last.owner.task == owner.task && last.len == piece.0;
        let like = self.last.filter(|last| like(last) && piece.0 > 0 && owner.slot.sum.is_none());
        let recorded = like.is_some_and(|last| last.open && last.owner.is_in_block_of(&owner));
        self.last = Some(Last { owner, len: piece.0, open: like.is_some() });
        owner.slot.more = like.map_or(0, |last| last.len);
        (!recorded).then_some(owner)
    }

    /// Returns the slot to record so that no write is left out.
    pub(crate) fn end(&mut self) -> Option<Owner> {
        let last = self.last.take()?;
        last.open.then_some(last.owner)
    }
}

impl Slot {
    /// Bytes of the block, if those behind the recorded ones that are not zero reach `behind`
    /// bytes further.
    #[must_use]
    pub fn used_with(&self, behind: u64) -> u64 {
        let more = u64::from(self.more);
        self.used + behind.checked_div(more).map_or(0, |count| count * more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(task: u32, block: u64, used: u64) -> Owner {
        Owner { task, block, slot: Slot::of(used, None) }
    }

    /// Records writes given as (task, block, used after it, last byte), and returns used length and
    /// length of what may follow, before it and after it.
    fn recorded(writes: &[(u32, u64, u64, u8)]) -> Vec<[Option<(u64, u32)>; 2]> {
        let mut run = Repeats::default();
        let mut ends = std::collections::BTreeMap::new();
        let told = |owner: Owner| (owner.slot.used, owner.slot.more);
        let record = |(task, block, used, last): &(u32, u64, u64, u8)| {
            let from = ends.insert((*task, *block), *used).unwrap_or(0);
            let mut bytes = vec![0; usize::try_from(used - from).unwrap()];
            *bytes.last_mut().unwrap() = *last;
            let (owner, piece) = (owner(*task, *block, *used), Piece::of(&bytes));
            [run.before(&owner, piece).map(told), run.after(&owner, piece).map(told)]
        };
        writes.iter().map(record).collect()
    }

    #[test]
    fn writes_of_one_length_are_recorded_twice_and_then_once_a_block() {
        let writes = [(0, 0, 9, 1), (0, 0, 18, 1), (0, 0, 27, 1), (0, 1, 9, 1), (0, 1, 18, 1)];
        let expected = [
            [None, Some((9, 0))],
            [None, Some((18, 9))],
            [None, None],
            [None, Some((9, 9))],
            [None, None],
        ];
        assert_eq!(recorded(&writes), expected);
    }

    #[test]
    fn a_run_ends_before_what_is_unlike_it() {
        for (unlike, after) in
            [((0, 0, 19, 1), (19, 0)), ((0, 0, 27, 0), (27, 0)), ((1, 0, 9, 1), (9, 0))]
        {
            let recorded = recorded(&[(0, 0, 9, 1), (0, 0, 18, 1), unlike]);
            assert_eq!(recorded[2], [Some((18, 0)), Some(after)]);
        }
    }

    #[test]
    fn blocks_with_checksums_are_recorded_each_time() {
        let mut run = Repeats::default();
        for used in [9, 18, 27] {
            let owner = Owner { slot: Slot::of(used, Some(5)), ..owner(0, 0, used) };
            assert!(run.before(&owner, Piece::of(&[1; 9])).is_none());
            assert_eq!(run.after(&owner, Piece::of(&[1; 9])).map(|owner| owner.slot.more), Some(0));
        }
    }

    #[test]
    fn only_whole_writes_are_counted() {
        let slot = Slot { more: 10, ..Slot::of(7, None) };
        let used = [0, 9, 10, 29].map(|behind| slot.used_with(behind));
        assert_eq!(used, [7, 7, 17, 27]);
        assert_eq!(Slot::of(7, None).used_with(100), 7);
    }
}
