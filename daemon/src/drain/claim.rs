//! The daemon's claim to drain a log that its client may drain, too.
//!
//! A client in the midst of its own drain is waited for: that is one system call of at most a log's
//! length. One that is stopped, or has died, has left the kernel's file position where its write
//! came to ([`shm::staging::Drainer`]); what that covers is released on its behalf, and the rest is
//! the daemon's to drain.

use std::{cell::Cell, ops::Range, rc::Rc, time::Duration};

use executor::Handle;
use rustix::{fs::SeekFrom, io::Errno};
use shm::{
    copy::copy_out,
    staging::{
        APPEND, Consumer, Corrupt, DrainClaim, Drainer, Run,
        doubt::{self, Record},
    },
};
use storage::{grown, names::FileCall};

use super::{owe, plan};
use crate::{
    core::{Core, Departure},
    file::OpenFile,
    session_storage::SessionStorage,
};

/// First and longest pause between two looks at a client that drains.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// For how long a client may drain before it has no session any more, and then before its file is
/// left to it: it finds the daemon lost, and goes on by itself.
const HELD_MAX: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// The right to drain a file's log, given back when dropped.
pub(super) struct LogClaim<'a, S: SessionStorage> {
    pub(super) core: &'a Rc<Core<S>>,
    pub(super) file: &'a Rc<OpenFile<S>>,
    claim: DrainClaim,
    consumer: Cell<Consumer>,
}

impl<'a, S: SessionStorage> LogClaim<'a, S> {
    /// Claims the log of `file`; `None` while its client drains.
    fn try_new(core: &'a Rc<Core<S>>, file: &'a Rc<OpenFile<S>>) -> Option<Self> {
        let claim = file.shared().claim_drain(Drainer::Daemon)?;
        Some(Self::of(core, file, claim))
    }

    /// Claims the log of `file` in the background; `None` while its client drains. One that has not
    /// moved since the last time may be stopped.
    pub(super) async fn in_background(
        core: &'a Rc<Core<S>>,
        file: &'a Rc<OpenFile<S>>,
    ) -> Option<Self> {
        let claim = Self::try_new(core, file);
        let holder = file.shared().drain_holder().filter(|_| claim.is_none());
        let before = file.pace.last_holder.replace(holder);
        match holder.filter(|holder| before == Some(*holder)) {
            Some(holder) => Self::take_over(core, file, holder, true).await,
            None => claim,
        }
    }

    /// Claims the log of `file`, waiting for a client that drains; one that has gone, or is stopped
    /// behind its write, is not waited for. `None`: it has drained for so long that it lost its
    /// session, and its log is its own.
    pub(super) async fn new(core: &'a Rc<Core<S>>, file: &'a Rc<OpenFile<S>>) -> Option<Self> {
        let (mut pause, began) = (PAUSES.0, core.handle.now());
        loop {
            if let Some(claim) = Self::try_new(core, file) {
                return Some(claim);
            }
            if let Some(holder) = file.shared().drain_holder() {
                let is_late = pause == PAUSES.1;
                if let Some(claim) = Self::take_over(core, file, holder, is_late).await {
                    return Some(claim);
                }
            }
            let is_ending = core.session(file.session).is_none_or(|session| session.is_ending());
            let held = core.handle.now().saturating_since(began);
            if held > if is_ending { HELD_MAX.1 } else { HELD_MAX.0 } {
                file.break_log();
                core.end_by_id(file.session, Departure::Protocol("a log that is drained for ever"));
                return None;
            }
            sleep(&core.handle, &mut pause).await;
        }
    }

    /// Takes the claim from a client that has died, or whose write is done if `is_late`.
    async fn take_over(
        core: &'a Rc<Core<S>>,
        file: &'a Rc<OpenFile<S>>,
        holder: DrainClaim,
        is_late: bool,
    ) -> Option<Self> {
        let is_gone = core.session(file.session).is_none_or(|session| session.peer.is_gone());
        if !(is_gone || is_late && holder.is_client_writing()) {
            return None;
        }
        let Written { done, is_doubtful } = written(core, file).await;
        // One that lives knows better, and will say so.
        if !is_gone && (done == 0 || is_doubtful) {
            return None;
        }
        let claim = file.shared().take_over_drain(holder, Drainer::Daemon)?;
        core.count(file.session, |totals| totals.drains_taken_over += 1);
        if is_doubtful {
            owe(core, file, Errno::IO);
        }
        let claim = Self::of(core, file, claim);
        claim.release(claim.tail() + done);
        Some(claim)
    }

    fn of(core: &'a Rc<Core<S>>, file: &'a Rc<OpenFile<S>>, claim: DrainClaim) -> Self {
        let consumer = Consumer::resume(file.shared(), file.log().len);
        Self { core, file, claim, consumer: Cell::new(consumer) }
    }

