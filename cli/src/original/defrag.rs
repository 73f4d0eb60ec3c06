//! `siondefrag`: one chunk a task.

use super::options::Options;
use crate::{
    failure::Failure,
    multifile::{Shape, defragment, open},
    size::Size,
};

pub(super) fn defrag(options: &Options) -> Result<(), Failure> {
    let (path, output) = (options.path(0), options.path(1));
    let megabytes = options.number(b'Q')?.map(|count| Size(count.saturating_mul(1 << 20)));
    // As in the original, -1 or 0 would mean the input's.
    let fs_block = options.number(b'q')?.map(Size).or(megabytes).filter(|len| len.0 > 0);
    let files = options.number(b'n')?.unwrap_or(1);
    let files = u32::try_from(files).ok().filter(|files| *files > 0);
    let files = files.ok_or_else(|| Failure::usage("-n", "1 file at least", "see -h"))?;
    defragment(&open(path)?, path, output, Shape { fs_block, files }, true)
}
