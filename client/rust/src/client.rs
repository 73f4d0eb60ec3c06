//! The state of the process: its settings, its open files, its connection.

use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::{
    fd::RawFd,
    fs::{self, Mode, OFlags},
    io,
};
use shm::{Job, Lock, Once};
use wire::{COUNTER_COUNT, Counter, Reason, Refusal, Request};

use crate::{
    clock::{coarse_now, nanoseconds},
    config::{Config, PATH_MAX},
    connection::{Connection, Failure, knock},
    file::{FILES_MAX, FileEntry, Files},
    host::Host,
    marks::Marks,
    socket::{OwnNumber, with_one_more},
    table::{Entry, Table},
    tables::Tables,
    umask::Umask,
    watch::{Watch, add},
};

/// Connections a chain of forks can have one after the other: each child needs its own.
const CONNECTIONS: usize = 16;
/// Cost of a session to a process, in costs of staging one file.
const SESSION_COST: u32 = 10;
/// Cost of starting and ending a daemon, in costs of staging one file.
const DAEMON_COST: u32 = 64;

pub use wire::Status;

/// The process's connection to its daemon, and what it knows of its open files.
pub struct Client {
    pub(crate) host: &'static dyn Host,
    pub(crate) config: Once<Config>,
    /// There are rules: a name may mean something else than to the kernel.
    is_ruled: AtomicBool,
    /// By its settings, and its rules, the process may take the short way of an open.
    pub(crate) opens_shortly: AtomicBool,
    pub(crate) table: Table,
    pub(crate) files: Files,
    pub(crate) mapped: Marks,
    pub(crate) exiting: AtomicBool,
    /// True if the process has ever asked for a lock.
    pub(crate) has_locks: AtomicBool,
    /// True if one of those was on a descriptor that Kakehi does not track, such as a folder.
    pub(crate) has_other_locks: AtomicBool,
    /// Else for which.
    pub(crate) locked: Marks,
    /// True if every file is detached from its open on.
    pub(crate) leaves_all: AtomicBool,
    /// How often everything that had been read ahead was forgotten.
    pub(crate) forgotten: AtomicU64,
    /// True if file sizes were limited when the process last changed the limit.
    pub(crate) is_limited: AtomicBool,
    /// Counts descriptors that were left unexamined when they were opened.
    pub(crate) opened_turn: AtomicU32,
    /// Every descriptor is examined when it is opened: there is a session, or soon will be.
    pub(crate) examines_all: AtomicBool,
    /// Time that the kernel took for small writes while there was no session, ns.
    pub(crate) spent_ns: AtomicU64,
    /// How much of it the job's segment has been told.
    told_ns: AtomicU64,
    connections: [Once<Connection>; CONNECTIONS],
    tables: [Tables; CONNECTIONS],
    /// Which of the connections is this process's; beyond the last: none any more.
    current: AtomicUsize,
    connecting: Lock<()>,
    pub(crate) umask: Umask,
    /// Its names may be others than the daemon's.
    pub(crate) has_own_view: AtomicBool,
    /// It has denied itself names.
    pub(crate) is_confined: AtomicBool,
    /// It has changed its root folder.
    pub(crate) has_own_root: AtomicBool,
    is_unreachable: AtomicBool,
    /// Set when the last try to connect found all of the program's numbers taken.
    lacks_number: AtomicBool,
    /// The daemon is there, but had no room for this process.
    is_refused_as_full: AtomicBool,
    /// The loss of the connection has been dealt with.
    is_swept: AtomicBool,
    job: Once<Job>,
    /// The job segment could not be mapped: that is not tried again.
    has_no_job: AtomicBool,
    /// A daemon was asked for.
    has_knocked: AtomicBool,
    /// Counts for a report.
    pub(crate) watch: Watch<FILES_MAX>,
    /// Counted while there is no session, or of files that have none to do with it.
    counters: [AtomicU64; COUNTER_COUNT],
}

