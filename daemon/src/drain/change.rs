//! Changes of which bytes a file has, by truncation or `fallocate(2)`, behind what is staged.
//!
//! A full disk refuses staged bytes, and the change may be what makes room. So it does not wait for
//! them: those that it removes are cut off the log ([`Cut`]), and the others are tried again after
//! it.

use std::rc::Rc;

use rustix::{fs::FallocateFlags, io::Errno};
use shm::staging::Cut;
use storage::{
    names::{Answer, FileCall},
    verdict::errno,
};

use super::{claim::LogClaim, drain_to};
use crate::{core::Core, file::OpenFile, session_storage::SessionStorage};

/// Executes a call that changes which bytes a file has, as if everything staged were in the file.
///
/// # Errors
///
/// Those of the call. What staged bytes are refused with, if the change may move them.
pub(crate) async fn change<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    call: FileCall,
) -> Result<Answer, Errno> {
    let drained = drain_to(core, file, file.head()).await;
    let turn = file.turn().await;
    let Err(refused) = drained else {
        let descriptor = file.descriptor()?;
        return core.storage.on(&descriptor.file, call).await.map_err(errno);
    };
    let changed = cut_and_change(core, file, call, refused).await;
    drop(turn);
    match changed {
        // It has made room, perhaps. What is refused still is owed.
        Ok(_) => drain_to(core, file, file.head()).await.unwrap_or_default(),
        Err(_) => drop(file.shared().take_error()),
    }
    changed
}

/// Executes a call after cutting off the staged bytes that it removes. The caller has the turn.
async fn cut_and_change<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    call: FileCall,
    refused: Errno,
) -> Result<Answer, Errno> {
    let descriptor = file.descriptor()?;
    let log = LogClaim::new(core, file).await.ok_or(Errno::IO)?;
    let size = core.storage.status(&descriptor.file).await.map_err(errno)?.size;
    let (end, before) = (log.end(size), file.shared().cut());
    let (from, to) = removed(call).ok_or(refused)?;
    if file.appends() && moves_end(call, size) {
        return Err(refused);
    }
    let cut = Cut::new(file.head(), from, to).with(before, log.tail()).ok_or(refused)?;
    file.shared().set_cut(cut);
    let changed = core.storage.on(&descriptor.file, call).await.map_err(errno);
    if changed.is_err() {
        file.shared().set_cut(before);
    } else if file.appends() && from < to {
        // Where the last append would have ended its client may ask.
        file.shared().write_begins(log.tail(), size, 0);
    } else if from < to && to < u64::MAX {
        // Bytes in a hole count for the size.
        let status = core.storage.status(&descriptor.file).await.map_err(errno)?;
        if status.size < end {
            let call = FileCall::Truncate { len: end };
            core.storage.on(&descriptor.file, call).await.map_err(errno)?;
        }
    }
    changed
}

/// True if a call may put the end of a file of `size` bytes to where appends would not bring it:
/// those that are refused have no other place.
fn moves_end(call: FileCall, size: u64) -> bool {
    match call {
        FileCall::Truncate { len } => len > size,
        FileCall::Allocate { mode, .. } => mode != FallocateFlags::KEEP_SIZE.bits(),
        _ => true,
    }
}

/// Bytes of a file that a call removes, as the first one and the one behind the last; `None` if it
/// may move others.
fn removed(call: FileCall) -> Option<(u64, u64)> {
    match call {
        FileCall::Truncate { len } => Some((len, u64::MAX)),
        FileCall::Allocate { mode, at, len } => {
            let mode = FallocateFlags::from_bits_retain(mode) - FallocateFlags::KEEP_SIZE;
            if mode == FallocateFlags::PUNCH_HOLE || mode == FallocateFlags::ZERO_RANGE {
                return Some((at, at.saturating_add(len)));
            }
            mode.is_empty().then_some((0, 0))
        }
        _ => None,
    }
}
