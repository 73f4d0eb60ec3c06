//! Records of this process for `kakehi run --report` and `--trace`: gathered in memory, appended to
//! the file that `KAKEHI_WATCH` names.
//!
//! Records are lines of fields parted by tabs (`cli/src/profile/records.rs` and `trace.rs` read
//! them). A process that is killed leaves out what it had gathered.

use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use rustix::{
    fs::{self, Mode, OFlags},
    io,
    process::getpid,
};
use shm::{Lock, Once};
use wire::{Kind, is_sampled};

use crate::clock::now_ns;

/// Bytes of records that are gathered.
const ROOM: usize = 32 << 10;
/// Longest name of a file that is recorded.
pub(crate) const PATH_MAX: usize = 1 << 10;
/// Longest record: a path, and numbers.
pub(crate) const RECORD_MAX: usize = PATH_MAX + 256;

/// The records of a process.
pub(crate) struct Recorder {
    path: Once<&'static [u8]>,
    pid: AtomicU32,
    traces: AtomicBool,
    lines: &'static Lock<Lines>,
}

/// Records that are not appended yet.
pub(crate) struct Lines {
    bytes: [u8; ROOM],
    len: usize,
}

impl Lines {
    pub(crate) const NONE: Self = Self { bytes: [0; ROOM], len: 0 };
}

/// A request of which a trace tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    kind: Kind,
    accepted_ns: u64,
    rung_ns: u64,
}

/// A place in the daemon's memory: a session's number, and a lane or a slot of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) session: usize,
    pub(crate) place: usize,
}

/// A drain of a log by its client: the log's positions, and the times of claim, call, and end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) taken_ns: u64,
    pub(crate) issued_ns: u64,
}

impl Recorder {
    pub(crate) const fn new(lines: &'static Lock<Lines>) -> Self {
        Self { path: Once::new(), pid: AtomicU32::new(0), traces: AtomicBool::new(false), lines }
    }

    /// Begins in this process, a child perhaps, whose parent's records are the parent's to append.
    pub(crate) fn start(&self, path: &'static [u8], traces: bool) {
        match self.path.set(path) {
            Ok(_) | Err(_) => {}
        }
        self.pid.store(own_pid(), Ordering::Relaxed);
        // A thread that fork did not copy may have held it.
        self.lines.break_open();
        if let Ok(mut lines) = self.lines.lock() {
            lines.len = 0;
        }
        self.traces.store(traces, Ordering::Relaxed);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// True if a trace is written.
    #[inline]
    pub(crate) fn traces(&self) -> bool {
        self.traces.load(Ordering::Relaxed)
    }

    /// The time, if a trace is written.
    #[inline]
    pub(crate) fn begin(&self) -> Option<u64> {
        self.traces().then(now_ns)
    }

    /// True in a child that has its parent's memory.
    pub(crate) fn is_anothers(&self) -> bool {
        self.pid() != own_pid()
    }

    /// A request that began at `accepted_ns` was published, and its daemon woken if it slept.
    #[cold]
    pub(crate) fn rung(&self, kind: Kind, seq: u32, accepted_ns: u64) -> Option<Traced> {
        is_sampled(seq).then(|| Traced { kind, accepted_ns, rung_ns: now_ns() })
    }

    /// The answer of such a request is there.
    #[cold]
    #[inline(never)]
    pub(crate) fn answered(&self, at: At, seq: u32, traced: Traced) {
        let Traced { kind, accepted_ns, rung_ns } = traced;
        let At { session, place } = at;
        let (pid, answered) = (self.pid(), now_ns());
        self.record(|line| {
            write!(line, "T\t{pid}\t{session}\t{place}\t{seq}\t{}\t", kind.name())?;
            write!(line, "{accepted_ns}\t{rung_ns}\t{answered}")
        });
    }

    /// A write of `len` bytes is staged, up to `head` of its log.
    #[cold]
    #[inline(never)]
    pub(crate) fn staged(&self, at: At, head: u64, len: u64, accepted_ns: u64) {
        let (pid, rung) = (self.pid(), now_ns());
        let At { session, place } = at;
        self.record(|line| {
            write!(line, "W\t{pid}\t{session}\t{place}\t{head}\t{len}\t{accepted_ns}\t{rung}")
        });
    }

    /// This process has drained a log.
    #[cold]
    #[inline(never)]
    pub(crate) fn drained(&self, at: At, drained: Drained) {
        let Drained { from, to, taken_ns, issued_ns } = drained;
        let At { session, place } = at;
        let completed = now_ns();
        self.record(|line| {
            write!(line, "D\t{session}\t{place}\t{from}\t{to}\t{taken_ns}\t{issued_ns}\t")?;
            write!(line, "{completed}")
        });
    }

    /// Gathers a record; one that is too long is left out.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&self, write: impl FnOnce(&mut Line) -> fmt::Result) {
        let mut line = Line { bytes: [0; RECORD_MAX], len: 0 };
        if write(&mut line).and_then(|()| line.write_char('\n')).is_err() {
            return;
        }
        let Ok(mut lines) = self.lines.lock() else { return };
        if lines.len + line.len > ROOM {
            self.append_lines(&mut lines);
        }
        let len = lines.len;
        let from = line.bytes.get(..line.len).unwrap_or_default();
        if let Some(to) = lines.bytes.get_mut(len..len + from.len()) {
            to.copy_from_slice(from);
            lines.len += from.len();
        }
    }

    /// Appends what was gathered.
    pub(crate) fn append(&self) {
        if let Ok(mut lines) = self.lines.lock() {
            self.append_lines(&mut lines);
        }
    }

    /// By one call: other processes append to the file, too.
    #[cold]
    #[inline(never)]
    fn append_lines(&self, lines: &mut Lines) {
        let bytes = lines.bytes.get(..lines.len).unwrap_or_default();
        let Some(path) = self.path.get() else { return };
        if !bytes.is_empty() && !self.is_anothers() {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
            let opened = fs::open(*path, flags, Mode::empty());
            // A report that lacks something is better than a program that fails.
            opened.and_then(|file| io::write(&file, bytes)).unwrap_or_default();
        }
        lines.len = 0;
    }
}

/// A record that is being written.
pub(crate) struct Line {
    pub(crate) bytes: [u8; RECORD_MAX],
    pub(crate) len: usize,
}

impl Line {
    /// Appends bytes of which none is a tab or ends a line.
    pub(crate) fn text(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(to) = self.bytes.get_mut(self.len) {
                *to = if byte.is_ascii_control() { b'?' } else { *byte };
                self.len += 1;
            }
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

fn own_pid() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_no_tabs_or_line_ends_of_others() {
        let mut line = Line { bytes: [0; RECORD_MAX], len: 0 };
        line.text(b"a\tb\nc");
        assert_eq!(&line.bytes[..line.len], b"a?b?c");
    }
}
