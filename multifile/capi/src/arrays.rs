//! Arrays that belong to a handle and that the program reads until the handle is closed.

/// One array for each kind of question; asking again replaces it.
#[derive(Default)]
pub(crate) struct Arrays {
    pub(crate) chunks: Vec<i64>,
    pub(crate) ranks: Vec<i64>,
    pub(crate) block_counts: Vec<i64>,
    pub(crate) block_lens: Vec<i64>,
    /// Block lengths of the current task.
    pub(crate) own_lens: Vec<i64>,
    pub(crate) positions: Vec<i64>,
    pub(crate) blocks: Vec<i64>,
    pub(crate) mapping: Vec<i32>,
}

/// A length or offset of a file that was checked to have none beyond 63 bits.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count that was checked to have at most 31 bits.
pub(crate) fn count<T: TryInto<i32>>(value: T) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}
