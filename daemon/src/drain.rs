//! Writing staged bytes to their file, one bounded unit at a time.
//!
//! A unit is what one look at a log finds, at most [`Log::unit_len`](crate::file::Log::unit_len)
//! bytes. Where more comes behind it, it ends at a multiple of
//! [`Log::stripe_len`](crate::file::Log::stripe_len) in the file, so that a file system gets whole
//! blocks and stripes. What one call has appended, if that is no more, is written by one call:
//! others may append to the file, too. Whoever waits for bytes drains them itself, in its own task
//! ([`drain_to`]); all else is drained by throughput tasks that take files from a queue, fair by
//! bytes between sessions; each device has its own
//! ([`DrainQueues`](crate::drain_queues::DrainQueues)). Both hold the file's turn for the time of a
//! unit, so a waiter waits for at most the one under way.
//!
//! # Errors and order
//!
//! A log is released in its own order, and only what the kernel has. What the kernel refuses stays
//! staged: the client is owed the error, the background leaves the file alone but for a try every
//! 50 ticks, and whoever asks for the bytes has them tried again. So nothing younger of a file
//! lands before an error is told, and a full disk that gets room loses nothing. Refused bytes are
//! given up by closing, and where somebody else has the file open, too; those that a truncation
//! removes are released without being written ([`change()`]). A unit that is not released
//! is written again by whoever takes over, to the same place; for bytes that go to the end of the
//! file, the size from which an append starts is recorded before it.

mod change;
mod claim;
mod plan;

use std::rc::Rc;

use executor::{Class, yield_now};
use rustix::io::Errno;
use shm::staging::{APPEND, CUT_OFF, Run};
use storage::verdict::errno;
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers};

use crate::{
    core::{Core, Departure},
    file::{ArenaRange, OpenFile, Turn},
    session::Session,
    session_storage::SessionStorage,
    statistics::TracedWork,
    trace::{Open, now_ns},
};
pub(crate) use change::change;
use claim::LogClaim;

/// Drains `file` until its log's tail reaches `position`, or nothing is left to drain.
///
/// # Errors
///
/// What the kernel refuses with; it is owed to the client, too.
pub(crate) async fn drain_to<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    position: u64,
) -> Result<(), Errno> {
    while !file.is_drained_to(position) {
        match file.try_turn() {
            // On the heap: requests that find nothing to drain stay small.
            Some(turn) => drop(Box::pin(waited_unit(core, file, &turn, position)).await?),
            None => file.turn_or_tail(position).await,
        }
    }
    Ok(())
}

/// Drains all that is published now, for a request that is told how that ends.
pub(crate) async fn drain<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
) -> Result<(), Errno> {
    let drained = drain_to(core, file, file.head()).await;
    if drained.is_err() {
        file.shared().take_error();
    }
    drained
}

/// Drains all that is published now and takes the turn, so that the file can be looked at without
/// anything staged being under way. What it is refused with stays owed.
pub(crate) async fn drain_as_far_and_turn<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
) -> Turn<S> {
    drain_to(core, file, file.head()).await.unwrap_or_default();
    file.turn().await
}

/// Length of a drained file of `size` bytes with those bytes that the kernel refuses.
pub(crate) async fn end<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    size: u64,
) -> u64 {
    if file.staged() == 0 {
        return size;
    }
    LogClaim::new(core, file).await.map_or(size, |log| log.end(size))
}

/// Drains all that is published now and takes the turn to write to one place of the file.
pub(crate) async fn drain_and_turn_to_write<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
) -> Result<Turn<S>, Errno> {
    drain(core, file).await?;
    Ok(file.turn_to_write().await)
}

/// Drains every file of a session.
pub(crate) async fn drain_session<S: SessionStorage>(core: &Rc<Core<S>>, session: &Session<S>) {
    let files: Vec<_> = session.files().into_iter().map(|file| (file.head(), file)).collect();
    // Where writes take their time, those of several files are under way together.
    for (head, file) in files.iter().filter(|(_, file)| file.staged() > 0) {
        enqueue_to(core, file, *head);
    }
    for (head, file) in &files {
        // What it is refused with is owed to the client.
        drain_to(core, file, *head).await.unwrap_or_default();
    }
}

/// Has a file drained in the background, up to `position`.
pub(crate) fn enqueue_to<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    position: u64,
) {
    file.pace.wanted.set(position);
    enqueue(core, file);
}

