//! The client's record of the program's open files.
//!
//! An open file is *fresh* until the first delegated call on it: the kernel keeps its position, and
//! nobody else knows of it. With the first staged write it gets a [`Link`] (a slot at the daemon)
//! and a [`Log`], and the client keeps its position. Once it is *left*, it is the kernel's for
//! good.

use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};
use shm::{
    Costs, Linked, Lock,
    staging::{FileSlot, Producer},
};
use wire::Reason;

use crate::{
    bundle::Bundled, connection::Connection, marks::identity, recorder::At, rest::AtRest,
    table::FileId, window::Window,
};

/// Files that are looked after at a time; more are left to the kernel.
pub(crate) const FILES_MAX: usize = 4096;
const _: () = assert!(FILES_MAX <= 1 << 16, "two bytes name an entry");

/// The position right after an append, which is known once that is drained; or the kernel has it.
pub(crate) const AT_END: u64 = u64::MAX;

/// One open file. What is outside the lock is read without it; a read of a fresh file finds all it
/// needs in one cache line.
#[repr(C, align(64))]
pub(crate) struct FileEntry {
    /// The file position in bytes, or [`AT_END`], while the client keeps it. Before, only what
    /// nested writes move it by counts: whoever takes it from the kernel sees that they did.
    pub(crate) position: AtomicU64,
    /// True if the client keeps the position, and something may be staged.
    pub(crate) is_staged: AtomicBool,
    /// Stands for device and inode; zero when the place is free.
    pub(crate) identity: AtomicU64,
    /// Reads in a row that found everything cached.
    pub(crate) streak: AtomicU32,
    /// Bytes read since they were last added to the process's counters.
    pub(crate) read_len: AtomicU64,
    pub(crate) lock: Lock<OpenFile>,
}

/// An open file, as the kernel's "open file description".
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) generation: u16,
    /// Numbers that stand for it; zero when the place is free.
    pub(crate) number_count: u32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) access: Access,
    /// Every write waits until it is drained: `O_SYNC`, or a lock was taken.
    pub(crate) is_synchronous: bool,
    /// A lock of it is this process's, and the server's.
    pub(crate) has_lock: bool,
    /// Set when large writes of it are staged, too.
    pub(crate) is_large: bool,
    pub(crate) left: Option<Reason>,
    /// Files linked with the inode, anybody's, when it was last settled.
    pub(crate) settled: Linked,
    pub(crate) link: Option<Link>,
    /// Only this process and its bundle know of it.
    pub(crate) bundled: Option<Bundled>,
    /// It is read without the daemon's help.
    pub(crate) rest: Option<AtRest>,
    pub(crate) log: Option<Log>,
    pub(crate) descriptor: Descriptor,
    /// `O_*` bits the program opened it with.
    pub(crate) flags: u32,
    pub(crate) window: Option<Window>,
    /// Time that the kernel took for the small writes it had before staging repays its hand-over.
    pub(crate) spent: Duration,
    /// Where the last write past the page cache ended.
    pub(crate) direct_end: u64,
    /// Average cost of the longer ones of them.
    pub(crate) write_cost: Cost,
    /// An error of a staged write that outlived its link, for the next write or close to report.
    pub(crate) owed: Option<Errno>,
}

/// Target of the program's numbers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// The file.
    Real,
    /// A placeholder for a file of this node: policy `delegate`.
    Placeholder,
    /// A placeholder for a file of a server: policy `remote`.
    Remote,
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) append: bool,
    /// `O_DIRECT`.
    pub(crate) direct: bool,
}

/// A file's slot at the daemon.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) connection: &'static Connection,
    pub(crate) slot: u32,
    pub(crate) shared: &'static FileSlot,
    /// True if this side counts the file in the table of inodes; else the daemon does.
    pub(crate) is_counted: bool,
}

impl Link {
    /// The slot, as a trace names it.
    pub(crate) fn at(self) -> At {
        At { session: self.connection.number(), place: self.slot as usize }
    }
}

/// The side that drains a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drains {
    /// The client, when it is full.
    Here,
    /// The daemon, ahead of a client that could: the file system is slow.
    Ahead,
    /// The daemon, by its ring past the page cache, beside a client that could.
    Beside,
    /// The daemon: the client has no descriptor of the file, or its writes are large.
    AtDaemon,
}

impl Drains {
    /// A KiB that takes longer keeps a program waiting for more than memory: the daemon drains
    /// ahead of it, ns. Below the second the program drains its log itself again.
    const AHEAD_KIB_NS: (u64, u64) = (4_000, 2_000);

    /// True if the daemon is to drain a log of `device` ahead of its client, or still is. All
    /// processes of the job have found what decides: a thread that lost its core in a few drains
    /// changes nothing.
    pub(crate) fn is_ahead(self, costs: &Costs, device: u64) -> bool {
        let (is_so, (above, below)) = (self != Self::Here, Self::AHEAD_KIB_NS);
        let kib_ns = costs.of(device).and_then(|cost| cost.kib_ns);
        kib_ns.map_or(is_so, |kib_ns| kib_ns > if is_so { below } else { above })
    }
}

