//! The way of staged bytes from a log into their file, as far as their own process goes it.
//!
//! Whoever drains claims the log ([`shm::staging::Drainer`]). The write goes to the kernel's file
//! position, which nobody else needs meanwhile: it says to the daemon how far a write came whose
//! process was killed, or is stopped.

use core::time::Duration;

use rustix::{
    fd::BorrowedFd,
    fs::{self, SeekFrom},
    io::{self, Errno},
};
use shm::{
    copy,
    staging::{APPEND, CUT_OFF, Consumer, Drainer, Run},
};

use super::{
    DAEMONS_LEN, Failure, LOG_MIN, LOG_SHARE, OWN_LEN, append, flush, grow_to, largest_log,
    move_to, place, take_error,
};
use crate::{
    clock::{now, now_ns},
    log::{Drains, Log},
    recorder::Drained,
    slot::Link,
};

/// Has everything staged in the file: writes it from here if the client can, and the daemon is not
/// at it.
///
/// # Errors
///
/// Why it is not. What the daemon was refused with is owed by the slot.
pub(crate) fn drain(link: Link, log: &mut Log, fd: BorrowedFd<'_>) -> Result<(), Failure> {
    drain_as(link, log, fd, true)
}

/// As [`drain`], of a full log: leaves in it what is behind the last multiple of its length in the
/// file, so that what follows is written in aligned parts. The kernel has larger folios for these.
pub(crate) fn drain_full(link: Link, log: &mut Log, fd: BorrowedFd<'_>) -> Result<(), Failure> {
    drain_as(link, log, fd, false)
}

fn drain_as(link: Link, log: &mut Log, fd: BorrowedFd<'_>, is_whole: bool) -> Result<(), Failure> {
    log.count(link);
    // Where others have the file open, too, the daemon gives refused bytes up.
    let is_here = log.drains != Drains::AtDaemon && !link.shared.is_synchronous();
    if is_here && drain_here(link, log, fd, is_whole).map_err(Failure::Refused)? {
        // What the daemon was refused with, when it tried, was of bytes that are in the file now;
        // if it has not given them up meanwhile.
        if !link.shared.is_synchronous() {
            take_error(link);
        }
        return Ok(());
    }
    Ok(flush(link, log, log.producer.head())?)
}

