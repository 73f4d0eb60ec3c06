//! Bytes that go to the end of a file: accepted so that the daemon writes what one call appends by
//! one call, and taken over from a daemon that has died so that nothing is there twice.

use rustix::{
    fd::{AsRawFd, BorrowedFd},
    fs::{self, Mode, OFlags},
    io::{self, Errno},
};
use shm::{
    copy::{copy_in, copy_out},
    staging::{APPEND, Run},
};
use wire::PIECE_LEN_MAX;

use crate::{
    connection::Lost,
    doubt,
    file::{Link, Log, OpenFile},
    paths::link_of,
    staging::{grow_to, make_room, place, tell},
};

/// Most bytes that a daemon writes to a file of its node by one call.
const WHOLE_MAX: u64 = 256 << 10;

/// Most bytes appended by one call that stay together.
pub(crate) const fn whole_max(file: &OpenFile) -> u64 {
    if file.is_remote() { PIECE_LEN_MAX as u64 } else { WHOLE_MAX }
}

/// Accepts all of `data`, to be appended, at once. Returns whether it did: else it has more than
/// `whole_max` bytes, or there is no log that holds it.
pub(crate) fn accept(
    link: Link,
    log: &mut Log,
    data: &[&[u8]],
    whole_max: u64,
) -> Result<bool, Lost> {
    let len = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
    if len > whole_max {
        return Ok(false);
    }
    if len > log.producer.capacity() {
        grow_to(link, log, len.next_power_of_two())?;
        if len > log.producer.capacity() {
            return Ok(false);
        }
    }
    let range = loop {
        if log.producer.waiting() >= log.limit {
            log.producer.refresh(link.shared);
        }
        if log.producer.waiting() < log.limit {
            if let Some(range) = log.producer.reserve_whole(link.shared, len, whole_max) {
                break range;
            }
        }
        make_room(link, log)?;
    };
    let mut position = range.start;
    for piece in data {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            let Some(target) = place(link, log, position, rest.len() as u64) else {
                return Ok(false);
            };
            let copied = copy_in(target, rest);
            position += copied as u64;
            rest = rest.get(copied..).unwrap_or_default();
        }
    }
    log.producer.publish(link.shared, APPEND, len);
    log.note(0, u64::MAX);
    tell(link, log);
    Ok(true)
}

/// The first of two runs of a ring of `len` bytes, with the second one if that goes on at the
/// ring's start: the daemon may have appended them by one call.
pub(crate) const fn joined(runs: &[Run; 2], len: u64) -> Run {
    let [mut run, next] = *runs;
    let wraps = (run.start + run.len) & (len - 1) == 0;
    if run.file_at == APPEND && next.file_at == APPEND && wraps {
        run.len += next.len;
    }
    run
}

/// Bytes of an append that the daemon had brought into the file when it died.
///
/// # Errors
///
/// `EIO`: others have appended too, and it cannot be told. Those of reading.
pub(crate) fn done(link: Link, log: &Log, run: Run, fd: BorrowedFd<'_>) -> io::Result<u64> {
    if run.file_at != APPEND {
        return Ok(0);
    }
    let last = link.shared.last_append().filter(|(position, _)| *position == run.start);
    let Some((_, before)) = last else { return Ok(0) };
    let size = u64::try_from(fs::fstat(fd)?.st_size).unwrap_or(0);
    let mut name = [0; 32];
    let reader = link_of(fd.as_raw_fd(), &mut name)
        .and_then(|name| fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok());
    let Some(reader) = reader else {
        // It may be written, not read. Then only its length tells.
        return match size.checked_sub(before) {
            Some(0) => Ok(0),
            Some(grown) if grown == run.len => Ok(run.len),
            _ => Err(Errno::IO),
        };
    };
    let mut file = |at, into: &mut [u8]| io::retry_on_intr(|| io::pread(&reader, &mut *into, at));
    let mut record = |at: u64, into: &mut [u8]| {
        let staged = place(link, log, run.start + at, (run.len - at).min(into.len() as u64));
        Ok(copy_out(into, staged.unwrap_or_default()))
    };
    doubt::appended(&mut file, &mut record, run.len, (before, size))
}
