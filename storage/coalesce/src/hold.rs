//! The right to write a multifile: a lock on its first physical file.
//!
//! A network file system may forget a lock, as GlusterFS does when its servers restart, and give it
//! to another node. So a writer asks for its lock again before it changes anything, if it has not
//! for [`ASKED_AGAIN_AFTER`], and looks whether somebody else had it; and who finds a multifile
//! unclosed there waits for longer than that before it reads it: if somebody was writing it, he has
//! found out by then, and has stopped. A taker who was killed before he closed it is not noticed.

use std::{
    cell::Cell,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use storage::Machine;

use super::{opening::Home, turn::Turn, unfit::Unfit};

/// A change that is later than that after the lock was last asked for asks for it again.
pub(super) const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Time in which a change that was begun with the lock is done.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) file: Arc<fs::File>,
    /// When it was last had for certain.
    asked_at: Cell<Instant>,
    is_lost: Cell<bool>,
}

impl Hold {
    /// Keeps out others who would write the multifile that begins with `file`, and with
    /// `is_writable` also who would read it.
    ///
    /// # Errors
    ///
    /// [`Unfit::Taken`]; those of `flock`.
    pub(super) fn take(file: fs::File, path: &Path, is_writable: bool) -> io::Result<Self> {
        let how = if is_writable {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(&file, how) {
            Err(Errno::AGAIN) => return Err(Unfit::Taken.into()),
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {
                tracing::warn!(
                    "its file system knows no locks: see to it that nobody else writes {}",
                    path.display()
                );
            }
            locked => locked?,
        }
        let (asked_at, is_lost) = (Cell::new(Instant::now()), Cell::default());
        Ok(Self { file: Arc::new(file), asked_at, is_lost })
    }

    /// Returns when a writer from whom the file system has taken the lock has stopped; on a thread
    /// that may wait.
    #[expect(clippy::disallowed_methods, reason = "nothing tells when another node has stopped")]
    pub(super) fn outwait(&self) -> io::Result<()> {
        let file = uring::File::new(self.file.try_clone()?.into())?;
        if !file.is_local() {
            thread::sleep(STOPPED_AFTER);
        }
        Ok(())
    }

    /// Before a change of a multifile that was begun: asks for the lock again if it is time. Who
    /// would change something meanwhile waits for the answer in turn.
    ///
    /// # Errors
    ///
    /// [`Unfit::Lost`].
    pub(super) async fn keep(
        &self,
        machine: &Machine,
        home: &Home,
        asking: &Turn,
    ) -> io::Result<()> {
        let is_fresh = || !self.is_lost.get() && self.asked_at.get().elapsed() < ASKED_AGAIN_AFTER;
        if is_fresh() {
            return Ok(());
        }
        let _taken = asking.take().await;
        if is_fresh() { Ok(()) } else { self.ask(machine, home, None).await }
    }

    /// Asks for the lock of a multifile again, which changes nothing where it was kept, and looks
    /// whether somebody else had it: he has closed it, or has left one that was `closed` otherwise.
    ///
    /// # Errors
    ///
    /// [`Unfit::Lost`].
    pub(super) async fn ask(
        &self,
        machine: &Machine,
        home: &Home,
        closed: Option<Closed>,
    ) -> io::Result<()> {
        self.check()?;
        let (asked_at, file, its) = (Instant::now(), Arc::clone(&self.file), home.clone());
        let asked = move || {
            // Another error says nothing of who has it.
            let locked = flock(&*file, FlockOperation::NonBlockingLockExclusive);
            Ok(locked != Err(Errno::AGAIN) && is_as_left(&file, &its, closed.as_ref()))
        };
        if !machine.call(asked).await? {
            self.is_lost.set(true);
            tracing::warn!("{}: {}", home.path.display(), Unfit::Lost);
            return Err(Unfit::Lost.into());
        }
        self.asked_at.set(asked_at);
        Ok(())
    }

    /// # Errors
    ///
    /// [`Unfit::Lost`]: that was found out before.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_lost.get() { Err(Unfit::Lost.into()) } else { Ok(()) }
    }
}

/// False if somebody has changed a multifile that is only to be changed here. It is opened anew, as
/// what is open may be seen as it was.
fn is_as_left(file: &fs::File, home: &Home, closed: Option<&Closed>) -> bool {
    let now = home.open(OFlags::RDONLY | OFlags::NONBLOCK).and_then(|now| now.metadata());
    let (Ok(now), Ok(ours)) = (now, file.metadata()) else { return true };
    if (now.dev(), now.ino()) != (ours.dev(), ours.ino()) {
        return true; // Moved, or removed, as the run's end tells.
    }
    match closed {
        // Its times may have been set.
        Some(closed) => {
            Age::of(&now) == closed.age || home.lens().is_ok_and(|lens| lens == closed.lens)
        }
        None => home.peek().map_or(true, |peek| peek.is_open),
    }
}

/// A closed multifile.
#[derive(Debug)]
pub(super) struct Closed {
    /// Of its first physical file.
    pub(super) age: Age,
    /// Of its streams.
    pub(super) lens: Vec<u64>,
}

/// When a file was changed, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    seconds: i64,
    nanoseconds: i64,
    len: u64,
}

impl Age {
    pub(super) fn of(found: &fs::Metadata) -> Self {
        Self { seconds: found.mtime(), nanoseconds: found.mtime_nsec(), len: found.len() }
    }
}
