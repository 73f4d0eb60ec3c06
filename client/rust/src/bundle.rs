//! Bundles: small files of coalesced folders, created, written in order, and closed without a
//! request (`docs/reference/protocol.md`, section 9). The client publishes records in the session's
//! index log and bytes in its data log; the daemon of this node takes both in.
//!
//! The client creates a file in a folder of which it has a lease, and claims the name first: a
//! claim succeeds only if no file has the name. Any call other than write and close *promotes* the
//! file: the daemon opens it by its inode number, and it is a remote file from then on.
//! [`Client::locked`] does so for every call that does not know of bundles.

use core::sync::atomic::Ordering;

use rustix::{
    fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
    fs::{Mode, OFlags},
    io::{self, Errno},
    thread::{NanosleepRelativeResult, nanosleep, sched_yield},
    time::{ClockId, Timespec, clock_gettime},
};
use shm::{Epochs, NameHash, copy::copy_out};
use wire::{Counter, CreateFlags, Record, Request, Status};

use crate::{
    client::Client,
    connection::{Bundle, Connection, FOLDER_LEN_MAX, HeldFolders, LEN_MAX, Lease, Leases, Terms},
    file::{self, OpenFile},
    locked_file::Locked,
    paths::{AbsolutePath, Asked},
    slot::{Link, Slot},
    slots::Holder,
    state::{Bundled, State},
    table::{Entry, FileId},
};

/// Rounds for which room is waited for by yielding, then by sleeping, before the daemon is asked.
const YIELDS: u32 = 20;
const SLEEPS: u32 = 1000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Flags of an open that a bundle can serve.
const BUNDLED: OFlags = OFlags::WRONLY
    .union(OFlags::RDWR)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::from_bits_retain(LARGE_FILE));
/// Flag that libc adds to every call on some machines.
pub(crate) const LARGE_FILE: u32 =
    if cfg!(target_arch = "aarch64") { 0o40_0000 } else { 0o10_0000 };

impl Lease {
    /// Asks for it.
    fn renew(&mut self, client: &'static Client, now: Epochs, makes: bool) {
        self.terms = Terms::Refused { folders: now.folders };
        self.uses.reads |= !makes;
        self.uses.makes |= makes;
        let uses = self.uses;
        let request = |path_len| Request::Lease { path_len, session: 0, uses };
        let Some(answer) = client.ask(self.asked(), &[], request) else { return };
        let answer = answer.and_then(|(_, lane)| {
            let mut bytes = [0; Status::LEN + 32];
            copy_out(&mut bytes, lane.buffer());
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(bytes[Status::LEN..].chunks_exact(8)) {
                *word = bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
            }
            Ok((Status::decode(&bytes).ok_or(Errno::IO)?, words))
        });
        match answer {
            Ok((status, [number, count, epoch, key])) => {
                (self.folder, self.device, self.key) = (status.inode, status.device, key);
                (self.number, self.end) = (number, number.saturating_add(count));
                let folders = epoch;
                self.terms =
                    if count > 0 { Terms::Makes { folders } } else { Terms::Reads { folders } };
            }
            Err(Errno::NOENT) => self.terms = Terms::Missing { names: now.names },
            Err(_) => {}
        }
    }
}

impl Leases {
    /// The lease of a folder, asked for if there is none that holds; of one in which a file can be
    /// made if that is what it is for.
    pub(crate) fn find(
        &mut self,
        client: &'static Client,
        held: &HeldFolders,
        folder: Asked<'_>,
        now: Epochs,
        makes: bool,
    ) -> Option<usize> {
        let known = self.all.iter().position(|lease| lease.is_of(folder));
        let index = known.or_else(|| self.forget(held, folder))?;
        let may_make = makes && self.all.get(index)?.terms.hold(now, true);
        let is_used_up = may_make && self.numbered(index)?.is_used_up();
        let lease = self.all.get_mut(index)?;
        let is_new = if makes { !lease.uses.makes } else { !lease.uses.reads };
        if known.is_none() || is_used_up || is_new || lease.terms.are_over(now) {
            lease.renew(client, now, makes);
            self.outnumber(index);
        }
        Some(index).filter(|_| self.all.get(index).is_some_and(|it| it.terms.hold(now, makes)))
    }
}

