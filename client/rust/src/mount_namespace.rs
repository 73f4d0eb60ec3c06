//! Compares how the daemon and this process see files by name: mounts, root, and user.
//!
//! It does not where the process has another root folder, or other mounts, as in a container: then
//! policy `delegate` is as `hybrid`, by which the process itself opens what it names.

use core::{ffi::CStr, str};

use rustix::{
    fs::{self, Mode, OFlags, Stat},
    io::{self, Errno},
    process::{Pid, geteuid},
};

use crate::{proc::numbered, sight::Sight};

/// Bit of `CapEff` by which a process may look at any other of its user namespace.
const PTRACE: u64 = 1 << 19;
/// Bytes of a status.
const STATUS_LEN: usize = 2048;

/// The sight of this process beside another's, if that has a number here: shared if both have the
/// same root folder and mounts, and confined if this one was started in a Landlock domain that the
/// other is not in. Then the kernel denies it the root folder of a process that it may look at
/// otherwise, one of the same user.
#[inline(never)]
pub(crate) fn sight_beside(process: Option<Pid>) -> Sight {
    let root = look_at(process, b"/root");
    if matches!(root, Some(Err(Errno::ACCESS | Errno::PERM))) && may_look() {
        return Sight::Confined;
    }
    let is_same = |own: &CStr, theirs: Option<io::Result<Stat>>| {
        let (own, theirs) = (fs::stat(own).ok()?, theirs?.ok()?);
        Some((own.st_dev, own.st_ino) == (theirs.st_dev, theirs.st_ino))
    };
    let is_shared = is_same(c"/", root) == Some(true)
        && is_same(c"/proc/thread-self/ns/mnt", look_at(process, b"/ns/mnt")) == Some(true);
    if is_shared { Sight::Shared } else { Sight::Own }
}

/// Returns the target of a name in a process's folder in `/proc`.
fn look_at(process: Option<Pid>, name: &[u8]) -> Option<io::Result<Stat>> {
    let mut space = [0; 32];
    let number = process?.as_raw_nonzero().get().unsigned_abs();
    Some(fs::stat(numbered(b"/proc/", number, name, &mut space)?))
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
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_shares_its_own_view_and_that_of_nobody_unknown() {
        assert_eq!(sight_beside(Some(getpid())), Sight::Shared);
        assert_eq!(sight_beside(None), Sight::Own);
        assert_eq!(sight_beside(Pid::from_raw(i32::MAX)), Sight::Own);
    }

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
}
