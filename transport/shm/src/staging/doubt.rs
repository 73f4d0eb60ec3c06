//! How much of an append is in its file whose writer was killed, when others may have appended too.
//!
//! A whole record counts, wherever it is; how long it is was recorded before it was written. A part
//! counts only where a killed call can have ended, and if it is all the file has grown by: nobody
//! else has appended then. A killed call ends at a page of the file, or of the memory it wrote
//! from; a full disk ends one at a sector. What others have appended may begin alike: what ends
//! elsewhere is theirs. What stays in doubt is an error, not a guess.

use core::{fmt, ops::Range};

use rustix::io::{self, Errno};

/// Bytes compared at a time.
const BLOCK: usize = 8 << 10;
/// A killed write ends at a multiple of this, or is as long.
const PAGE: u64 = 4096;
/// A write that finds the disk full ends at a multiple of this: the smallest block there is.
const SECTOR: u64 = 512;
/// Most bytes of a file that are looked through, and places at which the record may begin.
pub const GROWN_MAX: u64 = 16 << 20;
const PLACES_MAX: u32 = 4096;
/// A part that is not where the file ended is in doubt from this length on. A shorter one takes
/// somebody who has appended between the look at the file's size and the write, a kill in that
/// write, and a page that ends at its first bytes; others' lines have the same first bytes often.
const PART_MIN: usize = 64;

/// Reads at a position, as `pread(2)`.
pub type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>;

/// Bytes that were about to be appended.
pub struct Record<'a> {
    /// Reads its bytes.
    pub read: ReadAt<'a>,
    /// How long it is, bytes.
    pub len: u64,
    /// Where in a page of memory it begins, if that is known.
    pub page_at: Option<u64>,
}

/// Bytes of a `record` that are in a `file` which has `grown` by a range since it was about to be
/// appended.
///
/// # Errors
///
/// `EIO`: it cannot be told. Those of reading.
pub fn appended(file: ReadAt<'_>, mut record: Record<'_>, grown: Range<u64>) -> io::Result<u64> {
    let Range { start: before, end: size } = grown;
    let grown = size.saturating_sub(before);
    if grown == 0 || record.len == 0 {
        return Ok(0);
    }
    if grown > GROWN_MAX {
        return Err(Errno::IO);
    }
    let mut head = [0; PART_MIN];
    let found = (record.read)(0, &mut head)?;
    let head = head.get(..found.min(usize::try_from(record.len).unwrap_or(found)));
    let head = head.filter(|head| !head.is_empty()).ok_or(Errno::IO)?;
    let (mut block, mut at) = ([0; BLOCK], before);
    let (mut place_count, mut is_in_doubt) = (0, false);
    while at < size {
        let found = file(at, &mut block)?;
        let found = block.get(..found).filter(|found| !found.is_empty()).ok_or(Errno::IO)?;
        for (place, rest) in (at..size).zip((0..found.len()).filter_map(|skip| found.get(skip..))) {
            let is_first = place == before;
            let pairs = rest.iter().zip(head);
            if rest.first() != head.first() || !is_first && pairs.clone().any(|(a, b)| a != b) {
                continue;
            }
            place_count += 1;
            let same = record.same(file, place, record.len.min(size - place))?;
            if same == record.len {
                return Ok(same);
            }
            if is_first && same == grown && record.may_end(place, same, PAGE) {
                return Ok(same); // All there is: nobody else has appended.
            }
            is_in_doubt |= match is_first {
                true => same == grown || record.may_have_ended(place, same),
                false => same >= PART_MIN as u64 && record.may_have_ended(place, same),
            };
            let may_follow = size - place >= record.len;
            if place_count > PLACES_MAX || is_in_doubt && !may_follow {
                return Err(Errno::IO);
            }
        }
        at += found.len() as u64;
    }
    if is_in_doubt { Err(Errno::IO) } else { Ok(0) }
}

