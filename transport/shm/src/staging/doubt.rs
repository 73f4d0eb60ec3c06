//! How much of an append is in its file whose writer was killed, when others may have appended too.
//!
//! A whole record counts, wherever it is. A part counts only where a killed call can have ended, at
//! a page, and if it is all the file has grown by: nobody else has appended then. What others have
//! appended may begin alike: what stays in doubt is an error, not a guess.

use core::ops::Range;

use rustix::io::{self, Errno};

/// Bytes compared at a time.
const BLOCK: usize = 8 << 10;
/// A killed write ends at a multiple of this, or is as long.
const PAGE: u64 = 4096;
/// Most bytes of a file that are looked through, and places at which the record may begin.
pub const GROWN_MAX: u64 = 1 << 20;
const PLACES_MAX: u32 = 4096;

/// Reads at a position, as `pread(2)`.
pub type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>;

/// Bytes of a `record` of `len` bytes that are in a `file` which has `grown` by a range since it
/// was about to be appended.
///
/// # Errors
///
/// `EIO`: it cannot be told. Those of reading.
pub fn appended(
    file: ReadAt<'_>,
    record: ReadAt<'_>,
    len: u64,
    grown: Range<u64>,
) -> io::Result<u64> {
    let Range { start: before, end: size } = grown;
    let grown = size.saturating_sub(before);
    if grown == 0 || len == 0 {
        return Ok(0);
    }
    if grown > GROWN_MAX {
        return Err(Errno::IO);
    }
    let mut head = [0; 1];
    record(0, &mut head)?;
    let (mut block, mut at) = ([0; BLOCK], before);
    let (mut place_count, mut is_in_doubt) = (0, false);
    while at < size {
        let found = file(at, &mut block)?;
        let found = block.get(..found).filter(|found| !found.is_empty()).ok_or(Errno::IO)?;
        let places = (at..size).zip(found).filter(|(_, byte)| **byte == head[0]);
        for (place, _) in places {
            place_count += 1;
            let same = same(file, record, place, len.min(size - place))?;
            if same == len {
                return Ok(len);
            }
            if place == before && same == grown && size % PAGE == 0 {
                return Ok(same); // All there is: nobody else has appended.
            }
            // The writer may have known less of the record than there is by now.
            is_in_doubt |= place == before && same > 0;
            is_in_doubt |= may_have_ended(place, same) || place_count > PLACES_MAX;
        }
        at += found.len() as u64;
    }
    if is_in_doubt { Err(Errno::IO) } else { Ok(0) }
}

/// Bytes of a `record` of `len` bytes that one call has appended which began at the start of what
/// the `file` has `grown` by or behind it, and ended at its end.
///
/// # Errors
///
/// `EIO`: others have appended before, and it cannot be told. Those of reading.
pub fn ended(file: ReadAt<'_>, record: ReadAt<'_>, len: u64, grown: Range<u64>) -> io::Result<u64> {
    let Range { start: before, end } = grown;
    let grown = end.saturating_sub(before);
    if grown <= len && same(file, record, before, grown)? == grown {
        return Ok(grown);
    }
    if grown >= len && same(file, record, end - len, len)? == len {
        return Ok(len);
    }
    if grown > GROWN_MAX || end % PAGE != 0 {
        return Err(Errno::IO);
    }
    // A call that is killed ends at a page. What it has left begins at one place, or it is in
    // doubt.
    let mut only = None;
    for place in before.max(end.saturating_sub(len))..end {
        if same(file, record, place, end - place)? == end - place
            && only.replace(end - place).is_some()
        {
            return Err(Errno::IO);
        }
    }
    only.ok_or(Errno::IO)
}

/// How many bytes from `place` on are those that the record begins with, at most `len`.
fn same(file: ReadAt<'_>, record: ReadAt<'_>, place: u64, len: u64) -> io::Result<u64> {
    let (mut found, mut wanted) = ([0; 64], [0; 64]);
    let mut same = 0;
    while same < len {
        let read = file(place + same, &mut found)?.min(record(same, &mut wanted)?);
        // A log's ring wraps anywhere: less may be read than there is.
        let part = usize::try_from(len - same).unwrap_or(usize::MAX).min(read);
        let pairs = found.iter().zip(&wanted).take(part);
        let equal = pairs.take_while(|(a, b)| a == b).count();
        same += equal as u64;
        if equal < part || part == 0 {
            break;
        }
    }
    Ok(same)
}