impl Bundle {
    /// Waits for room for a record of `len` bytes and `data_len` bytes, and padding.
    ///
    /// # Errors
    ///
    /// `EIO`: the daemon is lost.
    pub(super) fn make_room(
        &mut self,
        client: &'static Client,
        connection: &Connection,
        lease: usize,
        len: usize,
        data_len: u64,
    ) -> Result<(), Errno> {
        let mut round = 0;
        while !self.has_room(len, data_len).ok_or(Errno::IO)? {
            self.refresh(connection);
            if self.has_room(len, data_len).ok_or(Errno::IO)? {
                break;
            }
            match round {
                0 => connection.announce(),
                1..YIELDS => sched_yield(),
                YIELDS..SLEEPS => {
                    let (NanosleepRelativeResult::Ok | _) = nanosleep(&SLEEP);
                }
                // It takes in all there is, or is found to be lost.
                _ => self.flush(client, lease)?,
            }
            round += 1;
        }
        Ok(())
    }

    /// Has all that is published taken in, by a call on the folder that a lease is of.
    ///
    /// # Errors
    ///
    /// `EIO`: the daemon is lost.
    pub(super) fn flush(&self, client: &'static Client, lease: usize) -> Result<(), Errno> {
        let path = self.leases.all.get(lease).map_or(&b"/"[..], Lease::path);
        let request = |path_len| Request::Access { path_len, mode: 0 };
        // What that call says is nothing to the file.
        client.ask(path.into(), &[], request).map(drop).ok_or(Errno::IO)
    }
}

impl Client {
    /// Makes a file by the bundle; `None`: ask for it.
    pub(crate) fn open_bundled(
        &'static self,
        path: &AbsolutePath,
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<RawFd>> {
        let makes = flags.contains(OFlags::CREATE)
            && flags.intersects(OFlags::WRONLY | OFlags::RDWR)
            && BUNDLED.contains(flags);
        self.config.get().filter(|config| makes && !config.synchronous)?;
        if self.is_confined() {
            return None;
        }
        let connection = self.connection()?;
        let names = &connection.job.shared().names;
        let (folder, name) = (path.asked_folder(), path.name());
        // What a `..` took away may have been a link's.
        if !names.is_offered() || folder.text.len() > FOLDER_LEN_MAX || path.is_textual() {
            return None;
        }
        // A handler that has interrupted one asks.
        let mut bundle = connection.bundle.lock().ok()?;
        bundle.begin(connection)?;
        if let Some(errno) = bundle.owed(connection) {
            return Some(Err(errno));
        }
        let before = names.epochs();
        let index = bundle.leases.find(self, connection.folders, folder, before, true)?;
        let lease = bundle.leases.all.get(index)?;
        if !names.may_claim(NameHash::new(lease.key, name)) {
            return None;
        }
        // First, as in the kernel: where no number is free nothing is made.
        let fd = match self.placeholder(flags) {
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Some(Err(errno)),
            fd => fd.ok()?,
        };
        let slot = Slot::take(connection, Holder::Server)?;
        let wanted = Wanted { name, flags, mode: mode - self.umask.get(), lease: index, before };
        let id = self.make_bundled(connection, &mut bundle, slot, &fd, &wanted)?;
        drop(bundle);
        if !names.are_still(before) {
            if let Err(errno) = self.ask_whether_made(fd.as_raw_fd(), id) {
                return Some(Err(errno));
            }
        }
        self.count(Counter::Files, 1);
        Some(Ok(fd.into_raw_fd()))
    }

    /// Makes a file that the caller has a number for. Returns it, which somebody may have made
    /// before by another way, as epochs tell.
    fn make_bundled(
        &'static self,
        connection: &'static Connection,
        bundle: &mut Bundle,
        slot: Slot,
        fd: &OwnedFd,
        wanted: &Wanted<'_>,
    ) -> Option<FileId> {
        let Wanted { name, flags, mode, lease: index, before } = *wanted;
        bundle.make_room(self, connection, index, Record::LEN_MAX, 0).ok()?;
        let shared = connection.session.shared();
        let lease = bundle.leases.numbered(index)?;
        let (inode, device, folder) = (lease.number, lease.device, lease.folder);
        if !connection.job.shared().names.claim(NameHash::new(lease.key, name)) {
            return None;
        }
        let link = slot.into_link(false);
        let (recalled, torn) = (shared.bundle.recalled(), shared.bundle.torn());
        let bundled = Bundled { link, lease: index, len: 0, recalled, torn };
        let file = OpenFile { state: State::Bundled(bundled), ..file::fresh(device, inode, flags) };
        let Some(id) = self.add_file(file) else {
            // The name stays claimed: it is asked for from now on.
            link.end();
            return None;
        };
        lease.number += 1;
        connection.folders.opened(index);
        let now = clock_gettime(ClockId::Realtime);
        let time = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0));
        let (mode, how) = (mode.bits(), create_flags(flags));
        bundle.push(connection, &Record::Create { inode, folder, mode, how, time, name })?;
        if let Some(entry) = self.files.get(id) {
            entry.cursor.begin();
        }
        self.table.set(fd.as_raw_fd(), Entry::File(id));
        debug_assert!(before.names <= connection.job.shared().names.epochs().names);
        bundle.publish(connection);
        Some(id)
    }

    /// The daemon may have made another file of the same name, or have removed the folder, before
    /// it knew of this one: has it say so.
    #[cold]
    fn ask_whether_made(&'static self, fd: RawFd, id: FileId) -> io::Result<()> {
        let mut file = self.locked_as_is(fd, id).ok_or(Errno::IO)?;
        if let Err(errno) = file.promote() {
            self.table.take(fd);
            file.number_count = 0;
            self.files.freed(id);
            return Err(errno);
        }
        Ok(())
    }
}

