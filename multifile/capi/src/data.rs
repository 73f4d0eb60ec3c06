//! Reading and writing the current task's stream.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    ptr::null_mut,
};

use libc::FILE;
use multifile::{Argument, TaskReader};

use crate::{
    arrays::signed,
    error::{Failure, Result},
    export::export,
    handle::{Body, Merging, Open},
    mode::Kind,
    pointer::{InOut, bytes, values_mut},
    table,
    writing::{Sink, Writing},
};

const UNKNOWN: c_int = -1;
const CURRENT_RANK: c_int = -101;
const CURRENT_BLOCK: c_int = -102;
const CURRENT_POSITION: i64 = -103;
const ABSOLUTE: c_int = -104;
const END: c_int = -105;

/// Bytes of `count` items of `size` bytes; no memory has more than `isize::MAX`.
pub(crate) fn total(size: usize, count: usize) -> Result<usize> {
    let total = size.checked_mul(count).filter(|total| isize::try_from(*total).is_ok());
    total.ok_or(Failure::Argument("size times number of items is too large"))
}

fn write_together(open: &mut Open, data: &[u8]) -> Result<()> {
    let merging = open.team.as_ref().and_then(|team| Some((team.merging.as_ref()?, &team.ranks)));
    match (&mut open.body, merging) {
        (Body::Write(writing), Some((with, all))) => {
            // A rank whose stream has failed still has to meet the others.
            let settled = writing.settle();
            let data = if settled.is_ok() { data } else { &[] };
            let Writing { sink: Sink::Own(writer), .. } = &mut **writing else {
                return Err(multifile::Error::Poisoned.into());
            };
            match with {
                Merging::All => writer.write_merged(all, data)?,
                Merging::Some(part) => writer.write_merged(part, data)?,
            }
            settled?;
            writing.place()
        }
        _ => open.writing()?.write_copies(data),
    }
}

fn left_in_block(open: &mut Open) -> Result<i64> {
    match &mut open.body {
        Body::Write(writing) => {
            writing.settle()?;
            Ok(signed(writing.task()?.fill().left_in_block()))
        }
        Body::Read(reading) if reading.task_count() == 0 => Ok(0),
        Body::Read(reading) => Ok(signed(reading.used()?.stream.cursor().left_in_block())),
    }
}

/// Moves to a place in a task.
pub(crate) fn seek(open: &mut Open, rank: c_int, block: c_int, at: i64) -> Result<()> {
    let index = find(open, rank)?;
    match &mut open.body {
        Body::Write(writing) => {
            if block != CURRENT_BLOCK || at != CURRENT_POSITION {
                return Err(Failure::Mode("what was written cannot be written again"));
            }
            if let Some(index) = index {
                writing.select(index)?;
            }
            Ok(())
        }
        Body::Read(reading) => {
            let before = reading.current();
            match index {
                Some(index) => reading.select(index)?,
                None => reading.used().map(|_| ())?,
            }
            let stream = &mut reading.here()?.stream;
            let moved = if (block, at) == (CURRENT_BLOCK, CURRENT_POSITION) {
                // Who comes back to a task finds bytes there if it has any left.
                if index.is_some_and(|index| index != before)
                    && stream.cursor().left_in_block() == 0
                {
                    stream.next_block();
                }
                Ok(())
            } else {
                seek_in_task(stream, block, at)
            };
            if moved.is_err() {
                reading.select_back(before);
            }
            reading.place()?;
            moved
        }
    }
}

fn seek_in_task(stream: &mut TaskReader<File>, block: c_int, at: i64) -> Result<()> {
    let wrong = Argument::Position;
    let unsigned = |at: i64| u64::try_from(at).map_err(|_| wrong);
    let (now, in_block) = stream.cursor().block();
    match block {
        ABSOLUTE => stream.seek(unsigned(at)?)?,
        END if at <= 0 => {
            let target = stream.cursor().total().checked_sub(at.unsigned_abs());
            stream.seek(target.ok_or(wrong)?)?;
            // Between two blocks that is the start of the later one.
            while stream.cursor().left_in_block() == 0 && stream.next_block() {}
        }
        _ => {
            let block = if block == CURRENT_BLOCK {
                now
            } else {
                usize::try_from(block).map_err(|_| wrong)?
            };
            let at = if at == CURRENT_POSITION { in_block } else { unsigned(at)? };
            stream.seek_block(block, at)?;
        }
    }
    Ok(())
}