/// A file's staging log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    /// Start in the arena, bytes.
    pub(crate) at: u64,
    pub(crate) producer: Producer,
    pub(crate) drains: Drains,
    /// The program was told that staged bytes are refused: nothing more is accepted before they are
    /// in the file.
    pub(crate) is_refused: bool,
    /// Device number of its file.
    pub(crate) device: u64,
    /// Average cost of its drains.
    pub(crate) drain_cost: Cost,
    /// Log position up to which the daemon was told to hurry.
    pub(crate) kicked: u64,
    /// End of the last staged write that a trace shows; 0 once it is drained.
    pub(crate) traced_to: u64,
    /// Log position up to which staged bytes are in the counters.
    pub(crate) counted: u64,
    /// When the daemon was last seen to live, by the coarse clock.
    pub(crate) looked_at: Duration,
    /// File range that holds everything staged since the log was last seen empty.
    pub(crate) dirty: (u64, u64),
}

impl Log {
    /// True if the client drains it when it is full.
    pub(crate) fn is_own(&self) -> bool {
        self.drains == Drains::Here
    }
}

/// Average cost of moving bytes, in ns for a KiB. A thread that lost its core in between
/// says little: no time counts for more than twice what was known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    mean: u64,
    samples: u32,
}

impl Cost {
    pub(crate) const UNKNOWN: Self = Self { mean: 0, samples: 0 };
    /// A copy within the core's cache, measured as 30 to 70 ns.
    const COPY: u64 = 50;
    /// How many times say enough; and how much a later one counts for.
    const ENOUGH: u32 = 4;
    const WEIGHT: u64 = 8;

    /// Learns what moving `len` bytes took.
    pub(crate) fn learn(&mut self, len: u64, time: Duration) {
        debug_assert!(len > 0, "a cost is of bytes");
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cost = ns.saturating_mul(1024) / len.max(1);
        self.samples = self.samples.saturating_add(1);
        let weight = u64::from(self.samples).min(Self::WEIGHT);
        let cost = if self.samples == 1 { cost } else { cost.min(self.mean * 2) };
        self.mean = (self.mean * (weight - 1) + cost) / weight;
    }

    /// True if bytes cost less by themselves than copied and moved at the cost of `moved`.
    pub(crate) fn is_below_copied(self, moved: Self) -> bool {
        let is_known = self.samples.min(moved.samples) >= Self::ENOUGH;
        is_known && self.mean <= moved.mean + Self::COPY
    }
}

impl OpenFile {
    /// True if the kernel knows nothing of it, on this node at least.
    pub(crate) const fn is_placeholder(&self) -> bool {
        matches!(self.descriptor, Descriptor::Placeholder | Descriptor::Remote)
    }

    /// The side that drains a log of it at first.
    pub(crate) const fn drains(&self) -> Drains {
        match self.is_placeholder() || self.is_large {
            true => Drains::AtDaemon,
            false if self.access.direct => Drains::Beside,
            false => Drains::Here,
        }
    }

    /// True if it is a server's.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self.descriptor, Descriptor::Remote)
    }

    /// The way to the daemon, of a file that only it has open.
    pub(crate) fn daemons_link(&self) -> Option<Link> {
        self.link.filter(|_| self.is_placeholder())
    }

    /// True if it is a server's, and nobody knows the way there any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_remote() && self.left == Some(Reason::DaemonLost)
    }

    /// Returns the link and log for a small write at the position, if this is the file `id` and
    /// nothing is in the way of staging it.
    #[inline]
    pub(crate) fn written_on(&mut self, id: FileId) -> Option<(Link, &mut Log)> {
        debug_assert!(self.link.is_some() || self.log.is_none(), "a log belongs to a link");
        let is_open = self.generation == id.generation && self.number_count > 0;
        let is_plain = self.access.writable
            && !self.access.append
            && !self.is_synchronous
            && self.descriptor == Descriptor::Real
            && self.left.is_none()
            && self.owed.is_none();
        let link = self.link.filter(|link| {
            is_open
                && is_plain
                && !link.shared.is_synchronous()
                && !link.shared.owes()
                && !link.connection.is_lost()
        })?;
        Some((link, self.log.as_mut().filter(|log| log.is_own() && !log.is_refused)?))
    }

    /// True if something staged for `from..to` may not be in the file yet.
    pub(crate) fn is_dirty(&mut self, from: u64, to: u64) -> bool {
        let staged = self.link.zip(self.log.as_mut());
        staged.is_some_and(|(link, log)| log.is_dirty(link.shared, from, to))
    }

    /// Where the last append ends, if it is drained: others may have appended since.
    pub(crate) fn appended_to(&self) -> Option<u64> {
        let (link, log) = self.link.zip(self.log.as_ref())?;
        let (position, size) = link.shared.last_write()?;
        size.checked_add(log.producer.head().checked_sub(position)?)
    }

    const FREE: Self = Self {
        generation: 0,
        number_count: 0,
        device: 0,
        inode: 0,
        access: Access { readable: false, writable: false, append: false, direct: false },
        is_synchronous: false,
        has_lock: false,
        is_large: false,
        left: None,
        settled: Linked::NOBODY,
        link: None,
        bundled: None,
        rest: None,
        log: None,
        descriptor: Descriptor::Real,
        flags: 0,
        window: None,
        spent: Duration::ZERO,
        direct_end: 0,
        write_cost: Cost::UNKNOWN,
        owed: None,
    };
}

