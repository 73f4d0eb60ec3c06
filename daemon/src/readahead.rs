//! Reads of cold files: what is waited for, and what will be.
//!
//! A client reads from the page cache itself and asks only when the bytes are not there. A request
//! that begins where the last one ended, or the first one at the start of the file, makes the file
//! sequential: from then on the window ahead doubles with every request, up to 8 MiB, and is
//! fetched by a throughput task in steps, so that no request waits for more than one.

use std::rc::Rc;

use executor::{Class, yield_now};
use rustix::io::Errno;
use storage::verdict::{Verdict, errno};

use crate::{core::Core, file::OpenFile, session_storage::SessionStorage};

/// Brings a range into the page cache and returns how much of it is there; fetches ahead if the
/// file is read in sequence.
pub(crate) async fn fetch<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    at: u64,
    len: u32,
) -> Verdict {
    let end = at + u64::from(len);
    if let Some(target) = file.history.note(at, end) {
        fetch_ahead(core, file, target);
    }
    let descriptor = file.descriptor()?;
    let mut done = at;
    while done < end {
        let rest = usize::try_from(end - done).map_err(|_| Errno::INVAL)?;
        match core.storage.fetch(&descriptor.file, done, rest).await {
            Ok(0) => break,
            Ok(len) => done += len as u64,
            Err(_) if done > at => break,
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(done - at)
}

/// Moves the end of what is fetched ahead to `target`, and starts to fetch unless somebody does.
fn fetch_ahead<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>, target: u64) {
    let history = &file.history;
    history.fetched_to.set(target);
    if !history.is_running.replace(true) {
        let (core, file) = (Rc::clone(core), Rc::clone(file));
        core.handle.clone().spawn(Class::Throughput, run_ahead(core, file));
    }
}

/// Fetches to the window's end, wherever that moves.
async fn run_ahead<S: SessionStorage>(core: Rc<Core<S>>, file: Rc<OpenFile<S>>) {
    while let Some((at, len)) = file.history.ahead().filter(|_| !file.is_closing()) {
        let Ok(descriptor) = file.descriptor() else { break };
        let Ok(step) = usize::try_from(len) else { break };
        match core.storage.fetch(&descriptor.file, at, step).await {
            Ok(fetched) if fetched > 0 => file.history.fetched(at, fetched as u64),
            // Elsewhere there may be more.
            Ok(_) if file.history.ahead_at.get() != at => {}
            _ => break, // The end of the file, or an error that a read will meet itself.
        }
        drop(descriptor);
        yield_now().await;
    }
    file.history.is_running.set(false);
}
