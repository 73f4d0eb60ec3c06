//! Processes that are served no more, or in part: what a process denied itself the daemon must not
//! do for it, and what it does past the client must not mix with what is staged.

use core::{ffi::CStr, str, sync::atomic::Ordering};

use rustix::{
    fs::{self, Mode, OFlags},
    io,
    process::geteuid,
};
use wire::Reason;

use crate::client::Client;

/// Bit of `CapEff` by which a process may look at any other of its user namespace.
const PTRACE: u64 = 1 << 19;
/// Bytes of a status.
const STATUS_LEN: usize = 2048;

impl Client {
    /// Gives every open file to the kernel, with its position; a remote one becomes what stands for
    /// it in a child. The caller makes plain system calls from then on.
    pub fn detach(&'static self) {
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_at_fork(fd, id) else { continue };
            file.take_back();
            if file.access.writable || file.link.is_some() {
                file.leave(Reason::Unsupported);
            }
        }
    }

    /// The process denied itself names (Landlock): it opens files itself from now on, and remote
    /// names are refused.
    pub fn confine(&self) {
        self.change_view();
        self.is_confined.store(true, Ordering::Release);
    }

    /// The process has another root folder: absolute names are not those that rules are about.
    pub fn change_root(&self) {
        self.change_view();
        self.has_own_root.store(true, Ordering::Release);
    }

    pub(crate) fn has_own_root(&self) -> bool {
        self.has_own_root.load(Ordering::Acquire)
    }

    pub(crate) fn is_confined(&'static self) -> bool {
        self.is_confined.load(Ordering::Acquire)
            || self.connected().is_some_and(|connection| connection.is_confined)
    }
}

/// True if this process was started in a Landlock domain that the daemon is not in: the kernel
/// denies it the root folder of a process that it may look at otherwise, one of the same user.
/// `is_denied` says that it did.
pub(crate) fn is_confined_from_start(is_denied: bool) -> bool {
    is_denied && may_look()
}

/// True if the kernel denies this process no other of its user for want of capabilities, as in a
/// user namespace. Apart, for its room for a status.
#[cold]
#[inline(never)]
fn may_look() -> bool {
    let mut space = [0; STATUS_LEN];
    read(c"/proc/thread-self/uid_map", &mut space).is_some_and(maps_all)
        && (!geteuid().is_root()
            || read(c"/proc/thread-self/status", &mut space).is_some_and(may_trace))
}

/// True of the first user namespace's map of ids.
fn maps_all(map: &[u8]) -> bool {
    let words = map.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.eq([&b"0"[..], b"0", b"4294967295"])
}

/// True if a status says that the process may trace any other.
fn may_trace(status: &[u8]) -> bool {
    let mut lines = status.split(|byte| *byte == b'\n');
    let digits = lines.find_map(|line| line.strip_prefix(b"CapEff:"));
    let digits = digits.and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default();
    u64::from_str_radix(digits.trim(), 16).is_ok_and(|set| set & PTRACE != 0)
}

fn read<'a>(path: &CStr, space: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = io::retry_on_intr(|| io::read(&file, &mut *space)).ok()?;
    space.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_map_is_the_first_namespaces_only_if_it_maps_all() {
        assert!(maps_all(b"         0          0 4294967295\n"));
        assert!(!maps_all(b"      1000          0          1\n"));
        assert!(!maps_all(b"         0     100000      65536\n"));
        assert!(!maps_all(b""));
    }

    #[test]
    fn capabilities_are_read_from_their_own_line() {
        assert!(may_trace(b"CapPrm:\t0\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"));
        assert!(!may_trace(b"CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n"));
        assert!(!may_trace(b"Name:\tcat\n"));
    }

    #[test]
    fn process_that_is_not_denied_the_daemons_root_is_not_confined() {
        assert!(!is_confined_from_start(false));
    }
}
