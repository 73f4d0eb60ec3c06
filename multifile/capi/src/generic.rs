//! The generic interface: communication given as callbacks, one by one, on typed elements. They
//! become a table of `sion_group.h`; bytes travel as `_SION_CHAR`.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

use libc::FILE;

use crate::{
    callbacks::{Api, Broadcast, CreateLocal, Exchange, OnComm, Unused},
    error::{Failure, Result},
    export::export,
    files::{Files, NameCallback},
    group::{Place, Ranks, Table},
    mapped::{self, Mapped},
    parallel::{self, Answer, Strings},
    pointer::{Array, Given, InOut, Text, bytes, values_mut},
    table,
};

const SION_CHAR: c_int = 12;

/// Context of a table made from callbacks.
struct Context {
    api: Api,
    comm: *mut c_void,
    /// The communicator came from `create_local`.
    local: bool,
    rank: c_int,
    size: c_int,
}

impl Api {
    /// The ranks of `comm`.
    ///
    /// # Safety
    ///
    /// The callbacks keep the contract of `sion_generic.h` with `comm`.
    unsafe fn ranks(self, comm: *mut c_void, rank: c_int, size: c_int) -> Result<Ranks> {
        let complete = self.barrier.is_some()
            && self.broadcast.is_some()
            && self.gather.is_some()
            && self.scatter.is_some();
        if !complete {
            return Err(Failure::Argument("a callback needed to open a file is missing"));
        }
        let table = Context { api: self, comm, local: false, rank, size }.table();
        // SAFETY: the functions below keep the contract if the callbacks do.
        unsafe { Ranks::new(table) }
    }
}

impl Context {
    fn table(self) -> Table {
        Table {
            rank: self.rank,
            size: self.size,
            gather: Some(gather),
            scatter: Some(scatter),
            broadcast: Some(broadcast),
            barrier: Some(barrier),
            split: self.api.create_local.is_some().then_some(split),
            release: Some(release),
            spoken: 0,
            // Names of physical files are the program's: it may put them anywhere.
            apart: 1,
            team: 1,
            context: Box::into_raw(Box::new(self)).cast(),
        }
    }
}

/// The context that [`Context::table`] made.
///
/// # Safety
///
/// `context` comes from there and was not released.
unsafe fn context<'a>(context: *mut c_void) -> &'a Context {
    // SAFETY: the caller's promise; contexts are never changed.
    unsafe { &*context.cast::<Context>() }
}

/// Callbacks report success as 0 or as 1, because nobody ever looked; so that does not tell. Every
/// message ends with these bytes, and one that arrives without them has not arrived.
const SEAL: [u8; 8] = *b"arrived.";
/// Code for a message that did not arrive, or is too long for a count of elements.
const LOST: c_int = -2;

fn sealed(message: &[u8]) -> Vec<u8> {
    [message, &SEAL].concat()
}

/// Copies a message that arrived to where it belongs.
fn open(sealed: &[u8], message: &mut [u8]) -> Option<()> {
    let content = sealed.strip_suffix(&SEAL)?;
    (content.len() == message.len()).then(|| message.copy_from_slice(content))
}

/// Turns what a callback and the look at the seals say into a code of `sion_group.h`.
fn outcome(code: c_int, arrived: impl FnOnce() -> Option<()>) -> c_int {
    match code {
        0 | 1 => arrived().map_or(LOST, |()| 0),
        code => code,
    }
}

unsafe extern "C" fn gather(at: *mut c_void, mine: *const u8, all: *mut u8, len: usize) -> c_int {
    // SAFETY: called by `Ranks` with its own context.
    let context = unsafe { context(at) };
    // SAFETY: `Ranks` passes `len` bytes.
    let Ok(message) = (unsafe { bytes(mine, len) }) else { return LOST };
    let mut message = sealed(message);
    let ranks = if context.rank == 0 { usize::try_from(context.size).unwrap_or(0) } else { 0 };
    // One byte where nothing arrives: callbacks are never given a dangling pointer.
    let mut arrived = vec![0; (message.len() * ranks).max(1)];
    let (Some(gather), Ok(count)) = (context.api.gather, c_int::try_from(message.len())) else {
        return LOST;
    };
    // SAFETY: the buffers are as the callback's contract wants them.
    let code = unsafe {
        let (from, to) = (message.as_mut_ptr().cast(), arrived.as_mut_ptr().cast());
        gather(from, to, context.comm, SION_CHAR, count, 0)
    };
    // SAFETY: on the root `Ranks` passes room for `len` bytes of every rank.
    let Ok(all) = (unsafe { values_mut(all, len * ranks) }) else { return LOST };
    outcome(code, || {
        let mut parts = arrived.chunks_exact(message.len());
        (0..ranks)
            .try_for_each(|rank| open(parts.next()?, all.get_mut(rank * len..(rank + 1) * len)?))
    })
}