/// A file to be made.
struct Wanted<'a> {
    name: &'a [u8],
    flags: OFlags,
    mode: Mode,
    lease: usize,
    before: Epochs,
}

impl Locked {
    /// Writes behind what was written; `None`: as to any other file, which this one is from now on
    /// if it was not.
    pub(crate) fn write_bundled(
        &mut self,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let bundled = self.state.bundled()?;
        let len: u64 = data.iter().map(|buffer| buffer.len() as u64).sum();
        let position = self.entry.cursor.at();
        let from = if self.access.append { bundled.len } else { at.unwrap_or(position) };
        let is_limited = self.client.is_limited.load(Ordering::Relaxed);
        // Somebody else may have made it longer, so that its end is not where this process left it.
        let shared = bundled.link.connection.session.shared();
        let is_recalled = || shared.bundle.recalled() != bundled.recalled;
        let is_odd = is_limited
            || self.access.append && (at.is_some() || is_recalled())
            || from != bundled.len;
        if is_odd || len > LEN_MAX - bundled.len {
            return self.promote().err().map(Err);
        }
        if len == 0 {
            return Some(Ok(0));
        }
        let connection = bundled.link.connection;
        let Ok(mut bundle) = connection.bundle.lock() else {
            return self.promote().err().map(Err);
        };
        let record = Record::Data { inode: self.inode, len: u32::try_from(len).ok()? };
        let pushed = bundle.owed(connection).map_or(Ok(()), Err).and_then(|()| {
            bundle.make_room(self.client, connection, bundled.lease, record.encoded_len(), len)?;
            bundle.push_data(connection, data, bundled.len == 0).ok_or(Errno::IO)?;
            bundle.push(connection, &record).ok_or(Errno::IO)
        });
        if let Err(errno) = pushed {
            return Some(Err(errno));
        }
        bundle.publish(connection);
        drop(bundle);
        self.state = State::Bundled(Bundled { len: bundled.len + len, ..bundled });
        if at.is_none() {
            self.entry.cursor.set(bundled.len + len);
        }
        self.client.count(Counter::BytesStaged, len);
        self.client.count(Counter::BytesWritten, len);
        if is_recalled() {
            // Somebody else has it open, to whom it is what this process writes by now.
            match self.promote() {
                Err(errno) if self.state.bundled().is_none() => return Some(Err(errno)),
                // What waits for room is written all the same.
                Ok(()) | Err(_) => {}
            }
        }
        Some(usize::try_from(len).map_err(|_| Errno::FBIG))
    }

