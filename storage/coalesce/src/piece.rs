//! Where a stretch of a stream lies in the physical file.

use multifile::layout::ChunkPlace;

/// A stretch of a stream that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Offset in the physical file.
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Piece {
    /// The first of `len` bytes at `at` of a stream that fills its blocks one after the other.
    pub(super) fn in_full_blocks(place: ChunkPlace, at: u64, len: u64) -> Option<Self> {
        let chunk_len = place.chunk_len;
        let (block, skip) = (at.checked_div(chunk_len)?, at.checked_rem(chunk_len)?);
        let block_at = place.block_at(usize::try_from(block).ok()?).ok()?;
        // The blocks of the only task follow each other.
        let is_one = place.skip == chunk_len;
        let len = if is_one { len } else { len.min(chunk_len - skip) };
        Some(Self { at: block_at + skip, len })
    }

    /// The same of a stream whose blocks end there in it, as SIONlib's do: a write that does not
    /// fit into the rest of a block goes to the next one.
    pub(super) fn by_ends(place: ChunkPlace, ends: &[u64], at: u64, len: u64) -> Option<Self> {
        let block = ends.partition_point(|end| *end <= at);
        let begin = block.checked_sub(1).and_then(|before| ends.get(before)).copied();
        let begin = begin.unwrap_or(0);
        debug_assert!(begin <= at, "it is in this block");
        let block_at = place.block_at(block).ok()?;
        Some(Self { at: block_at + (at - begin), len: len.min(ends.get(block)? - at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: ChunkPlace = ChunkPlace { start_at: 1000, chunk_len: 100, skip: 300 };

    #[test]
    fn piece_of_full_blocks_ends_with_its_block() {
        let piece = |at, len| Piece::in_full_blocks(PLACE, at, len);
        assert_eq!(piece(0, 50), Some(Piece { at: 1000, len: 50 }));
        assert_eq!(piece(90, 50), Some(Piece { at: 1090, len: 10 }));
        assert_eq!(piece(250, 50), Some(Piece { at: 1650, len: 50 }));
        let empty = ChunkPlace { chunk_len: 0, ..PLACE };
        assert_eq!(Piece::in_full_blocks(empty, 0, 0), None);
    }

    #[test]
    fn piece_ends_where_its_block_is_not_full() {
        // 60 bytes in the first block, none in the second, 100, and 5.
        let piece = |at, len| Piece::by_ends(PLACE, &[60, 60, 160, 165], at, len);
        assert_eq!(piece(0, 500), Some(Piece { at: 1000, len: 60 }));
        assert_eq!(piece(59, 2), Some(Piece { at: 1059, len: 1 }));
        assert_eq!(piece(60, 500), Some(Piece { at: 1600, len: 100 }));
        assert_eq!(piece(162, 500), Some(Piece { at: 1902, len: 3 }));
        assert_eq!(piece(165, 1), None);
    }
}
