//! From where the offset of an `lseek(2)` counts, as Linux numbers it.

/// From the start of the file.
pub const SEEK_SET: u32 = 0;
/// From the file position.
pub const SEEK_CUR: u32 = 1;
/// From the end of the file.
pub const SEEK_END: u32 = 2;
/// From the start, to the next byte that is data.
pub const SEEK_DATA: u32 = 3;
/// From the start, to the next hole.
pub const SEEK_HOLE: u32 = 4;