unsafe extern "C" fn scatter(at: *mut c_void, all: *const u8, mine: *mut u8, len: usize) -> c_int {
    // SAFETY: called by `Ranks` with its own context.
    let context = unsafe { context(at) };
    let ranks = if context.rank == 0 { usize::try_from(context.size).unwrap_or(0) } else { 0 };
    // SAFETY: on the root `Ranks` passes `len` bytes for every rank.
    let Ok(all) = (unsafe { bytes(all, len * ranks) }) else { return LOST };
    let part = |rank| sealed(all.get(rank * len..(rank + 1) * len).unwrap_or_default());
    let mut messages: Vec<u8> = (0..ranks).flat_map(part).collect();
    messages.resize(messages.len().max(1), 0);
    let mut arrived = vec![0; len + SEAL.len()];
    let (Some(scatter), Ok(count)) = (context.api.scatter, c_int::try_from(arrived.len())) else {
        return LOST;
    };
    // SAFETY: the buffers are as the callback's contract wants them.
    let code = unsafe {
        let (from, to) = (messages.as_mut_ptr().cast(), arrived.as_mut_ptr().cast());
        scatter(from, to, context.comm, SION_CHAR, count, 0)
    };
    // SAFETY: `Ranks` passes room for `len` bytes.
    let Ok(mine) = (unsafe { values_mut(mine, len) }) else { return LOST };
    outcome(code, || open(&arrived, mine))
}

unsafe extern "C" fn broadcast(at: *mut c_void, data: *mut u8, len: usize) -> c_int {
    // SAFETY: called by `Ranks` with its own context.
    let context = unsafe { context(at) };
    // SAFETY: `Ranks` passes `len` bytes to read and to change.
    let Ok(data) = (unsafe { values_mut(data, len) }) else { return LOST };
    let mut message = if context.rank == 0 { sealed(data) } else { vec![0; len + SEAL.len()] };
    let (Some(send), Ok(count)) = (context.api.broadcast, c_int::try_from(message.len())) else {
        return LOST;
    };
    // SAFETY: the message has this length.
    let code = unsafe { send(message.as_mut_ptr().cast(), context.comm, SION_CHAR, count, 0) };
    outcome(code, || open(&message, data))
}

unsafe extern "C" fn barrier(at: *mut c_void) -> c_int {
    // SAFETY: called by `Ranks` with its own context.
    let context = unsafe { context(at) };
    let Some(barrier) = context.api.barrier else { return LOST };
    // SAFETY: the communicator belongs to the callbacks.
    outcome(unsafe { barrier(context.comm) }, || Some(()))
}

unsafe extern "C" fn split(
    at: *mut c_void,
    file: c_int,
    file_count: c_int,
    local_rank: c_int,
    local_size: c_int,
    part: *mut Table,
) -> c_int {
    // SAFETY: called by `Ranks` with its own context.
    let Context { api, comm, rank, size, .. } = unsafe { context(at) };
    let Some(create) = api.create_local else { return -1 };
    let mut local = null_mut();
    // SAFETY: `local` can be written; everything else is as the program passed it.
    let code = unsafe {
        let at = &raw mut local;
        create(at, *comm, *rank, *size, local_rank, local_size, file, file_count)
    };
    if code == 0 || code == 1 {
        let context =
            Context { api: *api, comm: local, local: true, rank: local_rank, size: local_size };
        // SAFETY: `Ranks` passes room for a table.
        unsafe { part.write(context.table()) };
    }
    code
}

unsafe extern "C" fn release(at: *mut c_void) {
    // SAFETY: called once, with the box that `Context::table` gave away.
    let context = unsafe { Box::from_raw(at.cast::<Context>()) };
    if let Some(free) = context.api.free_local.filter(|_| context.local) {
        // SAFETY: `create_local` made it, and nothing uses it any more.
        unsafe { free(context.comm) };
    }
}

/// Defines a function that stores one callback, once.
macro_rules! register {
    ($($name:ident: $field:ident: $callback:ty;)*) => {
        export! {$(
            fn $name(aid: c_int, callback: Option<$callback>) -> c_int, or 0; {
                table::with_api(aid, |api| {
                    if api.$field.is_some() || callback.is_none() {
                        return Err(Failure::Argument("a callback is NULL or registered twice"));
                    }
                    api.$field = callback;
                    Ok(1)
                })
            }
        )*}
    };
}

