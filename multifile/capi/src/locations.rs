//! Where everything is: tables of the whole multifile and positions of its tasks.
//!
//! Arrays belong to the handle; what the program was given stays valid until the handle is closed
//! or the same question is asked again.

use std::{ffi::c_int, ptr::null_mut};

use multifile::{Argument, Reader};

use crate::{
    arrays::{Arrays, count, signed},
    error::{Failure, Result},
    export::export,
    handle::{Body, Open},
    mode::Kind,
    pointer::InOut,
    table,
    writing::Writing,
};

/// The scalars beside the arrays.
#[derive(Default)]
struct Whole {
    task_count: c_int,
    block_count: c_int,
    skip: i64,
    table_at: i64,
}

fn whole(open: &mut Open) -> Result<Whole> {
    match &mut open.body {
        Body::Write(writing) => written(writing, &mut open.arrays),
        Body::Read(reading) => {
            let set = reading.set();
            match reading.reader() {
                Some(reader) => read(reader, &mut open.arrays),
                // The tables are not kept on ranks that read their own tasks only.
                None => Ok(Whole { task_count: count(set.task_count), ..Whole::default() }),
            }
        }
    }
}

fn read<F: multifile::storage::File>(reader: &Reader<F>, arrays: &mut Arrays) -> Result<Whole> {
    let tasks = reader.task_count();
    // Not what the header says, which may be anything.
    let lens = (0..tasks).map(|index| reader.block_lens(index));
    let blocks = lens.flatten().map(<[u64]>::len).max().unwrap_or(0);
    // Slots of blocks that a task does not have.
    let unused = if reader.mapping().is_some() { -1 } else { 0 };
    let slots = tasks.checked_mul(blocks).ok_or(multifile::Error::TooLarge)?;
    arrays.block_lens = Vec::new();
    // A sparse file may claim more than there is memory.
    arrays.block_lens.try_reserve_exact(slots).map_err(|_| multifile::Error::TooLarge)?;
    arrays.block_lens.resize(slots, unused);
    (arrays.chunks, arrays.ranks, arrays.block_counts) = (vec![], vec![], vec![]);
    for index in 0..tasks {
        let task = reader.task(index)?;
        let lens = reader.block_lens(index)?;
        arrays.chunks.push(signed(task.chunk_len));
        arrays.ranks.push(task.global_rank);
        arrays.block_counts.push(count(lens.len()).into());
        for (block, len) in lens.iter().enumerate() {
            if let Some(slot) = arrays.block_lens.get_mut(block * tasks + index) {
                *slot = signed(*len);
            }
        }
    }
    let first = if tasks > 0 { reader.task(0)?.file } else { 0 };
    // A member opened alone is the only file there is.
    let index = usize::try_from(first).unwrap_or(0).min(reader.file_count().saturating_sub(1));
    let layout = reader.layout(index).ok_or(Argument::Task)?;
    let table = reader.table(index).ok_or(Argument::Task)?;
    Ok(Whole {
        task_count: count(tasks),
        block_count: count(blocks),
        skip: signed(layout.skip()),
        table_at: signed(table.at),
    })
}

/// Returns the use of a writing handle's tasks so far; the block table has no place yet.
fn written(writing: &mut Writing, arrays: &mut Arrays) -> Result<Whole> {
    writing.settle()?;
    let tasks = writing.tasks.len();
    let mut lens = Vec::with_capacity(tasks);
    let mut skip = 0;
    (arrays.chunks, arrays.ranks, arrays.block_counts) = (vec![], vec![], vec![]);
    for index in 0..tasks {
        arrays.ranks.push(writing.tasks.get(index).map_or(-1, |task| task.global_rank));
        let task = writing.task_at(index)?;
        let fill = task.fill();
        skip = signed(fill.place().skip);
        arrays.chunks.push(signed(fill.place().chunk_len));
        arrays.block_counts.push(count(fill.block_count()).into());
        lens.push(fill.block_lens().map(signed).collect::<Vec<_>>());
    }
    let blocks = lens.iter().map(Vec::len).max().unwrap_or(0);
    let slot = |block: usize| lens.iter().map(move |lens| lens.get(block).copied().unwrap_or(0));
    arrays.block_lens = (0..blocks).flat_map(slot).collect();
    Ok(Whole { task_count: count(tasks), block_count: count(blocks), skip, table_at: 0 })
}

/// Block, position in it, and the number of blocks of the current task.
fn current(open: &mut Open) -> Result<(c_int, i64, c_int)> {
    let (block, at, lens): (_, _, Vec<i64>) = match &mut open.body {
        Body::Write(writing) => {
            writing.settle()?;
            let task = writing.task()?;
            let (block, at) = task.fill().block();
            (block, at, task.fill().block_lens().map(signed).collect())
        }
        Body::Read(reading) => {
            let cursor = reading.used()?.stream.cursor();
            let (block, at) = cursor.block();
            (block, at, cursor.block_lens().iter().copied().map(signed).collect())
        }
    };
    let blocks = count(lens.len());
    open.arrays.own_lens = lens;
    Ok((count(block), signed(at), blocks))
}

