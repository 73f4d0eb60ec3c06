//! How much of an append is in its file whose writer was killed, when others may have appended too.
//!
//! A whole record counts, wherever it is, and a part that is all the file has grown by: nobody else
//! has appended then. What others have appended may begin alike, and a call that is killed stops at
//! a page: what stays in doubt is an error, not a guess.

use rustix::io::{self, Errno};

/// Bytes compared at a time.
const BLOCK: usize = 8 << 10;
/// A killed write ends at a multiple of this, or is as long.
const PAGE: u64 = 4096;
/// Most bytes that are looked through, and places at which the record may begin.
const GROWN_MAX: u64 = 1 << 20;
const PLACES_MAX: u32 = 4096;

/// Reads at a position, as `pread(2)`.
pub(crate) type Source<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>;

/// Bytes of a `record` of `len` bytes that are in a `file` which has grown from `before` to `size`
/// since it was about to be appended.
///
/// # Errors
///
/// `EIO`: it cannot be told. Those of reading.
pub(crate) fn appended(
    file: Source<'_>,
    record: Source<'_>,
    len: u64,
    (before, size): (u64, u64),
) -> io::Result<u64> {
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
            if place == before && same == grown {
                return Ok(same); // All there is: nobody else has appended.
            }
            // The daemon may have known less of the record than there is by now.
            is_in_doubt |= place == before && same > 0;
            is_in_doubt |= may_have_ended(place, same) || place_count > PLACES_MAX;
        }
        at += found.len() as u64;
    }
    if is_in_doubt { Err(Errno::IO) } else { Ok(0) }
}

/// How many bytes from `place` on are those that the record begins with, at most `len`.
fn same(file: Source<'_>, record: Source<'_>, place: u64, len: u64) -> io::Result<u64> {
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

/// Whether a killed write may have left some of the `len` bytes at `from`.
const fn may_have_ended(from: u64, len: u64) -> bool {
    len > 0 && (len >= PAGE || from / PAGE != (from + len) / PAGE)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn read(bytes: &[u8], skip: u64, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(at - skip).expect("small");
        let part = &bytes[start.min(bytes.len())..];
        let len = part.len().min(into.len());
        into[..len].copy_from_slice(&part[..len]);
        Ok(len)
    }

    /// What is found of `record` in a file that had `before` bytes and has those of `since` too.
    fn found(before: u64, since: &[u8], record: &[u8]) -> io::Result<u64> {
        appended(
            &mut |at, into| read(since, before, at, into),
            &mut |at, into| read(record, 0, at, into),
            record.len() as u64,
            (before, before + since.len() as u64),
        )
    }

    fn record() -> Vec<u8> {
        (0..10_000).map(|i: u32| (i % 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn record_that_begins_as_somebody_elses_is_in_doubt() {
        assert_eq!(found(10, b"step 1 of A\n", b"step 1 of B\n"), Err(Errno::IO));
        assert_eq!(found(10, b"A: step 1\n", b"B: step 1\n"), Ok(0));
    }

    #[test]
    fn record_behind_somebody_elses_is_not_written_twice() {
        assert_eq!(found(10, b"step 1 of A\nstep 1 of B\n", b"step 1 of B\n"), Ok(12));
        assert_eq!(found(10, b"sstep 1 of B\nxxxx", b"step 1 of B\n"), Ok(12));
        assert_eq!(found(0, b"", b"step 1 of B\n"), Ok(0));
    }

    #[test]
    fn killed_write_alone_is_continued() {
        let record = record();
        assert_eq!(found(96, &record[..4000], &record), Ok(4000));
        assert_eq!(found(100, &record[..4096], &record), Ok(4096));
        assert_eq!(found(100, &record[..3000], &record), Ok(3000));
        assert_eq!(found(100, &record, &record), Ok(10_000));
    }

    /// As a log gives it whose ring wraps within the record.
    #[test]
    fn record_that_is_read_in_parts_is_compared_whole() {
        let record = record();
        for wrap in [1, 70, 5000, 9999] {
            let mut file = |at: u64, into: &mut [u8]| read(&record, 100, at, into);
            let mut parts = |at: u64, into: &mut [u8]| {
                let end = if at < wrap { wrap } else { 10_000 };
                let room = usize::try_from(end - at).expect("small").min(into.len());
                read(&record, 0, at, &mut into[..room])
            };
            let sizes = (100, 10_100);
            assert_eq!(appended(&mut file, &mut parts, 10_000, sizes), Ok(10_000), "{wrap}");
        }
    }

    #[test]
    fn killed_write_that_others_follow_is_in_doubt() {
        let record = record();
        let with_others = [&record[..4000], &b"others"[..]].concat();
        assert_eq!(found(96, &with_others, &record), Err(Errno::IO));
        let behind_others = [&b"others"[..], &record[..3994]].concat();
        assert_eq!(found(96, &behind_others, &record), Err(Errno::IO));
        assert_eq!(found(0, &[7; (1 << 20) + 1], &record), Err(Errno::IO));
    }
}
