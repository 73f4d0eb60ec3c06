//! `siondefrag`: one chunk a task.

use super::options::Options;
use crate::{
    failure::Failure,
    multifile::{Shape, defragment, open},
    output,
    size::Size,
};

pub(super) fn defrag(options: &Options) -> Result<(), Failure> {
    let (path, target) = (options.path(0), options.path(1));
    let megabytes = options.number(b'Q')?.map(|count| Size(count.saturating_mul(1 << 20)));
    // As in the original, -1 or 0 would mean the input's.
    let fs_block = options.number(b'q')?.map(Size).or(megabytes).filter(|len| len.0 > 0);
    let files = options.number(b'n')?.unwrap_or(1);
    let files = u32::try_from(files).ok().filter(|files| *files > 0);
    let files = files.ok_or_else(|| Failure::usage("-n", "1 file at least", "see -h"))?;
    let reader = open(path)?;
    defragment(&reader, path, target, Shape { fs_block, files }, true)?;
    // Where the original got to, every sixteenth task.
    let tasks = (0..reader.task_count()).step_by(16);
    output::print(&(tasks.map(|task| format!("[{task}]")).collect::<String>() + "\n"))
}