/// Positions in their files and blocks of all tasks of a handle.
fn positions(open: &mut Open) -> Result<c_int> {
    let places: Vec<(usize, u64)> = match &mut open.body {
        Body::Write(writing) => {
            writing.settle()?;
            let each = (0..writing.tasks.len()).map(|index| {
                let task = writing.task_at(index)?;
                Ok((task.fill().block().0, task.fill().file_at()?))
            });
            each.collect::<Result<_>>()?
        }
        Body::Read(reading) => {
            if reading.task_count() > 0 {
                reading.used()?;
            }
            (0..reading.task_count()).map(|index| reading.position(index)).collect::<Result<_>>()?
        }
    };
    open.arrays.positions = places.iter().map(|(_, at)| signed(*at)).collect();
    open.arrays.blocks = places.iter().map(|(block, _)| count(*block).into()).collect();
    Ok(count(places.len()))
}

/// Number of entries of the mapping, -1 when there is none; they are in the arrays.
fn mapping(open: &mut Open) -> Result<(c_int, c_int)> {
    let reading = open.reading()?;
    let files = count(reading.set().file_count);
    let Some(mapping) = reading.reader().and_then(Reader::mapping) else { return Ok((-1, files)) };
    let flat: Vec<i32> =
        mapping.iter().flat_map(|(file, local)| [count(*file), count(*local)]).collect();
    let entries = count(mapping.len());
    open.arrays.mapping = flat;
    Ok((entries, files))
}

export! {
    fn sion_get_locations(
        sid: c_int,
        ntasks: InOut<'_, c_int>,
        maxblocks: InOut<'_, c_int>,
        globalskip: InOut<'_, i64>,
        start_of_varheader: InOut<'_, i64>,
        chunksizes: InOut<'_, *mut i64>,
        globalranks: InOut<'_, *mut i64>,
        blockcount: InOut<'_, *mut i64>,
        blocksizes: InOut<'_, *mut i64>,
    ) -> c_int, or 0; {
        table::with(sid, |open| {
            let found = whole(open)?;
            let all = open.kind == Kind::Serial;
            let arrays = &mut open.arrays;
            let at = |array: &mut Vec<i64>| if all { array.as_mut_ptr() } else { null_mut() };
            ntasks.put(found.task_count);
            maxblocks.put(found.block_count);
            globalskip.put(found.skip);
            start_of_varheader.put(found.table_at);
            chunksizes.put(at(&mut arrays.chunks));
            globalranks.put(at(&mut arrays.ranks));
            blockcount.put(at(&mut arrays.block_counts));
            blocksizes.put(at(&mut arrays.block_lens));
            Ok(1)
        })
    }

    fn sion_get_current_location(
        sid: c_int,
        currentblock: InOut<'_, c_int>,
        currentpos: InOut<'_, i64>,
        maxchunks: InOut<'_, c_int>,
        chunksizes: InOut<'_, *mut i64>,
    ) -> c_int, or 0; {
        table::with(sid, |open| {
            let (block, at, blocks) = current(open)?;
            currentblock.put(block);
            currentpos.put(at);
            maxchunks.put(blocks);
            chunksizes.put(open.arrays.own_lens.as_mut_ptr());
            Ok(1)
        })
    }

    fn sion_get_current_locations(
        sid: c_int,
        ntasks: InOut<'_, c_int>,
        currentpos: InOut<'_, *mut i64>,
        currentblocknr: InOut<'_, *mut i64>,
    ) -> c_int, or 0; {
        table::with(sid, |open| {
            let tasks = positions(open)?;
            ntasks.put(tasks);
            currentpos.put(open.arrays.positions.as_mut_ptr());
            currentblocknr.put(open.arrays.blocks.as_mut_ptr());
            Ok(1)
        })
    }

    fn sion_get_mapping(
        sid: c_int,
        mapping_size: InOut<'_, c_int>,
        mapping_at: InOut<'_, *mut i32>,
        numfiles: InOut<'_, c_int>,
    ) -> c_int, or 0; {
        table::with(sid, |open| {
            let (entries, files) = mapping(open)?;
            mapping_size.put(entries);
            numfiles.put(files);
            if entries >= 0 {
                mapping_at.put(open.arrays.mapping.as_mut_ptr());
            }
            Ok(1)
        })
    }
}

/// Bytes that the arrays of a handle take.
pub(crate) fn arrays_len(arrays: &Arrays) -> Result<usize> {
    let longs = [
        &arrays.chunks,
        &arrays.ranks,
        &arrays.block_counts,
        &arrays.block_lens,
        &arrays.own_lens,
        &arrays.positions,
        &arrays.blocks,
    ];
    let longs: usize = longs.iter().map(|array| array.capacity()).sum();
    let bytes = longs.checked_mul(8).and_then(|n| n.checked_add(arrays.mapping.capacity() * 4));
    bytes.ok_or(Failure::Internal)
}
