//! The state of the process: its settings, its open files, its connection.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::{fd::RawFd, io};
use shm::{Job, Once};
use wire::{COUNTER_COUNT, Counter, Request};

use crate::{
    attention::{Attention, Event},
    backing::Backing,
    clock::coarse_now,
    config::Config,
    connection::Connection,
    file::{FileEntry, Files},
    host::Host,
    last_status::LastStatus,
    locks::Locks,
    marks::Marks,
    sampler::Sampler,
    sessions::Sessions,
    sight::OwnSight,
    socket::OwnNumber,
    table::{Entry, Table},
    umask::Umask,
    watch::{Watch, add},
};

pub use wire::Status;

/// The process's connection to its daemon, and what it knows of its open files.
pub struct Client {
    pub(crate) host: &'static dyn Host,
    pub(crate) config: Once<Config>,
    /// There are rules: a name may mean something else than to the kernel.
    is_ruled: AtomicBool,
    pub(crate) table: Table,
    pub(crate) files: Files,
    pub(crate) mapped: Marks,
    pub(crate) last_status: LastStatus,
    pub(crate) locks: Locks,
    /// True if every remote file is left to its view from its open on.
    pub(crate) detaches_remote: AtomicBool,
    /// A device whose files are not those of a view.
    pub(crate) plain_device: AtomicU64,
    /// How often everything that had been read ahead was forgotten.
    pub(crate) forgotten: AtomicU64,
    /// True if file sizes were limited when the process last changed the limit.
    pub(crate) is_limited: AtomicBool,
    /// Counts descriptors that were left unexamined when they were opened.
    pub(crate) opened_turn: AtomicU32,
    pub(crate) attention: Attention,
    /// Time that small writes took beyond the copies of their bytes while there was no session, ns.
    pub(crate) overhead_ns: AtomicU64,
    /// How much of it the job's segment has been told.
    pub(crate) told_ns: AtomicU64,
    pub(crate) sessions: Sessions,
    pub(crate) umask: Umask,
    pub(crate) sight: OwnSight,
    /// The job segment; `None`: it could not be mapped, which is not tried again.
    pub(crate) job: Once<Option<Job>>,
    /// A daemon was asked for.
    pub(crate) has_knocked: AtomicBool,
    /// Counts for a report.
    pub(crate) watch: Watch,
    /// Chooses the calls that are timed for the job's table of costs.
    pub(crate) sampler: Sampler,
    /// Counted while there is no session, or of files that have none to do with it.
    counters: [AtomicU64; COUNTER_COUNT],
}

impl Client {
    /// A client that leaves everything to the kernel until it is [started](Self::start).
    #[must_use]
    pub const fn new(host: &'static dyn Host, backing: &'static Backing) -> Self {
        Self {
            host,
            config: Once::new(),
            is_ruled: AtomicBool::new(false),
            table: Table::new(&backing.numbers),
            files: Files::new(&backing.files),
            mapped: Marks::new(&backing.mapped),
            last_status: LastStatus::new(),
            locks: Locks::new(&backing.locked),
            detaches_remote: AtomicBool::new(false),
            plain_device: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            opened_turn: AtomicU32::new(0),
            attention: Attention::new(),
            overhead_ns: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            sessions: Sessions::new(&backing.sessions),
            umask: Umask::new(),
            sight: OwnSight::new(),
            job: Once::new(),
            has_knocked: AtomicBool::new(false),
            watch: Watch::new(&backing.watched, &backing.lines),
            sampler: Sampler::new(),
            counters: [const { AtomicU64::new(0) }; COUNTER_COUNT],
        }
    }

    /// Takes the settings, once. Connects to nothing: that happens at the first delegated call.
    pub fn start(&'static self, config: &Config) {
        match self.config.set(*config) {
            Ok(_) | Err(_) => {}
        }
        if let Some(config) = self.active() {
            self.is_ruled.store(!config.rules().is_empty(), Ordering::Relaxed);
            if !config.stage_after.is_zero() {
                self.attention.note(Event::Start);
            }
        }
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
        self.sessions.fork();
        self.umask.break_open();
        self.attention.note(Event::Fork);
        self.start_watch();
        let reads = self.files.all().map(|entry| &entry.read_len);
        self.counters.iter().chain(reads).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    pub(crate) fn move_counters<'a>(&self, to: impl Iterator<Item = &'a AtomicU64>) {
        for (from, to) in self.counters.iter().zip(to) {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