/// Index of the task that `rank` means; `None` for the current one.
fn find(open: &Open, rank: c_int) -> Result<Option<usize>> {
    // Programs that never learnt their rank pass -1.
    if rank == CURRENT_RANK || (rank == UNKNOWN && open.kind != Kind::Serial) {
        return Ok(None);
    }
    let found = match (&open.body, open.kind) {
        (Body::Write(writing), Kind::Serial) => {
            usize::try_from(rank).ok().filter(|task| *task < writing.tasks.len())
        }
        (Body::Write(writing), _) => {
            writing.tasks.iter().position(|task| task.global_rank == i64::from(rank))
        }
        (Body::Read(reading), Kind::Rank) => {
            let own = open.rank == Some(rank) || reading.find(rank.into()).is_some();
            own.then_some(0)
        }
        (Body::Read(reading), _) => reading.find(rank.into()),
    };
    found.map(Some).ok_or_else(|| Argument::Task.into())
}

export! {
    fn sion_fwrite(data: *const c_void, size: usize, nitems: usize, sid: c_int) -> usize, or 0; {
        // SAFETY: the caller passes as many bytes as it says.
        let data = unsafe { bytes(data.cast(), total(size, nitems)?) }?;
        table::with(sid, |open| open.writing()?.write(data))?;
        Ok(if size == 0 { 0 } else { nitems })
    }

    fn sion_fread(data: *mut c_void, size: usize, nitems: usize, sid: c_int) -> usize, or 0; {
        // SAFETY: the caller passes room for as many bytes as it says.
        let data = unsafe { values_mut(data.cast::<u8>(), total(size, nitems)?) }?;
        let n = table::with(sid, |open| open.reading()?.read(data))?;
        Ok(n.checked_div(size).unwrap_or(0))
    }

    fn sion_coll_fwrite(data: *const c_void, size: usize, nitems: usize, sid: c_int) -> usize,
        or 0;
    {
        let data = total(size, nitems).and_then(|len| {
            // SAFETY: the caller passes as many bytes as it says.
            unsafe { bytes(data.cast(), len) }
        });
        // A rank with a wrong argument still has to meet the others.
        let (met, wrong) = match data {
            Ok(data) => (data, Ok(())),
            Err(wrong) => (&[][..], Err(wrong)),
        };
        table::with(sid, |open| write_together(open, met))?;
        wrong?;
        Ok(if size == 0 { 0 } else { nitems })
    }

    fn sion_coll_fread(data: *mut c_void, size: usize, nitems: usize, sid: c_int) -> usize, or 0; {
        // SAFETY: the same promise.
        Ok(unsafe { sion_fread(data, size, nitems, sid) })
    }

    fn sion_ensure_free_space(sid: c_int, bytes: i64) -> c_int, or 0; {
        let bytes = u64::try_from(bytes).map_err(|_| Failure::Argument("a negative size"))?;
        table::with(sid, |open| open.writing()?.ensure(bytes)).map(|()| 1)
    }

    fn sion_feof(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| match &mut open.body {
            Body::Write(_) => Ok(0),
            Body::Read(reading) => reading.at_end().map(c_int::from),
        })
    }

    fn sion_bytes_avail_in_block(sid: c_int) -> i64, or -1; {
        table::with(sid, left_in_block)
    }

    fn sion_bytes_avail_in_chunk(sid: c_int) -> i64, or -1; {
        table::with(sid, left_in_block)
    }

    fn sion_flush(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| match &mut open.body {
            Body::Write(writing) => writing.flush(),
            Body::Read(_) => Ok(()),
        })
        .map(|()| 1)
    }

    fn sion_get_bytes_written(sid: c_int) -> i64, or -1; {
        table::with(sid, |open| {
            let writing = open.writing()?;
            writing.settle()?;
            Ok(signed(writing.task()?.fill().total()))
        })
    }

    fn sion_get_bytes_read(sid: c_int) -> i64, or -1; {
        table::with(sid, |open| {
            let reading = open.reading()?;
            if reading.task_count() == 0 {
                return Ok(0);
            }
            Ok(signed(reading.used()?.stream.cursor().position()))
        })
    }

    fn sion_get_position(sid: c_int) -> i64, or -1; {
        table::with(sid, |open| match &mut open.body {
            Body::Write(writing) => {
                writing.settle()?;
                Ok(signed(writing.task()?.fill().file_at()?))
            }
            Body::Read(reading) => Ok(signed(reading.used()?.stream.cursor().file_at()?)),
        })
    }

    fn sion_seek(sid: c_int, rank: c_int, blocknr: c_int, posinblk: i64) -> c_int, or 0; {
        table::with(sid, |open| seek(open, rank, blocknr, posinblk)).map(|()| 1)
    }

    fn sion_seek_fp(
        sid: c_int,
        rank: c_int,
        blocknr: c_int,
        posinblk: i64,
        fileptr: InOut<'_, *mut FILE>,
    ) -> c_int, or 0; {
        let stream = table::with(sid, |open| {
            seek(open, rank, blocknr, posinblk)?;
            if fileptr.is_null() { Ok(null_mut()) } else { open.export() }
        })?;
        fileptr.put(stream);
        Ok(1)
    }
}