impl Log {
    /// Remembers that `len` bytes at `at` were staged.
    pub(crate) fn note(&mut self, at: u64, len: u64) {
        debug_assert!(len > 0, "staged bytes have a range");
        let (from, to) = self.dirty;
        self.dirty = (from.min(at), to.max(at.saturating_add(len)));
    }

    /// True if something staged for `from..to` may not be in the file yet.
    pub(crate) fn is_dirty(&mut self, shared: &FileSlot, from: u64, to: u64) -> bool {
        if self.producer.waiting() > 0 && self.producer.refresh(shared) == 0 {
            self.dirty = (u64::MAX, 0);
        }
        self.producer.waiting() > 0 && from < self.dirty.1 && to > self.dirty.0
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// All open files of the process.
pub(crate) struct Files {
    entries: [FileEntry; FILES_MAX],
    /// Places up to here have been used.
    used: AtomicUsize,
    /// Where to look for a free place first.
    hint: AtomicUsize,
}

impl Files {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const {
                FileEntry {
                    position: AtomicU64::new(0),
                    is_staged: AtomicBool::new(false),
                    identity: AtomicU64::new(0),
                    streak: AtomicU32::new(0),
                    read_len: AtomicU64::new(0),
                    lock: Lock::new(OpenFile::FREE),
                }
            }; FILES_MAX],
            used: AtomicUsize::new(0),
            hint: AtomicUsize::new(0),
        }
    }

    /// Keeps a newly opened file; `None` when there are too many.
    pub(crate) fn add(&self, file: OpenFile) -> Option<FileId> {
        let hint = self.hint.load(Ordering::Relaxed) % FILES_MAX;
        for index in (hint..FILES_MAX).chain(0..hint) {
            let entry = self.entries.get(index)?;
            let Some(mut place) = entry.lock.try_lock() else { continue };
            if place.number_count > 0 {
                continue;
            }
            debug_assert!(place.link.is_none() && place.log.is_none(), "a free entry has no link");
            let id = FileId::new(u16::try_from(index).ok()?, place.generation.wrapping_add(1));
            *place = OpenFile { generation: id.generation, number_count: 1, ..file };
            entry.is_staged.store(false, Ordering::Relaxed);
            entry.streak.store(0, Ordering::Relaxed);
            entry.identity.store(identity(file.device, file.inode), Ordering::Release);
            self.used.fetch_max(index + 1, Ordering::Relaxed);
            self.hint.store(index + 1, Ordering::Relaxed);
            return Some(id);
        }
        None
    }

    /// Says that a place was freed.
    pub(crate) fn freed(&self, id: FileId) {
        if let Some(entry) = self.get(id) {
            entry.identity.store(0, Ordering::Release);
        }
        self.hint.store(usize::from(id.index), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&FileEntry> {
        self.entries.get(usize::from(id.index))
    }

    /// Every place that has been used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FileEntry> {
        self.entries.iter().take(self.used.load(Ordering::Relaxed))
    }
}

/// A file that was just opened, before anybody else knows of it.
pub(crate) fn fresh(device: u64, inode: u64, flags: OFlags) -> OpenFile {
    // The fourth mode is for `ioctl` alone, and neither.
    let mode = flags & OFlags::RWMODE;
    let access = Access {
        readable: mode == OFlags::RDONLY || mode == OFlags::RDWR,
        writable: mode == OFlags::WRONLY || mode == OFlags::RDWR,
        append: flags.contains(OFlags::APPEND),
        direct: flags.contains(OFlags::DIRECT),
    };
    let is_synchronous = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
    OpenFile { device, inode, access, is_synchronous, flags: flags.bits(), ..OpenFile::FREE }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn learn(costs: &Costs, kib_ns: u64, times: usize) {
        (0..times).for_each(|_| costs.learn(7, MIB, kib_ns << 10));
    }

    #[test]
    fn daemon_drains_ahead_where_the_file_system_is_slow_and_as_long_as_it_is() {
        let costs = Costs::default();
        assert!(!Drains::Here.is_ahead(&costs, 7), "nothing is known");
        learn(&costs, 9_000, 4);
        assert!(Drains::Here.is_ahead(&costs, 7) && !Drains::Here.is_ahead(&costs, 8));
        learn(&costs, 3_000, 40);
        assert!(Drains::Ahead.is_ahead(&costs, 7), "it stays, in between");
        assert!(!Drains::Here.is_ahead(&costs, 7));
        learn(&costs, 300, 40);
        assert!(!Drains::Ahead.is_ahead(&costs, 7));
    }

    #[test]
    fn thread_that_lost_its_core_in_some_drains_drains_on() {
        let costs = Costs::default();
        learn(&costs, 300, 8);
        learn(&costs, 40_000, 8);
        assert!(!Drains::Here.is_ahead(&costs, 7));
    }
}
