//! Shapes of the physical files of a multifile: the first one, which has the names; *dense* ones,
//! in which small files lie next to each other; and *wide* ones, whose streams may get long.

use multifile::NewFile;

/// Tasks of physical files of one kind: each has twice as many as the one before, up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) first: u32,
    pub(super) most: u32,
}

/// Shape of the physical files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The first one.
    pub(super) first: NewFile,
    /// Tasks of wide files: a run of few long files may make them as long as 256 GiB on ext4, and
    /// one of many a few dozen physical ones.
    pub(super) wide: Counts,
    /// Bytes that each task of a wide file has in a block.
    pub(super) chunk_len: u64,
    /// Tasks of dense files.
    pub(super) dense: Counts,
    /// Bytes below which a file is small; 0 where there are no dense files.
    pub(super) small_len: u64,
    /// The most bytes of a dense file.
    pub(super) dense_len: u64,
}

/// Bytes that dense files align chunks to, which is where a client's data begins, too.
pub(super) const DENSE_UNIT: u32 = 16;

/// 16 bytes of each task fill whole pages with what is before them, so data begins at a page:
/// 68 tasks fewer than a power of two.
const DENSE: Counts = Counts { first: 2048 - 68, most: 16384 - 68 };
const DENSE_FEW: Counts = Counts { first: 256 - 68, most: 2048 - 68 };
/// Bytes of a physical file that is not dense for each of a small file, at least.
const SMALL_PART: u64 = 256;
/// Bytes that a dense file has for each task beside the data: in front, behind, and in the mapping
/// of file 0.
const DENSE_OVERHEAD: u64 = 64;

const SHAPE: Shape = Shape {
    // Blocks of one task follow each other, so they can be short; what names leave of one is given
    // back where a full disk has no room for journals.
    first: NewFile { task_count: 1, chunk_len: 64 << 10, fs_block_len: None },
    wide: Counts { first: 64, most: 1024 },
    chunk_len: 1 << 20,
    dense: DENSE,
    small_len: 256 << 10,
    dense_len: 1 << 40,
};
/// Where no file may be that long: blocks that every task is to have all the same, the fewest tasks
/// for that, and the shortest chunks.
const BLOCKS_MIN: u64 = 16;
const TASKS_MIN: u64 = 16;
const CHUNK_LEN_MIN: u64 = 4096;
const _: () = assert!(SHAPE.chunk_len % CHUNK_LEN_MIN == 0 && SHAPE.small_len <= SHAPE.chunk_len);
const _: () = assert!(DENSE.first <= DENSE.most && DENSE_FEW.most <= DENSE.most);

impl Shape {
    /// Shape where a file may have so many bytes (`ulimit -f`).
    pub(super) fn within(len_max: Option<u64>) -> Self {
        let Some(len_max) = len_max else { return SHAPE };
        let fit = len_max / BLOCKS_MIN;
        let most = (fit / SHAPE.chunk_len).clamp(TASKS_MIN, u64::from(SHAPE.wide.most));
        let chunk_len = (fit / most / CHUNK_LEN_MIN * CHUNK_LEN_MIN).max(CHUNK_LEN_MIN);
        let most = u32::try_from(most).unwrap_or(SHAPE.wide.most);
        // A chunk of a dense file is shorter than one of a wide file, which tells them apart.
        let small_len = SHAPE.small_len.min(len_max / SMALL_PART).min(chunk_len / 2);
        let tables = |dense: Counts| u64::from(dense.most) * DENSE_OVERHEAD;
        let dense = if tables(DENSE) < len_max / 2 { DENSE } else { DENSE_FEW };
        Self {
            wide: Counts { first: SHAPE.wide.first.min(most), most },
            chunk_len: chunk_len.min(SHAPE.chunk_len),
            dense,
            small_len: if tables(dense) < len_max / 2 { small_len } else { 0 },
            dense_len: SHAPE.dense_len.min(len_max.saturating_sub(tables(dense))),
            ..SHAPE
        }
    }

    /// The next wide file where there are so many.
    pub(super) fn next_wide(&self, count: usize) -> NewFile {
        NewFile { task_count: self.wide.of(count), chunk_len: self.chunk_len, fs_block_len: None }
    }

    /// The next dense file where there are so many.
    pub(super) fn next_dense(&self, count: usize) -> NewFile {
        let fs_block_len = Some(DENSE_UNIT);
        NewFile { task_count: self.dense.of(count), chunk_len: 0, fs_block_len }
    }
}

impl Counts {
    /// Tasks of file `number` of the kind.
    fn of(self, number: usize) -> u32 {
        let power = u32::try_from(number).unwrap_or(u32::MAX);
        let doubled = self.first.checked_shl(power);
        let doubled = doubled.filter(|count| count.checked_shr(power) == Some(self.first));
        // As many fewer than a power of two.
        let missing = self.first.next_power_of_two() - self.first;
        let count = doubled.and_then(|count| count.checked_add(missing.checked_shl(power)?));
        count.map_or(self.most, |count| (count - missing).min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_files_get_more_and_more_tasks_up_to_a_bound() {
        let counts = |counts: Counts| [0, 1, 2, 3, 4, 40].map(|number| counts.of(number));
        assert_eq!(counts(SHAPE.wide), [64, 128, 256, 512, 1024, 1024]);
        assert_eq!(counts(DENSE), [1980, 4028, 8124, 16316, 16316, 16316]);
        for count in counts(DENSE).into_iter().chain(counts(DENSE_FEW)) {
            assert_eq!((1088 + 16 * count) % 4096, 0, "{count}");
        }
    }

    #[test]
    fn few_physical_files_hold_many_small_ones() {
        let (mut physical, mut held) = (1, 0); // The first one has the names.
        while held < 65_536 {
            held += SHAPE.dense.of(physical - 1);
            physical += 1;
        }
        assert!(physical <= 20, "{physical}");
    }

    #[test]
    fn tasks_have_room_for_some_blocks_where_no_file_may_be_long() {
        let long = Shape::within(None);
        assert_eq!(Shape { dense_len: long.dense_len, ..Shape::within(Some(1 << 44)) }, long);
        for limit in (20..40).map(|power| 1u64 << power) {
            let Shape { wide, chunk_len, dense, small_len, dense_len, .. } =
                Shape::within(Some(limit));
            assert!(wide.first <= wide.most && wide.most >= 16, "{limit}");
            assert!(chunk_len <= long.chunk_len, "{limit}");
            assert!(u64::from(wide.most) * chunk_len * 16 <= limit, "{limit}");
            let tables = u64::from(dense.most) * 40 + 1088;
            assert!(dense_len + tables <= limit && small_len < dense_len, "{limit}");
            assert!(small_len < chunk_len, "{limit}");
        }
    }
}
