//! Streams and descriptors that the program uses beside the library, and second read positions.

use std::{ffi::c_int, ptr::null_mut};

use libc::FILE;

use crate::{
    error::{Failure, Result},
    export::export,
    handle::{Body, Open},
    mode::Kind,
    pointer::Text,
    stream::Streams,
    table,
};

const DUP_ALL: c_int = -201;
const DUP_RANK: c_int = -202;
const DUP_RANK_KEY: c_int = -203;

fn streams(open: &mut Open) -> &mut Streams {
    match &mut open.body {
        Body::Read(reading) => &mut reading.streams,
        Body::Write(writing) => &mut writing.streams,
    }
}

/// Counts what went through the current stream.
fn settle(open: &mut Open) -> Result<()> {
    match &mut open.body {
        Body::Read(reading) => reading.used().map(|_| ()),
        Body::Write(writing) => writing.settle(),
    }
}

fn place(open: &mut Open) -> Result<()> {
    match &mut open.body {
        Body::Read(reading) => reading.place(),
        Body::Write(writing) => writing.place(),
    }
}

fn ansi(open: &Open) -> Result<()> {
    if open.mode.posix { Err(Failure::Mode("no streams in mode posix")) } else { Ok(()) }
}

fn file_number(open: &mut Open) -> Result<u32> {
    match &mut open.body {
        Body::Read(reading) => Ok(reading.here()?.stream.file_number()),
        Body::Write(writing) => writing.file_number(),
    }
}

fn descriptor(open: &mut Open) -> Result<c_int> {
    if !open.mode.posix {
        return Err(Failure::Mode("descriptors are for mode posix"));
    }
    match &mut open.body {
        Body::Read(reading) => reading.descriptor(),
        Body::Write(writing) => writing.descriptor(),
    }
}

fn duplicate(open: &mut Open, mode: c_int, rank: c_int) -> Result<Open> {
    let parallel = matches!(open.kind, Kind::Parallel | Kind::Mapped | Kind::Duplicate);
    let chosen = matches!(mode, DUP_ALL | DUP_RANK | DUP_RANK_KEY);
    if !parallel || !chosen {
        return Err(Failure::Mode("only what was opened in parallel for reading is duplicated"));
    }
    let reading = open.reading()?;
    let mut copy = reading.duplicate()?;
    if mode != DUP_ALL {
        // With one task there is nothing to choose, and programs pass -1.
        match copy.find(rank.into()) {
            Some(index) => copy.select(index)?,
            None if rank < 0 || copy.task_count() == 1 => {}
            None => return Err(multifile::Argument::Task.into()),
        }
    }
    let new = Open::new(Kind::Duplicate, open.mode.clone(), Body::Read(Box::new(copy)));
    Ok(Open { duplicated_on: Some(open.rank_in_group()), ..new })
}

export! {
    fn sion_get_fp(sid: c_int) -> *mut FILE, or null_mut(); {
        table::with(sid, Open::export)
    }

    fn sion_get_fd(sid: c_int) -> c_int, or -1; {
        table::with(sid, descriptor)
    }

    fn sion_set_second_fp(sid: c_int, fp: *mut FILE) -> c_int, or 0; {
        if fp.is_null() {
            return Err(Failure::Argument("the stream is NULL"));
        }
        table::with(sid, |open| {
            ansi(open)?;
            settle(open)?;
            streams(open).set_second(fp);
            place(open).map(|()| 1)
        })
    }

    fn sion_unset_second_fp(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| {
            settle(open)?;
            if !streams(open).unset_second() {
                return Err(Failure::Mode("there is no second stream"));
            }
            place(open).map(|()| 1)
        })
    }

    fn sion_set_fp_closed(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| {
            let number = file_number(open)?;
            streams(open).set_closed(number);
            Ok(1)
        })
    }

    fn sion_optimize_fp_buffer(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| {
            ansi(open)?;
            open.export()?;
            let len = match &mut open.body {
                Body::Read(reading) => reading.set().fs_block_len,
                Body::Write(writing) => writing.fs_block_len(),
            };
            let len = usize::try_from(len).unwrap_or(1 << 16);
            streams(open).set_buffers(len).map(|()| 1)
        })
    }

    fn sion_dup(sid: c_int, mode: c_int, rank: c_int, _key: u64) -> c_int, or -1; {
        table::insert(table::with(sid, |open| duplicate(open, mode, rank))?)
    }

    fn sion_dedup(sid: c_int) -> c_int, or 0; {
        table::remove(sid, |open| open.kind == Kind::Duplicate).map(|_| 1)
    }

    fn _sion_file_stat_file | "_lsion_file_stat_file" (fname: Text<'_>) -> c_int, or 0; {
        Ok(c_int::from(fname.path()?.exists()))
    }

    fn _sion_close_sid | "_lsion_close_sid" (sid: c_int) -> c_int, or 0; {
        let kind = table::with(sid, |open| Ok(open.kind))?;
        match kind {
            // SAFETY: handles are integers; none is dangerous.
            Kind::Serial | Kind::Rank => Ok(unsafe { crate::serial::sion_close(sid) }),
            Kind::Parallel | Kind::Mapped => crate::parallel::close(sid),
            Kind::Duplicate => table::remove(sid, |_| true).map(|_| 1),
        }
    }
}
