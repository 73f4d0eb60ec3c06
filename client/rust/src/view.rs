//! Whether the daemon sees files by the names that this process sees them by.
//!
//! It does not where the process has another root folder, or other mounts, as in a container: then
//! policy `delegate` is as `hybrid`, by which the process itself opens what it names.

use core::{ffi::CStr, sync::atomic::Ordering};

use rustix::{fs, process::Pid};

use crate::{client::Client, paths::numbered};

impl Client {
    /// Whether a name may be told to the daemon.
    pub(crate) fn shares_view(&'static self) -> bool {
        !self.has_own_view.load(Ordering::Acquire)
            && self.connection().is_some_and(|connection| connection.shares_view)
    }

    /// The process has another root folder from now on, or may have other mounts.
    pub fn change_view(&self) {
        self.has_own_view.store(true, Ordering::Release);
    }
}

/// Whether a process, if it has a number here, has the root folder and the mounts of this one.
pub(crate) fn is_shared_with(process: Option<Pid>) -> bool {
    let is_same = |own: &CStr, theirs: &[u8]| {
        let mut space = [0; 32];
        let number = process?.as_raw_nonzero().get().unsigned_abs();
        let (own, theirs) =
            (fs::stat(own).ok()?, fs::stat(numbered(b"/proc/", number, theirs, &mut space)?).ok()?);
        Some((own.st_dev, own.st_ino) == (theirs.st_dev, theirs.st_ino))
    };
    is_same(c"/", b"/root") == Some(true)
        && is_same(c"/proc/thread-self/ns/mnt", b"/ns/mnt") == Some(true)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_shares_its_own_view_and_that_of_nobody_unknown() {
        assert!(is_shared_with(Some(getpid())));
        assert!(!is_shared_with(None));
        assert!(!is_shared_with(Pid::from_raw(i32::MAX)));
    }
}