/// Has a file drained in the background, as far as there are whole stripes.
pub(crate) fn enqueue<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>) {
    let device = file.identity.0;
    if core.drain_queues.borrow_mut().push(device, file.session, file.slot) {
        core.handle.spawn(Class::Throughput, work(Rc::clone(core), device));
    }
}

/// Drains queued files of a device, a unit a turn, until none is left.
async fn work<S: SessionStorage>(core: Rc<Core<S>>, device: u64) {
    loop {
        let next = core.drain_queues.borrow_mut().next(device);
        let Some((session, slot)) = next else { return };
        let file = core.session(session).and_then(|session| session.file_to_drain(slot));
        let (len, is_wanted) = match &file {
            Some(file) => background_unit(&core, file).await,
            None => (0, false),
        };
        core.drain_queues.borrow_mut().spent(device, session, slot, len, is_wanted);
        yield_now().await;
    }
}

/// Drains one unit. Returns the bytes drained, and whether more of the file is wanted.
async fn background_unit<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
) -> (u64, bool) {
    // Whoever has the turn, or the client, drains; what it leaves is found by the next tick.
    let Some(turn) = file.try_turn() else { return (0, false) };
    let Some(log) = LogClaim::in_background(core, file).await else { return (0, false) };
    let len = log.unit(&turn, file.pace.wanted.get()).await.unwrap_or(0);
    drop((log, turn));
    (len, len > 0 && file.wants_drain())
}

/// Drains one unit for somebody who waits for it. Returns the bytes drained.
async fn waited_unit<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    turn: &Turn<S>,
    position: u64,
) -> Result<u64, Errno> {
    let Some(log) = LogClaim::new(core, file).await else { return Ok(0) };
    log.unit(turn, position).await
}

impl<S: SessionStorage> LogClaim<'_, S> {
    /// Writes the oldest staged bytes and releases them: whole stripes of the file, and all that
    /// lies before `wanted`. Returns how many.
    async fn unit(&self, _: &Turn<S>, wanted: u64) -> Result<u64, Errno> {
        let Self { core, file, .. } = self;
        debug_assert!(file.is_being_drained(), "the caller has the turn");
        let mut traced = core.node.trace.as_ref().map(|trace| (trace, Open::new()));
        let mut runs = [Run::default(); BUFFER_COUNT_MAX];
        let count = match self.runs(file.log().unit_len(), &mut runs) {
            Ok(count) => count,
            Err(corrupt) => {
                file.break_log();
                core.end_by_id(file.session, Departure::Corrupt(corrupt));
                return Ok(0);
            }
        };
        let start = self.tail();
        if let Some((_, open)) = &mut traced {
            open.issued_ns = now_ns();
        }
        let runs = invariant!(some runs.get_mut(..count), "no more runs are found than fit",
            else return Err(Errno::IO));
        // What a client drains itself ends wherever it does.
        let is_clients = file.shared().is_drained_by_client();
        let stripe_len = if is_clients { 1 } else { file.log().stripe_len() };
        let written = self.write_runs(plan::whole_stripes(runs, stripe_len, wanted)).await;
        let was_refused = file.pace.is_refused.replace(written.is_err());
        if let Err(error) = written {
            file.shared().owe(error.raw_os_error().unsigned_abs());
            return Err(error);
        }
        if was_refused && !file.shared().is_synchronous() {
            // The error was of bytes that are in the file now.
            file.shared().take_error();
        }
        if let Some((trace, open)) = traced.filter(|_| self.tail() != start) {
            let (slot, to) = (file.slot, self.tail());
            trace.complete(file.session, TracedWork::Drain { slot, from: start, to }, open);
        }
        Ok(self.tail().wrapping_sub(start))
    }

    async fn write_runs(&self, runs: &[Run]) -> Result<(), Errno> {
        // Apart from what has a place in the file.
        let way = |run: &Run| run.file_at.max(CUT_OFF - 1);
        for group in runs.chunk_by(|a, b| way(a) == way(b)) {
            match group.first().map(|run| run.file_at) {
                Some(APPEND) => {
                    for run in plan::appends(group, self.file.log().len) {
                        self.append(run).await?;
                    }
                }
                Some(CUT_OFF) => group.iter().for_each(|run| self.release(run.start + run.len)),
                _ => self.write_group(group).await?,
            }
        }
        Ok(())
    }

    /// Writes runs with places in the file, merged as the plan says, and releases them together.
    async fn write_group(&self, group: &[Run]) -> Result<(), Errno> {
        let file = self.file;
        for batch in plan::batches(group) {
            let ranges = batch.runs.iter().map(|run| file.staged_range(run.start, run.len));
            if let Err(error) = self.write_all(batch.file_at, ranges.collect()).await {
                self.give_up(error)?;
            }
        }
        if let Some(last) = group.last() {
            self.release(last.start + last.len);
        }
        Ok(())
    }

    /// Appends a run. Every part of it is released before the next one is begun, so that whoever
    /// takes over finds by the recorded size how much of the last part arrived.
    async fn append(&self, run: Run) -> Result<(), Errno> {
        let end = run.start + run.len;
        while self.tail() < end {
            if let Err(error) = self.append_part(self.tail(), end - self.tail()).await {
                self.give_up(error)?;
                self.release(end);
            }
        }
        Ok(())
    }

    async fn append_part(&self, position: u64, len: u64) -> Result<(), Errno> {
        let Self { core, file, .. } = self;
        let descriptor = file.descriptor()?;
        let size = core.storage.status(&descriptor.file).await.map_err(errno)?.size;
        let from = buffers(file, file.staged_ranges(position, len))?;
        file.shared().write_begins(position, size, len);
        let written = write_some(core, file, &descriptor.file, size, from).await;
        if written.is_err() {
            file.shared().no_write_begins();
        }
        self.release(position + written?);
        Ok(())
    }

    /// Writes all of `ranges` at `at`, going on after short writes.
    async fn write_all(&self, mut at: u64, mut ranges: Vec<ArenaRange>) -> Result<(), Errno> {
        let Self { core, file, .. } = self;
        while !ranges.is_empty() {
            let descriptor = file.descriptor()?;
            let from = buffers(file, ranges.iter().copied())?;
            let written = write_some(core, file, &descriptor.file, at, from).await?;
            at += written;
            advance(&mut ranges, written);
        }
        Ok(())
    }

    /// Gives up bytes that the kernel refuses, where others have the file open, too: tried again
    /// later, they would come over what those have written since. The client is owed the error.
    ///
    /// # Errors
    ///
    /// That error, where the bytes stay staged.
    fn give_up(&self, error: Errno) -> Result<(), Errno> {
        if !self.file.shared().is_synchronous() {
            return Err(error);
        }
        owe(self.core, self.file, error);
        Ok(())
    }
}