/// Drains the log from this side; unless `is_whole`, to a multiple of the log's length in the file,
/// or half of the log. Returns whether it did: not while the daemon drains.
fn drain_here(link: Link, log: &mut Log, fd: BorrowedFd<'_>, is_whole: bool) -> io::Result<bool> {
    let shared = link.shared;
    while log.producer.refresh(shared) > 0 {
        let taken_ns = if log.traced_to > 0 { now_ns() } else { 0 };
        let Some(claim) = shared.claim_drain(Drainer::Client) else { return Ok(false) };
        let mut consumer = Consumer::resume(shared, log.producer.capacity());
        if consumer.tail() == log.producer.head() {
            // The daemon has drained it since it was looked at.
            shared.end_drain(claim);
            continue;
        }
        let (from, issued_ns) = (consumer.tail(), if taken_ns > 0 { now_ns() } else { 0 });
        let oldest = oldest(link, log, &consumer, is_whole);
        let is_cut = oldest.is_ok_and(|(_, is_cut)| is_cut);
        let written = oldest.and_then(|(run, _)| write_run(link, log, run, fd));
        if let (true, Ok(len)) = (taken_ns > 0, written) {
            log.trace_drain(link, Drained { from, to: from + len, taken_ns, issued_ns });
        }
        debug_assert!(
            written.is_ok_and(|len| len <= log.producer.capacity()) || written.is_err(),
            "a drain writes what the log holds"
        );
        // The daemon may have released it meanwhile, had it taken this process for stopped.
        let Some(claim) = shared.begin_release(claim) else { continue };
        match written {
            Ok(len) => consumer.release(shared, consumer.tail() + len),
            Err(_) => shared.no_write_begins(),
        }
        shared.end_drain(claim);
        match written {
            Ok(0) => return Err(Errno::IO),
            Ok(len) if is_cut || !is_whole && len >= log.producer.capacity() / 2 => {
                log.producer.refresh(shared);
                break;
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

/// The oldest staged bytes that go to one place, and whether they are cut at a multiple of the
/// log's length in the file, as they are unless all are wanted.
fn oldest(link: Link, log: &Log, consumer: &Consumer, is_whole: bool) -> io::Result<(Run, bool)> {
    let mut runs = [Run::default(); 2];
    // Only a daemon that scribbled over the slot brings us here.
    let count = consumer.runs(link.shared, u64::MAX, &mut runs).map_err(|_| Errno::IO)?;
    if count == 0 {
        return Ok((Run::default(), false));
    }
    let mut run = append::joined(&runs, log.producer.capacity());
    let beyond = run.file_at.wrapping_add(run.len) % log.producer.capacity();
    let is_cut = !is_whole && run.file_at < CUT_OFF && (1..run.len).contains(&beyond);
    run.len -= if is_cut { beyond } else { 0 };
    Ok((run, is_cut))
}

/// Writes staged bytes that go to one place, by one call at the kernel's position, which says to
/// whoever takes over how far that came. Returns the bytes written.
fn write_run(link: Link, log: &mut Log, run: Run, fd: BorrowedFd<'_>) -> io::Result<u64> {
    if run.len == 0 || run.file_at == CUT_OFF {
        return Ok(run.len);
    }
    let first = place(link, log, run.start, run.len).ok_or(Errno::FAULT)?;
    let second = place(link, log, run.start + first.len() as u64, run.len - first.len() as u64);
    debug_assert!(first.len() as u64 <= run.len, "a run is cut where the log ends");
    let parts = [first, second.ok_or(Errno::FAULT)?];
    let began = now();
    let written = if run.file_at == APPEND {
        append::write(link, run.start, parts, fd)?
    } else {
        fs::seek(fd, SeekFrom::Start(run.file_at))?;
        link.shared.write_begins(run.start, 0, run.len);
        copy::write(fd, parts)? as u64
    };
    log.took(link, written, now().saturating_sub(began));
    Ok(written)
}

impl Log {
    /// Records a drain of writes that a trace shows.
    #[cold]
    fn trace_drain(&mut self, link: Link, drained: Drained) {
        if self.traced_to > drained.from {
            link.connection.recorder.drained(link.at(), drained);
        }
        if self.traced_to <= drained.to {
            self.traced_to = 0;
        }
    }

    /// Learns how long a drain of `len` bytes took.
    fn took(&mut self, link: Link, len: u64, time: Duration) {
        if len < LOG_MIN {
            return; // The call's own cost would count for more than the bytes.
        }
        self.drain_cost.learn(len, time);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        link.connection.job.shared().costs.learn(self.device, len, ns);
    }
}

/// Has the daemon drain ahead of the program from now on, from a longer log.
pub(crate) fn hand_over(link: Link, log: &mut Log) -> Result<(), Failure> {
    log.drains = Drains::Ahead;
    link.shared.set_drained_by_client(false);
    let len = DAEMONS_LEN.min(largest_log(link.connection, LOG_SHARE));
    if len > log.producer.capacity() {
        grow_to(link, log, len)?;
    }
    Ok(())
}

/// Has the program drain its log again, a short one: the file system is no longer slow.
pub(crate) fn take_back(link: Link, log: &mut Log) -> Result<(), Failure> {
    flush(link, log, log.producer.head())?;
    log.drains = Drains::Here;
    link.shared.set_drained_by_client(true);
    if log.producer.capacity() > OWN_LEN {
        move_to(link, log, OWN_LEN)?;
    }
    Ok(())
}

/// Drains the log from this side after the daemon's death, whatever it was about. What is refused
/// now is given up, and owed.
pub(crate) fn take_over(link: Link, log: &mut Log, fd: BorrowedFd<'_>) {
    for ended in [take_over_claim(link, log, fd), drain_here(link, log, fd, true).map(drop)] {
        if let Err(errno) = ended {
            link.shared.owe(errno.raw_os_error().unsigned_abs());
        }
    }
    // Nothing more is staged in it, and nobody reads of it what is in the file.
    if log.producer.refresh(link.shared) == 0 {
        link.connection.give_memory(log.at, log.producer.capacity());
    }
}

/// Ends the claim of a dead daemon. An append that it had begun is released as far as it came.
fn take_over_claim(link: Link, log: &Log, fd: BorrowedFd<'_>) -> io::Result<()> {
    let shared = link.shared;
    if shared.drain_holder().is_some() {
        // Its write may be on its way still.
        link.connection.await_exit();
    }
    while let Some(holder) = shared.drain_holder() {
        let Some(claim) = shared.take_over_drain(holder, Drainer::Client) else { continue };
        let mut consumer = Consumer::resume(shared, log.producer.capacity());
        let mut runs = [Run::default(); 2];
        let count = consumer.runs(shared, u64::MAX, &mut runs).map_err(|_| Errno::IO)?;
        let mut run = append::joined(&runs, log.producer.capacity());
        // More may have been staged since the daemon began.
        run.len = append::begun(link, run).unwrap_or(run.len);
        let done = if count > 0 { append::done(link, log, run, fd) } else { Ok(0) };
        // What is in doubt is given up, or it might be there twice; not what stands behind it.
        consumer.release(shared, consumer.tail() + done.unwrap_or(run.len));
        shared.end_drain(claim);
        done?;
    }
    Ok(())
}