/// Bytes of a `record` that one call has appended which began at the start of what the `file` has
/// `grown` by or behind it, and ended at its end.
///
/// # Errors
///
/// `EIO`: others have appended before, and it cannot be told. Those of reading.
pub fn ended(file: ReadAt<'_>, mut record: Record<'_>, grown: Range<u64>) -> io::Result<u64> {
    let Range { start: before, end } = grown;
    let (grown, len) = (end.saturating_sub(before), record.len);
    if grown <= len && record.same(file, before, grown)? == grown {
        return Ok(grown);
    }
    if grown >= len && record.same(file, end - len, len)? == len {
        return Ok(len);
    }
    if grown > GROWN_MAX {
        return Err(Errno::IO);
    }
    // What a killed call has left begins at one place, or it is in doubt.
    let mut only = None;
    for place in before.max(end.saturating_sub(len))..end {
        if record.may_end(place, end - place, PAGE)
            && record.same(file, place, end - place)? == end - place
            && only.replace(end - place).is_some()
        {
            return Err(Errno::IO);
        }
    }
    only.ok_or(Errno::IO)
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Record<'_> {
    /// How many bytes of `file` from `place` on are those that it begins with, at most `len`.
    fn same(&mut self, file: ReadAt<'_>, place: u64, len: u64) -> io::Result<u64> {
        let (mut found, mut wanted) = ([0; 64], [0; 64]);
        let mut same = 0;
        while same < len {
            let read = file(place + same, &mut found)?.min((self.read)(same, &mut wanted)?);
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

    /// True if a call may have been ended that wrote the first `len` bytes to `place`, in a file of
    /// these blocks.
    fn may_end(&self, place: u64, len: u64, block: u64) -> bool {
        let is_at = |start: u64, block| (start + len) % block == 0;
        is_at(place, block) || self.page_at.is_some_and(|start| is_at(start, PAGE))
    }

    /// True if a call may have been ended that wrote some of the first `len` bytes to `place`: what
    /// follows may be the same by chance.
    fn may_have_ended(&self, place: u64, len: u64) -> bool {
        let has_end = |start: u64, block| start / block != (start + len) / block;
        let Some(start) = self.page_at else { return len > 0 };
        len > 0 && (has_end(place, SECTOR) || has_end(start, PAGE))
    }
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

    /// A record that begins a page of memory.
    fn of<'a>(record: &[u8], read: ReadAt<'a>) -> Record<'a> {
        Record { read, len: record.len() as u64, page_at: Some(0) }
    }

    /// Counts the bytes of `record` in a file that had `before` bytes and has those of `since` too.
    fn found(before: u64, since: &[u8], record: &[u8]) -> io::Result<u64> {
        let range = before..before + since.len() as u64;
        appended(&mut source(since, before), of(record, &mut source(record, 0)), range)
    }

    /// The same, of a call that is known to have ended with `since`.
    fn found_at_end(before: u64, since: &[u8], record: &[u8]) -> io::Result<u64> {
        let range = before..before + since.len() as u64;
        ended(&mut source(since, before), of(record, &mut source(record, 0)), range)
    }

    fn record() -> Vec<u8> {
        (0..10_000).map(|i: u32| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and much to compare")]
    fn record_that_begins_as_somebody_elses_is_in_doubt_where_it_may_have_ended() {
        assert_eq!(found(10, b"step 1 of A\n", b"step 1 of B\n"), Ok(0));
        // The disk may have ended at the tenth byte.
        assert_eq!(found(502, b"step 1 of A\n", b"step 1 of B\n"), Err(Errno::IO));
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
        assert_eq!(found(100, &record[..8192], &record), Ok(8192));
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
            let parts = Record { read: &mut parts, len: 10_000, page_at: Some(0) };
            assert_eq!(appended(&mut file, parts, sizes), Ok(10_000), "{wrap}");
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
        // The memory of what is written has pages, too.
        let with_others = [&record[..4096], &b"others"[..]].concat();
        assert_eq!(found(100, &with_others, &record), Err(Errno::IO));
        assert_eq!(found(0, &[7; (16 << 20) + 1], &record), Err(Errno::IO));
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