    /// Closes the file; what the daemon owes is kept in it.
    pub(crate) fn close_bundled(&mut self) {
        let Some(bundled) = self.state.bundled() else { return };
        let connection = bundled.link.connection;
        let Ok(mut bundle) = connection.bundle.lock() else {
            // Interrupted beneath; it is closed as any other.
            if let Err(errno) = self.promote() {
                self.owed.owe(errno);
                if self.state.bundled().is_some() {
                    // It is made when the session ends, if there is room then.
                    self.state.close();
                    connection.folders.closed(bundled.lease);
                    bundled.link.end();
                }
            }
            return;
        };
        self.state.close();
        let record = Record::Close { inode: self.inode };
        let pushed = bundle
            .make_room(self.client, connection, bundled.lease, record.encoded_len(), 0)
            .and_then(|()| bundle.push(connection, &record).ok_or(Errno::IO));
        bundle.publish(connection);
        let is_torn = connection.session.shared().bundle.torn() != bundled.torn;
        let waited = if is_torn { bundle.flush(self.client, bundled.lease) } else { Ok(()) };
        let outcome = pushed.and(waited).err();
        self.owed.owe(outcome);
        if !self.owed.is_untold() {
            self.owed.owe(bundle.owed(connection));
        }
        connection.folders.closed(bundled.lease);
        drop(bundle);
        bundled.link.end();
    }

    /// Makes it a file as any other.
    ///
    /// # Errors
    ///
    /// As [`open_by_number`](Self::open_by_number).
    #[cold]
    pub(crate) fn promote(&mut self) -> io::Result<()> {
        let Some(bundled) = self.state.bundled() else { return self.promote_at_rest() };
        self.open_by_number(bundled.link, bundled.lease)
    }

    /// Has the daemon open the file by its number, and lets go of the lease.
    ///
    /// # Errors
    ///
    /// The daemon's: then the file is nobody's, unless a full disk keeps bytes of it waiting.
    pub(crate) fn open_by_number(&mut self, link: Link, lease_index: usize) -> io::Result<()> {
        let inode = self.inode;
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        let flags = OFlags::from_bits_retain(self.flags).difference(once).bits();
        let (folders, mut space) = (link.connection.folders, [0; FOLDER_LEN_MAX]);
        let path = folders.path(lease_index, &mut space);
        let request = |path_len| Request::Open { file: link.slot, flags, mode: 0, path_len, inode };
        match self.client.ask_remote(path.into(), &[], request).map(drop) {
            Ok(()) => self.state.promote(link),
            // The bundle keeps what it has of it until there is room.
            Err(errno @ (Errno::NOSPC | Errno::DQUOT))
                if self.state.bundled().is_some_and(|bundled| bundled.len > 0) =>
            {
                return Err(errno);
            }
            Err(errno) => {
                link.end();
                self.state.lose();
                if self.access.writable {
                    self.owed.owe(errno);
                }
                folders.closed(lease_index);
                return Err(errno);
            }
        }
        folders.closed(lease_index);
        Ok(())
    }
}

impl Connection {
    /// A file of a folder is open without the daemon. False: the lease is another folder's by now,
    /// or a handler has interrupted who leases.
    pub(crate) fn hold_lease(&self, index: usize, folder: Asked<'_>) -> bool {
        let Ok(bundle) = self.bundle.lock() else { return false };
        let is_its = bundle.leases.all.get(index).is_some_and(|lease| lease.is_of(folder));
        if is_its {
            self.folders.opened(index);
        }
        is_its
    }
}

fn create_flags(flags: OFlags) -> CreateFlags {
    let said = [
        (OFlags::EXCL, CreateFlags::EXCLUSIVE),
        (OFlags::TRUNC, CreateFlags::TRUNCATES),
        (OFlags::APPEND, CreateFlags::APPENDS),
    ];
    said.into_iter().fold(CreateFlags::default(), |how, (flag, said)| {
        if flags.contains(flag) { how.with(said) } else { how }
    })
}
