//! The process's umask, for what the daemon makes in its stead.
//!
//! The kernel tells it in `/proc`, once: from then on it is what the program's calls say. Where
//! that cannot be read, the umask has to be set to be known: by one thread at a time, or the second
//! would find what the first has set, and leave it so.

use core::{
    str,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    fs::{self, Mode, OFlags},
    io,
    process::umask,
};
use shm::Lock;
use wire::NewMode;

/// In place of a umask that was not asked for yet.
const UNKNOWN: u32 = u32::MAX;
/// Name of its line in a thread's status.
const FIELD: &[u8] = b"Umask:";
/// Bytes of a status that have it: before it comes a name of at most 64.
const HEAD_LEN: usize = 256;
/// Nothing but for the owner.
const STRICT: Mode = Mode::RWXG.union(Mode::RWXO);

/// The umask of the process, as far as it is known.
pub(crate) struct Umask {
    known: AtomicU32,
    /// It is another one for now.
    setting: Lock<()>,
}

impl Umask {
    pub(crate) const fn new() -> Self {
        Self { known: AtomicU32::new(UNKNOWN), setting: Lock::new(()) }
    }

    /// Returns the umask, which is found out if need be.
    pub(crate) fn get(&self) -> Mode {
        let known = self.known.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Mode::from_bits_truncate(known);
        }
        let mask = read().unwrap_or_else(|| by_setting(&self.setting));
        // Who has changed it meanwhile knows better.
        let order = Ordering::Relaxed;
        match self.known.compare_exchange(UNKNOWN, mask.bits(), order, order) {
            Ok(_) => mask,
            Err(known) => Mode::from_bits_truncate(known),
        }
    }

    /// The program has set it.
    pub(crate) fn set(&self, mask: u32) {
        self.known.store(Mode::from_bits_truncate(mask).bits(), Ordering::Relaxed);
    }

    /// The mode of a request that may make a file: see [`NewMode`].
    pub(crate) fn new_mode(&self, flags: OFlags, mode: Mode) -> u32 {
        let umask = if flags.contains(OFlags::CREATE) { self.get() } else { Mode::empty() };
        NewMode { bits: mode.bits(), umask: umask.bits() }.encode()
    }

    /// In the child of a fork: no other thread sets it.
    pub(crate) fn break_open(&self) {
        self.setting.break_open();
    }
}

fn read() -> Option<Mode> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = fs::open(c"/proc/thread-self/status", flags, Mode::empty()).ok()?;
    let mut head = [0; HEAD_LEN];
    let len = io::retry_on_intr(|| io::read(&status, &mut head)).ok()?;
    find(head.get(..len)?)
}

/// A file that another thread makes in this instant gets no more permissions than it asked for, at
/// worst fewer.
fn by_setting(turn: &Lock<()>) -> Mode {
    // A handler that comes within does not know it.
    let Ok(_turn) = turn.lock() else { return STRICT };
    let mask = umask(STRICT);
    umask(mask);
    mask
}

/// The umask in the head of a status. In a name, which a program may choose, a line's end is
/// written as two letters.
fn find(head: &[u8]) -> Option<Mode> {
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(FIELD)?.strip_suffix(b"\n"))?;
    let digits = str::from_utf8(line).ok()?.trim();
    Some(Mode::from_bits_truncate(u32::from_str_radix(digits, 8).ok()?))
}

#[cfg(test)]
mod tests {
    use std::{thread, vec::Vec};

    use super::*;

    static TURN: Lock<()> = Lock::new(());

    #[test]
    fn threads_that_set_it_at_once_leave_it_as_it_is() {
        let before = read().expect("/proc");
        assert_ne!(before, STRICT, "nothing is put to the test");
        let find = move || (0..2000).all(|_| by_setting(&TURN) == before);
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(find)).collect();
        assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
        assert_eq!(read(), Some(before));
    }

    #[test]
    fn a_handler_that_comes_within_gives_nobody_more_than_was_meant() {
        let _turn = TURN.lock().expect("once");
        assert_eq!(by_setting(&TURN), STRICT);
    }

    #[test]
    fn it_is_found_behind_any_name() {
        for (head, found) in [
            ("Name:\tcat\nUmask:\t0022\nState:\tR (running)\n", Some(0o022)),
            ("Name:\tUmask:\\nUmask:\nUmask:\t0777\n", Some(0o777)),
            ("Name:\tcat\nState:\tR (running)\n", None),
            ("Name:\tcat\nUmask:\t00", None),
            ("Name:\tcat\nUmask:\t\n", None),
            ("", None),
        ] {
            assert_eq!(find(head.as_bytes()), found.map(Mode::from_bits_truncate), "{head}");
        }
    }
}
