//! Handles: small integers for open multifiles and for API descriptors, the lowest free one first.
//!
//! The table's lock is held to look a handle up, never during I/O or communication; each multifile
//! has a lock of its own.

use std::{
    ffi::c_int,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use crate::{
    callbacks::Api,
    error::{Failure, Result, on_rank},
    exit,
    handle::Open,
};

/// Object of a handle.
#[derive(Clone)]
enum Entry {
    File(Arc<Mutex<Open>>),
    Api(Arc<Mutex<Api>>),
}

static TABLE: RwLock<Vec<Option<Entry>>> = RwLock::new(Vec::new());

/// Makes a handle for an open multifile.
pub(crate) fn insert(open: Open) -> Result<c_int> {
    exit::watch(files);
    enter(Entry::File(Arc::new(Mutex::new(open))))
}

/// Makes a descriptor for a set of callbacks.
pub(crate) fn insert_api(api: Api) -> Result<c_int> {
    enter(Entry::Api(Arc::new(Mutex::new(api))))
}

/// Works on the multifile behind `sid`.
pub(crate) fn with<T>(sid: c_int, work: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
    let Some(Entry::File(open)) = look_up(sid) else { return Err(Failure::Handle) };
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    on_rank(open.rank_in_group());
    work(&mut open)
}

/// Works on the callbacks behind `aid`.
pub(crate) fn with_api<T>(aid: c_int, work: impl FnOnce(&mut Api) -> Result<T>) -> Result<T> {
    let Some(Entry::Api(api)) = look_up(aid) else { return Err(Failure::Handle) };
    let mut api = api.lock().unwrap_or_else(PoisonError::into_inner);
    work(&mut api)
}

/// All open multifiles; none when the table is in use.
fn files() -> Vec<Arc<Mutex<Open>>> {
    let Ok(table) = TABLE.try_read() else { return Vec::new() };
    let files = table.iter().flatten().filter_map(|entry| match entry {
        Entry::File(open) => Some(Arc::clone(open)),
        Entry::Api(_) => None,
    });
    files.collect()
}

/// Ends handle `sid` if `closable` agrees, and returns the multifile behind it.
///
/// Closing a handle while another thread uses it is the program's mistake; that thread then keeps
/// the multifile, and this call fails.
pub(crate) fn remove(sid: c_int, closable: impl FnOnce(&Open) -> bool) -> Result<Open> {
    with(sid, |open| if closable(open) { Ok(()) } else { Err(Failure::Handle) })?;
    let Some(Entry::File(open)) = take(sid) else { return Err(Failure::Handle) };
    let open = Arc::try_unwrap(open).map_err(|_| Failure::Argument("the handle is in use"))?;
    Ok(open.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Ends descriptor `aid`. Multifiles opened with it keep its callbacks.
pub(crate) fn remove_api(aid: c_int) -> Result<()> {
    with_api(aid, |_| Ok(()))?;
    take(aid).map(|_| ()).ok_or(Failure::Handle)
}

fn enter(entry: Entry) -> Result<c_int> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let free = table.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        table.push(None);
        table.len() - 1
    });
    let sid = c_int::try_from(index).map_err(|_| Failure::Argument("too many handles"))?;
    if let Some(slot) = table.get_mut(index) {
        *slot = Some(entry);
    }
    Ok(sid)
}

fn look_up(sid: c_int) -> Option<Entry> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(usize::try_from(sid).ok()?)?.clone()
}

fn take(sid: c_int) -> Option<Entry> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.get_mut(usize::try_from(sid).ok()?)?.take()
}
