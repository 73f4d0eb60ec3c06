//! Bytes that go to the end of a file: accepted so that the daemon writes what one call appends by
//! one call, and taken over from a daemon that has died so that nothing is there twice.

use core::sync::atomic::AtomicU8;

use rustix::{
    fd::{AsRawFd, BorrowedFd},
    fs::{self, Mode, OFlags, SeekFrom},
    io::{self, Errno},
};
use shm::{
    copy::{self, copy_out},
    staging::{
        APPEND, APPEND_MAX, Run,
        doubt::{self, Record},
    },
};
use wire::TRANSFER_LEN_MAX;

use super::{Failure, grow_to, make_room, place, tell};
use crate::{file::OpenFile, log::Log, proc::link_of, slot::Link};

/// Most bytes appended by one call that stay together.
pub(crate) const fn whole_max(file: &OpenFile) -> u64 {
    if file.state.is_remote() { TRANSFER_LEN_MAX as u64 } else { APPEND_MAX }
}

/// Accepts all of `data`, to be appended, at once. Returns whether it did: else it has more than
/// `whole_max` bytes, or there is no log that holds it.
pub(crate) fn accept(
    link: Link,
    log: &mut Log,
    fd: BorrowedFd<'_>,
    data: &[&[u8]],
    whole_max: u64,
) -> Result<bool, Failure> {
    let len = data.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
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
        if let Some(range) = log.producer.reserve_whole(link.shared, len, whole_max) {
            break range;
        }
        make_room(link, log, fd)?;
    };
    let mut position = range.start;
    for buffer in data {
        let mut rest: &[u8] = buffer;
        while !rest.is_empty() {
            let Some(target) = place(link, log, position, rest.len() as u64) else {
                return Ok(false);
            };
            let copied = log.copy(target, rest);
            position += copied as u64;
            invariant!(copied > 0, "reserved space takes bytes", else return Ok(false));
            rest = invariant!(some rest.get(copied..), "no more is copied than there is",
                else return Ok(false));
        }
    }
    debug_assert_eq!(position, range.start + len, "all of an append is copied");
    log.producer.publish(link.shared, APPEND, len);
    log.note(0, u64::MAX);
    tell(link, log);
    Ok(true)
}

/// Appends staged bytes from `position` on by one call, and returns how many were written. Until it
/// is done the record holds the file's size before, and afterwards where the append began.
pub(crate) fn write(
    link: Link,
    position: u64,
    parts: [&[AtomicU8]; 2],
    fd: BorrowedFd<'_>,
) -> io::Result<u64> {
    let size = u64::try_from(fs::fstat(fd)?.st_size).unwrap_or(0);
    // An append moves it to its end; a file that is short of a byte is not appended to by nothing.
    fs::seek(fd, SeekFrom::Start(0))?;
    let len = parts.iter().map(|part| part.len() as u64).sum();
    link.shared.write_begins(position, size, len);
    let written = copy::write(fd, parts)? as u64;
    let end = fs::seek(fd, SeekFrom::Current(0))?;
    link.shared.write_begins(position, end.saturating_sub(written), written);
    Ok(written)
}

/// The first of two runs of a ring of `len` bytes, with the second one if that only goes on at the
/// ring's start: one call writes both.
pub(crate) fn joined(runs: &[Run; 2], len: u64) -> Run {
    debug_assert!(len.is_power_of_two(), "positions wrap by a mask");
    let [mut run, next] = *runs;
    let wraps = (run.start + run.len) & (len - 1) == 0;
    let continues = if run.file_at == APPEND {
        next.file_at == APPEND
    } else {
        run.file_at.checked_add(run.len) == Some(next.file_at)
    };
    if wraps && continues {
        run.len += next.len;
    }
    run
}

/// Bytes that the append is of which the daemon had begun when it died, if there is one.
pub(crate) fn begun(link: Link, run: Run) -> Option<u64> {
    let last = link.shared.last_write().filter(|_| run.file_at == APPEND)?;
    let (position, _, len) = last;
    (position == run.start).then_some(len.min(run.len))
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
    let last = link.shared.last_write().filter(|(position, ..)| *position == run.start);
    let Some((_, before, _)) = last else { return Ok(0) };
    let mut record = |at: u64, into: &mut [u8]| {
        debug_assert!(at <= run.len, "the record is of the run");
        let staged = place(link, log, run.start + at, (run.len - at).min(into.len() as u64));
        let staged = invariant!(some staged, "a run lies in the log", else return Err(Errno::IO));
        Ok(copy_out(into, staged))
    };
    // Logs begin at pages.
    landed(fd, before, Record { read: &mut record, len: run.len, page_at: Some(run.start) })
}

/// Bytes of a `record` that are in a file which was `before` bytes long when they
/// were about to be appended.
///
/// # Errors
///
/// `EIO`: others have appended too, and it cannot be told. Those of reading.
pub(crate) fn landed(fd: BorrowedFd<'_>, before: u64, record: Record<'_>) -> io::Result<u64> {
    let size = u64::try_from(fs::fstat(fd)?.st_size).unwrap_or(0);
    let mut name = [0; 32];
    let reader = link_of(fd.as_raw_fd(), &mut name)
        .and_then(|name| fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok());
    let Some(reader) = reader else {
        // It may be written, not read. Then only its length tells.
        return match size.checked_sub(before) {
            Some(0) => Ok(0),
            Some(grown) if grown == record.len => Ok(grown),
            _ => Err(Errno::IO),
        };
    };
    let mut file = |at, into: &mut [u8]| io::retry_on_intr(|| io::pread(&reader, &mut *into, at));
    doubt::appended(&mut file, record, before..size)
}