impl Client {
    /// A client that leaves everything to the kernel until it is [started](Self::start).
    #[must_use]
    pub const fn new(host: &'static dyn Host) -> Self {
        Self {
            host,
            config: Once::new(),
            is_ruled: AtomicBool::new(false),
            opens_shortly: AtomicBool::new(false),
            table: Table::new(),
            files: Files::new(),
            mapped: Marks::new(),
            exiting: AtomicBool::new(false),
            has_locks: AtomicBool::new(false),
            has_other_locks: AtomicBool::new(false),
            locked: Marks::new(),
            leaves_all: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            opened_turn: AtomicU32::new(0),
            examines_all: AtomicBool::new(false),
            spent_ns: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            connections: [const { Once::new() }; CONNECTIONS],
            tables: [const { Tables::new() }; CONNECTIONS],
            current: AtomicUsize::new(0),
            connecting: Lock::new(()),
            umask: Umask::new(),
            has_own_view: AtomicBool::new(false),
            is_confined: AtomicBool::new(false),
            has_own_root: AtomicBool::new(false),
            is_unreachable: AtomicBool::new(false),
            lacks_number: AtomicBool::new(false),
            is_refused_as_full: AtomicBool::new(false),
            is_swept: AtomicBool::new(false),
            job: Once::new(),
            has_no_job: AtomicBool::new(false),
            has_knocked: AtomicBool::new(false),
            watch: Watch::new(),
            counters: [const { AtomicU64::new(0) }; COUNTER_COUNT],
        }
    }

    /// Takes the settings, once. Connects to nothing: that happens at the first delegated call.
    pub fn start(&'static self, config: &Config) {
        match self.config.set(*config) {
            Ok(_) | Err(_) => {}
        }
        let rules = self.active().map(|config| !config.rules().is_empty());
        self.is_ruled.store(rules == Some(true), Ordering::Relaxed);
        let opens_shortly = rules == Some(false) && self.stages_later();
        self.opens_shortly.store(opens_shortly, Ordering::Relaxed);
        self.limited();
        self.start_watch();
        // Finds the kernel's clock, now that there is stack for that: a handler may have little.
        coarse_now();
    }

    /// Asks the daemon for nothing and waits for the answer: one round trip, connecting first if
    /// need be. For measurements.
    ///
    /// # Errors
    ///
    /// - `NOTCONN`: no daemon serves this process.
    /// - `PIPE`: the daemon was lost on the way.
    pub fn nothing(&'static self) -> io::Result<()> {
        let connection = self.connection().ok_or(io::Errno::NOTCONN)?;
        connection.call(Request::Nothing).map_err(|_| io::Errno::PIPE)?.map(drop)
    }

    /// True if the number is that of a socket to a daemon, a parent's perhaps: the program has not
    /// opened it, and it must stay open.
    #[must_use]
    #[inline]
    pub fn is_own(&'static self, fd: RawFd) -> bool {
        let is_connections = || {
            let own = self.connected().into_iter().flat_map(Connection::own_numbers);
            own.map(OwnNumber::number).any(|number| number == fd)
        };
        match self.table.get(fd) {
            Entry::Own => true,
            Entry::Opened(_) | Entry::File(_) => false,
            // A number beyond the table can only be this process's.
            Entry::Foreign | Entry::Unknown => is_connections(),
        }
    }

    /// Before the program makes `fd` a duplicate: a socket of the client's there gets another
    /// number. Returns whether it was one; it is still open then, for the caller to close.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it cannot get another, or is in use.
    pub fn make_way(&'static self, fd: RawFd) -> io::Result<bool> {
        if !self.is_own(fd) {
            return Ok(false);
        }
        // A parent's that is closed may have left its number to this process's.
        let mut own = self.all_connections().flat_map(Connection::own_numbers);
        if let Some(own) = own.find(|own| own.number() == fd) {
            let tell = |moved| {
                self.table.set(moved, Entry::Own);
            };
            own.make_way(fd, tell)?;
        }
        self.table.take(fd);
        Ok(true)
    }

    /// The program has set its umask.
    pub fn umask_is(&self, mask: u32) {
        self.umask.set(mask);
    }

    /// True if there are rules; without any the kernel alone knows what a name stands for.
    #[must_use]
    #[inline]
    pub fn is_ruled(&self) -> bool {
        self.is_ruled.load(Ordering::Relaxed)
    }

    /// The settings, if anything is delegated in this process.
    pub(crate) fn active(&self) -> Option<&Config> {
        self.config.get().filter(|config| config.delegates())
    }

