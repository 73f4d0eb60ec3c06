//! Compares how the daemon and this process see files by name: mounts, root, and user.
//!
//! It does not where the process has another root folder, or other mounts, as in a container: then
//! policy `delegate` is as `hybrid`, by which the process itself opens what it names.

use core::{ffi::CStr, sync::atomic::Ordering};

use rustix::{
    fs::{self, Stat},
    io::{self, Errno},
    process::Pid,
};

use crate::{client::Client, paths::numbered};

impl Client {
    /// True if a name may be told to the daemon.
    pub(crate) fn shares_view(&'static self) -> bool {
        !self.has_own_view.load(Ordering::Acquire)
            && self.connection().is_some_and(|connection| connection.shares_view)
    }

    /// The process has another root folder from now on, or may have other mounts.
    pub fn change_view(&self) {
        self.has_own_view.store(true, Ordering::Release);
    }
}

/// True if a process, if it has a number here, has the root folder and the mounts of this one.
pub(crate) fn is_shared_with(process: Option<Pid>) -> bool {
    let is_same = |own: &CStr, theirs: &[u8]| {
        let (own, theirs) = (fs::stat(own).ok()?, look_at(process, theirs)?.ok()?);
        Some((own.st_dev, own.st_ino) == (theirs.st_dev, theirs.st_ino))
    };
    is_same(c"/", b"/root") == Some(true)
        && is_same(c"/proc/thread-self/ns/mnt", b"/ns/mnt") == Some(true)
}

/// True if the kernel denies this process to look at a process that has a number here.
pub(crate) fn is_denied(process: Option<Pid>) -> bool {
    matches!(look_at(process, b"/root"), Some(Err(Errno::ACCESS | Errno::PERM)))
}

/// Returns the target of a name in a process's folder in `/proc`.
fn look_at(process: Option<Pid>, name: &[u8]) -> Option<io::Result<Stat>> {
    let mut space = [0; 32];
    let number = process?.as_raw_nonzero().get().unsigned_abs();
    Some(fs::stat(numbered(b"/proc/", number, name, &mut space)?))
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