    /// The oldest published stretches, up to `budget` bytes.
    pub(super) fn runs(&self, budget: u64, runs: &mut [Run]) -> Result<usize, Corrupt> {
        self.file.check_tail(self.tail())?;
        if self.file.staged() == 0 {
            return Ok(0);
        }
        self.consumer.get().runs(self.file.shared(), budget, runs)
    }

    /// Length of the file of `size` bytes once it has everything published. That of a log that
    /// makes no sense adds nothing.
    pub(super) fn end(&self, size: u64) -> u64 {
        self.consumer.get().end(self.file.shared(), size).unwrap_or(size)
    }

    /// End of what is released.
    pub(super) fn tail(&self) -> u64 {
        self.consumer.get().tail()
    }

    /// Says that the file system has everything up to `position`, and tells who waits for that.
    pub(super) fn release(&self, position: u64) {
        let mut consumer = self.consumer.get();
        consumer.release(self.file.shared(), position);
        self.consumer.set(consumer);
        self.file.progress.notify_all();
    }
}

impl<S: SessionStorage> Drop for LogClaim<'_, S> {
    fn drop(&mut self) {
        self.file.shared().end_drain(self.claim);
    }
}

/// Result of a client's own write.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// Bytes at the tail that are in the file, or given up.
    done: u64,
    /// True if they are given up: some of them may be in the file.
    is_doubtful: bool,
}

/// Finds out by the kernel's position what the client's own write has come to: that write is
/// recorded, and begins where the record says, or behind what others have appended since.
async fn written<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>) -> Written {
    let (shared, log_len) = (file.shared(), file.log().len);
    let mut runs = [Run::default(); 2];
    let count = Consumer::resume(shared, log_len).runs(shared, log_len, &mut runs).unwrap_or(0);
    let nothing = Written::default();
    let Some(run) = runs.first().filter(|_| count > 0) else { return nothing };
    let Some((position, size, recorded)) = shared.last_write() else { return nothing };
    let Ok(descriptor) = file.descriptor() else { return nothing };
    let tell = FileCall::Seek(SeekFrom::Current(0));
    let Ok(answer) = core.storage.on(&descriptor.file, tell).await else { return nothing };
    let at = answer.value;
    let mut len = plan::joined(runs, count, log_len);
    if run.file_at == APPEND && position == run.start {
        len = len.min(recorded);
    }
    let done = match run.file_at {
        _ if position != run.start => Ok(0),
        // An append moves the position to its end, from zero.
        APPEND if at == 0 => Ok(0),
        APPEND => appended(core, file, &descriptor.file, position, len, size..at).await,
        from => Ok(at.checked_sub(from).filter(|done| *done <= len).unwrap_or(0)),
    };
    Written { done: done.unwrap_or(len), is_doubtful: done.is_err() }
}

/// Bytes of the record of `len` bytes at `position` that are in the file, whose append has ended
/// where `grown` does.
///
/// # Errors
///
/// `EIO`: others have appended too, and it cannot be told.
async fn appended<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: &Rc<OpenFile<S>>,
    descriptor: &S::File,
    position: u64,
    len: u64,
    grown: Range<u64>,
) -> Result<u64, Errno> {
    // What is before is others'.
    let start = grown.start.max(grown.end.saturating_sub(len));
    // The client's descriptor may be one that cannot be read.
    let found = match core.storage.another(descriptor).await {
        Ok(reader) => {
            let found = grown::read(&core.storage, &reader, start..grown.end).await;
            core.storage.close(reader).await.ok(); // It was only read.
            found
        }
        Err(_) => grown::read(&core.storage, descriptor, start..grown.end).await,
    };
    let Some(found) = found else {
        // Then only the length tells.
        return match grown.end.saturating_sub(grown.start) {
            alone if alone <= len => Ok(alone),
            _ => Err(Errno::IO),
        };
    };
    let mut record = vec![0; usize::try_from(len).map_err(|_| Errno::IO)?];
    let mut done = 0;
    for range in file.staged_ranges(position, len) {
        let staged = file.buffer(range).ok_or(Errno::FAULT)?;
        let into = invariant!(some record.get_mut(done..), "a record is as long as its bytes",
            else return Err(Errno::IO));
        done += copy_out(into, staged.bytes());
    }
    let read = &mut grown::source(&record, 0);
    let record = Record { read, len, page_at: Some(position) };
    doubt::ended(&mut grown::source(&found, start), record, grown)
}

async fn sleep(handle: &Handle, pause: &mut Duration) {
    handle.sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSES.1);
}