/// Staged bytes, to be written.
fn buffers<S: SessionStorage>(
    file: &OpenFile<S>,
    ranges: impl Iterator<Item = ArenaRange>,
) -> Result<Buffers, Errno> {
    let buffers: Option<Vec<Buffer>> = ranges.map(|range| file.buffer(range)).collect();
    buffers.and_then(Buffers::new).ok_or(Errno::FAULT)
}

/// Writes once, and learns what that costs. Returns how many bytes were written, which are some.
async fn write_some<S: SessionStorage>(
    core: &Core<S>,
    to: &OpenFile<S>,
    file: &S::File,
    at: u64,
    from: Buffers,
) -> Result<u64, Errno> {
    let (began, len) = (core.handle.now(), from.len());
    match core.storage.write(file, at, from).await {
        Ok(0) => Err(Errno::IO),
        Ok(written) => {
            invariant!(written <= len, "storage writes what it gets", else return Err(Errno::IO));
            let (device, took) = (to.identity.0, core.handle.now().saturating_since(began));
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            core.node.shared().costs.learn(device, written as u64, ns);
            Ok(written as u64)
        }
        Err(error) => Err(errno(error)),
    }
}

/// Takes `len` bytes off the front.
fn advance(ranges: &mut Vec<ArenaRange>, mut len: u64) {
    ranges.retain_mut(|range| {
        let part = range.len.min(len);
        len -= part;
        range.arena_at += part;
        range.len -= part;
        range.len > 0
    });
    debug_assert_eq!(len, 0, "what was written was in the ranges");
}

/// Owes the client the error of bytes that are given up, or of closing, and counts it.
pub(crate) fn owe<S: SessionStorage>(core: &Rc<Core<S>>, file: &OpenFile<S>, error: Errno) {
    file.shared().owe(error.raw_os_error().unsigned_abs());
    let is_lost = error == Errno::IO && core.storage.has_lost_server();
    core.count(file.session, |totals| {
        totals.drain_errors += 1;
        totals.lost_errors += u64::from(is_lost);
    });
}