register! {
    sion_generic_register_create_local_commgroup_cb: create_local: CreateLocal;
    sion_generic_register_free_local_commgroup_cb: free_local: OnComm;
    sion_generic_register_barrier_cb: barrier: OnComm;
    sion_generic_register_bcastr_cb: broadcast: Broadcast;
    sion_generic_register_gatherr_cb: gather: Exchange;
    sion_generic_register_scatterr_cb: scatter: Exchange;
    sion_generic_register_gathervr_cb: gather_varying: Unused;
    sion_generic_register_scattervr_cb: scatter_varying: Unused;
    sion_generic_register_get_multi_filename_cb: name: NameCallback;
    sion_generic_register_gather_and_execute_cb: gather_and_execute: Unused;
    sion_generic_register_execute_and_scatter_cb: execute_and_scatter: Unused;
    sion_generic_register_get_capability_cb: capability: OnComm;
}

export! {
    fn sion_generic_create_api(_name: *const c_char) -> c_int, or -1; {
        table::insert_api(Api::default())
    }

    fn sion_generic_free_api(aid: c_int) -> c_int, or 0; {
        table::remove_api(aid).map(|()| 1)
    }

    fn sion_generic_paropen(
        aid: c_int,
        fname: Text<'_>,
        file_mode: Text<'_>,
        chunksize: InOut<'_, i64>,
        fsblksize: InOut<'_, i32>,
        gcommgroup: *mut c_void,
        grank: c_int,
        gsize: c_int,
        filenumber: InOut<'_, c_int>,
        numfiles: InOut<'_, c_int>,
        lrank: Given<'_, c_int>,
        lsize: Given<'_, c_int>,
        fileptr: InOut<'_, *mut FILE>,
        newfname: InOut<'_, *mut c_char>,
    ) -> c_int, or -1; {
        let api = table::with_api(aid, |api| Ok(*api))?;
        // SAFETY: the program promises callbacks that keep their contract.
        let ranks = unsafe { api.ranks(gcommgroup, grank, gsize) }?;
        // SAFETY: the callback of the contract allocates names with malloc.
        let files = unsafe { Files::named(api.name) };
        // Absent or wrong, they are refused by all ranks together.
        let asked = || Place {
            file: filenumber.get().unwrap_or(-1),
            file_count: numfiles.get().unwrap_or(-1),
            local_rank: lrank.get().unwrap_or(-1),
            local_size: lsize.get().unwrap_or(-1),
        };
        let answer = Answer { chunksize, fsblksize, globalrank: InOut::NULL, fileptr, newfname };
        let strings = Strings { fname, mode: file_mode };
        let (open, place) = parallel::open(ranks, files, strings, asked, &answer)?;
        if !open.writes() {
            filenumber.put(place.file);
            numfiles.put(place.file_count);
        }
        table::insert(open)
    }

    fn sion_generic_parclose(sid: c_int) -> c_int, or 0; {
        parallel::close(sid)
    }

    fn sion_generic_parreinit(sid: c_int, chunksize: i64) -> c_int, or 0; {
        parallel::reinit(sid, chunksize)
    }

    fn sion_generic_paropen_mapped(
        aid: c_int,
        fname: Text<'_>,
        file_mode: Text<'_>,
        numfiles: InOut<'_, c_int>,
        gcommgroup: *mut c_void,
        grank: c_int,
        gsize: c_int,
        nlocaltasks: InOut<'_, c_int>,
        globalranks: Array<'_, c_int>,
        chunksizes: Array<'_, i64>,
        mapping_filenrs: Array<'_, c_int>,
        mapping_lranks: Array<'_, c_int>,
        fsblksize: InOut<'_, i32>,
        fileptr: InOut<'_, *mut FILE>,
    ) -> c_int, or -1; {
        let api = table::with_api(aid, |api| Ok(*api))?;
        // SAFETY: the program promises callbacks that keep their contract.
        let ranks = unsafe { api.ranks(gcommgroup, grank, gsize) }?;
        // SAFETY: the callback of the contract allocates names with malloc.
        let files = unsafe { Files::named(api.name) };
        let tasks = Mapped {
            numfiles, nlocaltasks, globalranks, chunksizes, mapping_filenrs, mapping_lranks,
        };
        let strings = Strings { fname, mode: file_mode };
        // SAFETY: arrays are as long as `*nlocaltasks` says.
        let open = unsafe { mapped::open(ranks, files, strings, &tasks, fsblksize, fileptr) }?;
        table::insert(open)
    }

    fn sion_generic_parclose_mapped(sid: c_int) -> c_int, or 0; {
        parallel::close(sid)
    }
}
