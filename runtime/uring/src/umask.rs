//! The umask of a thread, while it makes a file for a program.
//!
//! A umask is a process's: its threads share it until one takes its own. What a daemon makes for
//! others needs theirs, and not by taking bits off the mode: in a folder with a default ACL the
//! kernel applies no umask.

use std::cell::Cell;

use rustix::{
    fs::Mode,
    process::umask,
    thread::{UnshareFlags, unshare_unsafe},
};

thread_local! {
    /// True once this thread shares its umask with no other.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Sets the umask back.
struct Before(Mode);

impl Drop for Before {
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// Makes something of this mode under a umask. Where this thread can have none of its own, as in
/// some sandboxes, the mode is what the umask leaves of it.
pub fn with_umask<T>(mode: Mode, mask: Mode, make: impl FnOnce(Mode) -> T) -> T {
    if !mode.intersects(mask) {
        return make(mode);
    }
    if !IS_OWN.get() {
        // SAFETY: the thread keeps its descriptors; it changes neither its folder nor its root.
        let unshared = unsafe { unshare_unsafe(UnshareFlags::FS) };
        if unshared.is_err() {
            return make(mode - mask);
        }
        IS_OWN.set(true);
    }
    let _before = Before(umask(mask));
    make(mode)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
        path::Path,
    };

    use super::*;

    fn made(path: &Path, mode: Mode) -> u32 {
        let mut options = File::options();
        options.write(true).create_new(true).mode(mode.bits());
        options.open(path).expect("made").metadata().expect("there").mode() & 0o777
    }

    #[test]
    fn umask_of_a_thread_is_no_other_threads() {
        let folder = tempfile::tempdir().expect("a folder");
        let (all, mask) = (Mode::from_bits_retain(0o666), Mode::from_bits_retain(0o077));
        std::thread::scope(|scope| {
            let make = |mode| made(&folder.path().join("masked"), mode);
            let masked = scope.spawn(move || with_umask(all, mask, make));
            assert_eq!(masked.join().expect("made"), 0o600);
        });
        let before = umask_here(&folder.path().join("first"));
        let here = with_umask(all, mask, |mode| made(&folder.path().join("here"), mode));
        assert_eq!(here, 0o600);
        assert_eq!(umask_here(&folder.path().join("last")), before);
    }

    /// Mode of a file that is made with all bits.
    fn umask_here(path: &Path) -> u32 {
        made(path, Mode::from_bits_retain(0o666))
    }
}
