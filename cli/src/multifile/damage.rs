//! Data that is not what its checksums say: found wherever streams are copied, and never hidden.

use std::{fs::File, path::Path};

use multifile::{Error, Part, Reader};

use super::{copy::in_parallel, task_failure};
use crate::failure::{Code, Failure};

/// True if the data of a task differs from its checksums; `false` where there are none.
pub(crate) fn differs(reader: &Reader<File>, path: &Path, task: usize) -> Result<bool, Failure> {
    match reader.verify(task) {
        Ok(_) => Ok(false),
        Err(Error::Damaged { part: Part::Checksum, .. }) => Ok(true),
        Err(why) => Err(task_failure(path, task, why)),
    }
}

/// Everything was written; says of which tasks it was not as it should be.
pub(crate) fn judge(path: &Path, damaged: &[usize]) -> Result<(), Failure> {
    let Some((first, others)) = damaged.split_first() else { return Ok(()) };
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and of {count} more"),
    };
    let why = format!("the data of task {first}{others} differs from its checksums");
    let advice = "it was written as it is; 'kakehi multifile verify' names every damaged task";
    Err(Failure::new(Code::Damaged, path.display(), why, advice))
}

/// Refuses data that would get new checksums and pass for whole from then on.
pub(crate) fn refuse(reader: &Reader<File>, path: &Path) -> Result<(), Failure> {
    in_parallel(0..reader.task_count(), |task| {
        if !differs(reader, path, task)? {
            return Ok(());
        }
        let what = format!("{}: task {task}", path.display());
        let why = "its data differs from its checksums, and new ones would hide that";
        let advice = "take what there is out with 'kakehi multifile split'";
        Err(Failure::new(Code::Damaged, what, why, advice))
    })
    .map(drop)
}
