//! The right to write a multifile: a lock on its first physical file.
//!
//! A network file system may forget a lock, as GlusterFS does when its servers restart, and give it
//! to another node. So a writer asks for its lock again before it changes anything, if it has not
//! for [`ASKED_AGAIN_AFTER`], and looks whether the multifile is as it left it; and who finds a
//! multifile unclosed there waits for longer than that before it reads it: if somebody was writing
//! it, he has found out by then, and has stopped.

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

use super::{opening::Home, unfit::Unfit};

/// A change that is later than that after the lock was last asked for asks for it again.
pub(super) const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// What was begun with the lock is done by then.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) file: Arc<fs::File>,
    /// As it was found.
    found: Age,
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
        let (found, file) = (Age::of(&file.metadata()?), Arc::new(file));
        Ok(Self { file, found, asked_at: Cell::new(Instant::now()), is_lost: Cell::default() })
    }

    /// Returns when a writer from whom the file system has taken the lock has stopped; on a thread
    /// that may wait.
    #[expect(clippy::disallowed_methods, reason = "nothing tells when another node has stopped")]
    pub(super) fn outwait(&self) -> io::Result<()> {
        let (file, found) = (self.file.try_clone()?.into(), self.file.metadata()?);
        if !uring::is_local(&file, found.dev())? {
            thread::sleep(STOPPED_AFTER);
        }
        Ok(())
    }

    /// Before a change: [asks](Self::ask) for the lock again if it is time.
    ///
    /// # Errors
    ///
    /// [`Unfit::Lost`].
    pub(super) async fn keep(
        &self,
        machine: &Machine,
        home: &Home,
        is_begun: bool,
    ) -> io::Result<()> {
        if self.is_lost.get() || self.asked_at.get().elapsed() >= ASKED_AGAIN_AFTER {
            return self.ask(machine, home, is_begun).await;
        }
        Ok(())
    }

    /// Asks for the lock of a multifile again, which changes nothing where it was kept, and looks
    /// whether somebody else had it: then one that `is_begun` here is closed.
    ///
    /// # Errors
    ///
    /// [`Unfit::Lost`].
    pub(super) async fn ask(
        &self,
        machine: &Machine,
        home: &Home,
        is_begun: bool,
    ) -> io::Result<()> {
        if self.is_lost.get() {
            return Err(Unfit::Lost.into());
        }
        self.asked_at.set(Instant::now());
        let (file, found, home) = (Arc::clone(&self.file), self.found, home.clone());
        let asked = move || {
            // Another error says nothing of who has it.
            let locked = flock(&*file, FlockOperation::NonBlockingLockExclusive);
            Ok(locked != Err(Errno::AGAIN) && is_as_left(&file, &home, found, is_begun))
        };
        if !machine.call(asked).await? {
            self.is_lost.set(true);
            return Err(Unfit::Lost.into());
        }
        Ok(())
    }
}

/// False if somebody has changed a multifile that is only to be changed here. It is opened anew, as
/// what is open may be seen as it was.
fn is_as_left(file: &fs::File, home: &Home, found: Age, is_begun: bool) -> bool {
    let now = home.open(OFlags::RDONLY | OFlags::NONBLOCK).and_then(|now| now.metadata());
    let (Ok(now), Ok(ours)) = (now, file.metadata()) else { return true };
    if (now.dev(), now.ino()) != (ours.dev(), ours.ino()) {
        return true; // Moved, or removed, as the run's end tells.
    }
    if is_begun { home.peek().map_or(true, |peek| peek.is_open) } else { Age::of(&now) == found }
}

/// When a file was changed, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Age {
    seconds: i64,
    nanoseconds: i64,
    len: u64,
}

impl Age {
    fn of(found: &fs::Metadata) -> Self {
        Self { seconds: found.mtime(), nanoseconds: found.mtime_nsec(), len: found.len() }
    }
}