    /// The connection, if there is one already.
    pub(crate) fn connected(&'static self) -> Option<&'static Connection> {
        self.connections.get(self.current.load(Ordering::Acquire))?.get()
    }

    /// The connection, made now if need be.
    pub(crate) fn connection(&'static self) -> Option<&'static Connection> {
        if let Some(connection) = self.connected() {
            return Some(connection).filter(|connection| !connection.is_lost());
        }
        self.connect()
    }

    /// True if a session is there, or small writes have taken as long as making one does: that is
    /// so many times what staging a file costs.
    pub(crate) fn repays_session(&'static self, stage_after: Duration) -> bool {
        let session = nanoseconds(stage_after.saturating_mul(SESSION_COST));
        self.connected().is_some() || self.spent_ns.load(Ordering::Relaxed) >= session
    }

    /// True if the daemon serves. One that is yet to be started is once that is repaid: small
    /// writes of the job's processes have taken as long, or this one `is_urgent`.
    pub(crate) fn has_daemon(&'static self, stage_after: Duration, is_urgent: bool) -> bool {
        if self.connected().is_some() {
            return true;
        }
        // Where the segment cannot be opened the connection tells.
        let Some(job) = self.job() else { return true };
        if job.shared().served.load(Ordering::Acquire) != 0 {
            return true;
        }
        let spent = self.spent_ns.load(Ordering::Relaxed);
        let untold = spent.saturating_sub(self.told_ns.load(Ordering::Relaxed));
        if !is_urgent && untold < nanoseconds(stage_after.saturating_mul(SESSION_COST)) {
            return false;
        }
        self.told_ns.store(spent, Ordering::Relaxed);
        let before = job.shared().spent_ns.fetch_add(untold, Ordering::Relaxed);
        let of_job = before.saturating_add(untold);
        let is_repaid = is_urgent || of_job >= nanoseconds(stage_after.saturating_mul(DAEMON_COST));
        if is_repaid && !self.has_knocked.swap(true, Ordering::Relaxed) {
            self.active().into_iter().for_each(knock);
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn connect(&'static self) -> Option<&'static Connection> {
        let config = self.active()?;
        let current = self.current.load(Ordering::Acquire);
        let (place, tables) = (self.connections.get(current)?, self.tables.get(current)?);
        // The code that this handler interrupted is connecting: not this time.
        let _turn = self.connecting.lock().ok()?;
        if let Some(connection) = self.connected() {
            return Some(connection);
        }
        if self.is_unreachable.load(Ordering::Acquire) {
            return None;
        }
        self.examine_from_now_on();
        let recorder = &self.watch.recorder;
        let connection = match Connection::open(config, self.host, tables, recorder, place) {
            Ok(connection) => {
                self.table.set(connection.socket.number(), Entry::Own);
                self.lacks_number.store(false, Ordering::Relaxed);
                Some(connection)
            }
            Err(Failure::NoNumber) => {
                self.lacks_number.store(true, Ordering::Relaxed);
                None
            }
            Err(failure) => {
                let is_full = matches!(failure, Failure::Refused(Refusal::Full, _));
                self.is_refused_as_full.store(is_full, Ordering::Release);
                self.is_unreachable.store(true, Ordering::Release);
                self.explain(failure);
                None
            }
        };
        self.move_counters(connection?.session.shared().counters.iter());
        connection
    }

    /// Every connection that there was; this process's first, if it has one, then its parents'.
    pub(crate) fn all_connections(&'static self) -> impl Iterator<Item = &'static Connection> {
        let count = self.current.load(Ordering::Acquire) + 1;
        self.connections.iter().take(count).rev().filter_map(Once::get)
    }

    /// Error of a call on a remote file without a [`connection`](Self::connection).
    pub(crate) fn unserved(&self) -> io::Errno {
        let lacks_number = self.lacks_number.load(Ordering::Relaxed);
        if lacks_number && !self.is_unreachable.load(Ordering::Relaxed) {
            io::Errno::MFILE
        } else {
            io::Errno::IO
        }
    }

    /// Why there is no [`connection`](Self::connection).
    pub(crate) fn why_unconnected(&self) -> Reason {
        if self.is_refused_as_full.load(Ordering::Acquire) {
            Reason::Credit
        } else {
            Reason::DaemonLost
        }
    }

    /// True if the connection is lost and nobody has dealt with that; the caller does.
    pub(crate) fn is_newly_lost(&'static self) -> bool {
        self.connected().is_some_and(Connection::is_lost)
            && !self.is_swept.swap(true, Ordering::AcqRel)
    }

    /// Returns the memory that all processes of the job share, if its daemon lives.
    #[inline]
    pub(crate) fn job(&'static self) -> Option<&'static Job> {
        self.job.get().or_else(|| self.open_job())
    }

    #[cold]
    #[inline(never)]
    fn open_job(&'static self) -> Option<&'static Job> {
        if let Some(connection) = self.connected() {
            return Some(&connection.job);
        }
        let config = self.active()?;
        if self.has_no_job.load(Ordering::Relaxed) {
            return None;
        }
        // The daemon's folder has a link to the job segment, by way of the daemon's own in `/proc`.
        let mut path = [0; PATH_MAX];
        let link = config.path_of(b"job", &mut path)?;
        let opened =
            with_one_more(|| fs::open(link, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()));
        let job = match opened.and_then(Job::open) {
            Ok(job) => self.job.set(job).ok(),
            // To a process of another container, which is to be asked then.
            Err(_) if fs::lstat(link).is_ok() => {
                self.connection().map(|connection| &connection.job)
            }
            Err(_) => None,
        };
        if job.is_none() && !self.lacks_number.load(Ordering::Relaxed) {
            self.has_no_job.store(true, Ordering::Relaxed);
        }
        job
    }

    /// Adds to a counter.
    pub(crate) fn count(&'static self, counter: Counter, amount: u64) {
        let session = self.connected().map(|connection| &connection.session.shared().counters[..]);
        let counters = session.unwrap_or(&self.counters);
        if let Some(word) = counters.get(counter.index()) {
            add(word, amount, shm::is_alone());
        }
    }

    /// Adds to a counter of the process, for files that have nothing to do with a session.
    #[inline]
    pub(crate) fn count_here(&self, counter: Counter, amount: u64) {
        if let Some(word) = self.counters.get(counter.index()) {
            add(word, amount, shm::is_alone());
        }
    }

    /// Adds what was read of a file to the counters.
    pub(crate) fn count_reads(&'static self, entry: &FileEntry) {
        let len = entry.read_len.swap(0, Ordering::Relaxed);
        if len > 0 {
            self.count(Counter::BytesRead, len);
        }
    }

    /// The process ends: what was counted without a session is left with the job.
    pub(crate) fn leave_counters(&'static self) {
        self.leave_watch();
        self.files.all().for_each(|entry| self.count_reads(entry));
        if self.counters.iter().any(|counter| counter.load(Ordering::Relaxed) > 0) {
            if let Some(job) = self.job() {
                self.move_counters(job.shared().counters.iter());
            }
        }
    }

    /// The child of a fork begins without a connection.
    pub(crate) fn forget_connection(&'static self) {
        // Also where the parent was connecting.
        if let Some(tables) = self.tables.get(self.current.load(Ordering::Acquire)) {
            tables.break_open();
        }
        self.all_connections().for_each(Connection::forget_uses);
        if let Some(connection) = self.connected() {
            connection.abandon();
            self.current.fetch_add(1, Ordering::AcqRel);
        }
        self.connecting.break_open();
        self.umask.break_open();
        self.is_swept.store(false, Ordering::Release);
        self.examines_all.store(false, Ordering::Release);
        self.start_watch();
        let reads = self.files.all().map(|entry| &entry.read_len);
        self.counters.iter().chain(reads).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    fn move_counters<'a>(&self, to: impl Iterator<Item = &'a AtomicU64>) {
        for (from, to) in self.counters.iter().zip(to) {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn explain(&self, failure: Failure) {
        let Failure::Refused(refusal, _) = failure else { return };
        self.host.notice(match refusal {
            Refusal::Version => {
                "the daemon speaks another protocol version; running undelegated; \
                 use kakehi and its preload library from one release"
            }
            Refusal::User => "the daemon belongs to another user; running undelegated",
            Refusal::Full => {
                "the daemon has no session, memory, or descriptor left; running undelegated; \
                 raise KAKEHI_MEMORY or the descriptor limit"
            }
            Refusal::Unseen => {
                "the daemon runs in a pid namespace that this process is not in; running \
                 undelegated; start the daemon outside of the container"
            }
            _ => return,
        });
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