/// True if a killed write may have left some of the `len` bytes at `from`.
const fn may_have_ended(from: u64, len: u64) -> bool {
    len > 0 && (len >= PAGE || from / PAGE != (from + len) / PAGE)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Reads of `bytes`, which stand behind `skip` others.
    fn source(bytes: &[u8], skip: u64) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> {
        move |at, into| {
            let start = usize::try_from(at - skip).expect("small");
            let part = &bytes[start.min(bytes.len())..];
            let len = part.len().min(into.len());
            into[..len].copy_from_slice(&part[..len]);
            Ok(len)
        }
    }

    /// Counts the bytes of `record` in a file that had `before` bytes and has those of `since` too.
    fn found(before: u64, since: &[u8], record: &[u8]) -> io::Result<u64> {
        let range = before..before + since.len() as u64;
        appended(&mut source(since, before), &mut source(record, 0), record.len() as u64, range)
    }

    /// The same, of a call that is known to have ended with `since`.
    fn found_at_end(before: u64, since: &[u8], record: &[u8]) -> io::Result<u64> {
        let range = before..before + since.len() as u64;
        ended(&mut source(since, before), &mut source(record, 0), record.len() as u64, range)
    }

    fn record() -> Vec<u8> {
        (0..10_000).map(|i: u32| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn record_that_begins_as_somebody_elses_is_in_doubt() {
        assert_eq!(found(10, b"step 1 of A\n", b"step 1 of B\n"), Err(Errno::IO));
        assert_eq!(found(10, b"step", b"step 1 of B\n"), Err(Errno::IO));
        // So the length is on record: here the rest was staged after the write had begun.
        assert_eq!(found(10, b"step", b"step"), Ok(4));
        assert_eq!(found(10, b"A: step 1\n", b"B: step 1\n"), Ok(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn record_behind_somebody_elses_is_not_written_twice() {
        assert_eq!(found(10, b"step 1 of A\nstep 1 of B\n", b"step 1 of B\n"), Ok(12));
        assert_eq!(found(10, b"sstep 1 of B\nxxxx", b"step 1 of B\n"), Ok(12));
        assert_eq!(found(0, b"", b"step 1 of B\n"), Ok(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn killed_write_alone_is_continued_from_a_page() {
        let record = record();
        assert_eq!(found(96, &record[..4000], &record), Ok(4000));
        assert_eq!(found(4096, &record[..8192], &record), Ok(8192));
        assert_eq!(found(100, &record[..3000], &record), Err(Errno::IO));
        assert_eq!(found(100, &record, &record), Ok(10_000));
    }

    /// As a log gives it whose ring wraps within the record.
    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn record_that_is_read_in_parts_is_compared_whole() {
        let record = record();
        for wrap in [1, 70, 5000, 9999] {
            let mut whole = source(&record, 0);
            let mut parts = |at: u64, into: &mut [u8]| {
                let end = if at < wrap { wrap } else { 10_000 };
                let room = usize::try_from(end - at).expect("small").min(into.len());
                whole(at, &mut into[..room])
            };
            let (mut file, sizes) = (source(&record, 100), 100..10_100);
            assert_eq!(appended(&mut file, &mut parts, 10_000, sizes), Ok(10_000), "{wrap}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn killed_write_that_others_follow_is_in_doubt() {
        let record = record();
        let with_others = [&record[..4000], &b"others"[..]].concat();
        assert_eq!(found(96, &with_others, &record), Err(Errno::IO));
        let behind_others = [&b"others"[..], &record[..3994]].concat();
        assert_eq!(found(96, &behind_others, &record), Err(Errno::IO));
        assert_eq!(found(0, &[7; (1 << 20) + 1], &record), Err(Errno::IO));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn call_whose_end_is_known_is_counted_behind_others() {
        let record = record();
        assert_eq!(found_at_end(96, &record[..4000], &record), Ok(4000));
        assert_eq!(found_at_end(96, &record, &record), Ok(10_000));
        let whole = [&b"others"[..], &record].concat();
        assert_eq!(found_at_end(96, &whole, &record), Ok(10_000));
        let short = [&b"others"[..], &record[..3994]].concat();
        assert_eq!(found_at_end(96, &short, &record), Ok(3994));
        assert_eq!(found_at_end(95, &short, &record), Err(Errno::IO));
        // Of bytes that are all the same nobody knows whose the first are.
        let zeros = [&b"others"[..], &[0; 4090]].concat();
        assert_eq!(found_at_end(0, &zeros, &[0; 8192]), Err(Errno::IO));
        assert_eq!(found_at_end(0, b"others", &record), Err(Errno::IO));
    }
}
