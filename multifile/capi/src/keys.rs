//! Key-value records of the current task.

use std::ffi::{c_int, c_void};

use multifile::{Argument, keyval::Record};

use crate::{
    arrays::signed,
    data::total,
    error::{Failure, Result},
    export::export,
    handle::Open,
    mode::Keyval,
    pointer::{InOut, bytes, values_mut},
    table,
};

const CURRENT_RECORD: c_int = -102;
const CURRENT_POSITION: i64 = -103;
const ABSOLUTE: c_int = -104;

/// `sion_key_stat_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct KeyStat {
    key: u64,
    record_count: i64,
    len: i64,
}

fn write(open: &mut Open, key: u64, data: &[u8]) -> Result<()> {
    if open.mode.keyval != Keyval::Inline {
        return Err(Failure::Mode("the file was opened without keyval=inline"));
    }
    open.writing()?.write_record(key, data)
}

/// Reads whole items of `size` bytes of one record and returns how many. What is left of it that is
/// no item stays, and is passed over when it is next: 0 is the end.
fn read(open: &mut Open, key: u64, size: usize, buf: &mut [u8]) -> Result<usize> {
    let records = open.reading()?.records()?.records.as_mut().ok_or(Failure::Internal)?;
    let mut n = records.read(key, buf)?;
    while n > 0 && n < size {
        n = records.read(key, buf)?;
    }
    let (Some(items), Some(rest)) = (n.checked_div(size), n.checked_rem(size)) else {
        return Ok(0);
    };
    if rest > 0 {
        let (entry, at) = records.position(key).ok_or(Failure::Internal)?;
        let rest = u64::try_from(rest).map_err(|_| Failure::Internal)?;
        records.seek(key, entry, at - rest)?;
    }
    Ok(items)
}

/// Moves the read position of `key`. A position in the current record is one in the next record
/// when the current one was read to its end.
fn seek(open: &mut Open, key: u64, entry: c_int, at: i64) -> Result<()> {
    let records = open.reading()?.records()?.records.as_mut().ok_or(Failure::Internal)?;
    let (current, in_record) = records.position(key).ok_or(Argument::Record)?;
    let entry = match (entry, at) {
        (CURRENT_RECORD, CURRENT_POSITION) => return Ok(()),
        (CURRENT_RECORD, _) => Some(records.unfinished(key).ok_or(Argument::Record)?),
        (ABSOLUTE, _) => None,
        (entry, _) => Some(usize::try_from(entry).map_err(|_| Argument::Record)?),
    };
    let at = match at {
        CURRENT_POSITION if entry == Some(current) => in_record,
        CURRENT_POSITION if entry.is_some() => 0,
        at => u64::try_from(at).map_err(|_| Argument::Position)?,
    };
    match entry {
        Some(entry) => records.seek(key, entry, at)?,
        None => records.seek_absolute(key, at)?,
    }
    Ok(())
}

/// Makes the next record the current one of its key; `None` behind the last.
fn next_record(open: &mut Open) -> Result<Option<Record>> {
    let used = open.reading()?.records()?;
    let records = used.records.as_mut().ok_or(Failure::Internal)?;
    if used.next_record == records.records().len() {
        return Ok(None);
    }
    let record = records.select(used.next_record)?;
    used.next_record += 1;
    Ok(Some(record))
}

fn next_key(open: &mut Open) -> Result<Option<u64>> {
    let used = open.reading()?.records()?;
    let records = used.records.as_ref().ok_or(Failure::Internal)?;
    let key = records.keys().get(used.next_key).copied();
    used.next_key += usize::from(key.is_some());
    Ok(key)
}

export! {
    fn sion_fwrite_key(
        data: *const c_void,
        key: u64,
        size: usize,
        nitems: usize,
        sid: c_int,
    ) -> usize, or usize::MAX; {
        // SAFETY: the caller passes as many bytes as it says.
        let data = unsafe { bytes(data.cast(), total(size, nitems)?) }?;
        table::with(sid, |open| write(open, key, data)).map(|()| nitems)
    }

    fn sion_fread_key(
        data: *mut c_void,
        key: u64,
        size: usize,
        nitems: usize,
        sid: c_int,
    ) -> usize, or usize::MAX; {
        // SAFETY: the caller passes room for as many bytes as it says.
        let data = unsafe { values_mut(data.cast::<u8>(), total(size, nitems)?) }?;
        table::with(sid, |open| read(open, key, size, data))
    }

    fn sion_seek_key(sid: c_int, key: u64, entrynum: c_int, posinentry: i64) -> c_int, or 0; {
        table::with(sid, |open| seek(open, key, entrynum, posinentry)).map(|()| 1)
    }

    fn sion_key_full_scan(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| open.reading()?.records().map(|_| 1))
    }

    fn sion_key_get_stat(sid: c_int, key: u64, stat: InOut<'_, KeyStat>) -> c_int, or 0; {
        let found = table::with(sid, |open| {
            let records = open.reading()?.records()?.records.as_ref().ok_or(Failure::Internal)?;
            Ok(records.stat(key).ok_or(Argument::Record)?)
        })?;
        let record_count = i64::try_from(found.record_count).unwrap_or(i64::MAX);
        stat.put(KeyStat { key, record_count, len: signed(found.len) });
        Ok(1)
    }

    fn sion_fread_key_iterator_reset(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| {
            open.reading()?.records()?.next_record = 0;
            Ok(1)
        })
    }

    fn sion_fread_key_iterator_next(
        sid: c_int,
        key: InOut<'_, u64>,
        size: InOut<'_, usize>,
    ) -> c_int, or 0; {
        let Some(record) = table::with(sid, next_record)? else { return Ok(0) };
        key.put(record.key);
        size.put(usize::try_from(record.len).unwrap_or(usize::MAX));
        Ok(1)
    }

    fn sion_key_list_iterator_reset(sid: c_int) -> c_int, or 0; {
        table::with(sid, |open| {
            open.reading()?.records()?.next_key = 0;
            Ok(1)
        })
    }

    fn sion_key_list_iterator_next(sid: c_int, key: InOut<'_, u64>) -> c_int, or 0; {
        let Some(found) = table::with(sid, next_key)? else { return Ok(0) };
        key.put(found);
        Ok(1)
    }
}
