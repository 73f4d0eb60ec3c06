//! What a server remembers of requests that must not happen twice: one small file per session.
//!
//! A record is written before its request is executed (*begun*) and again when it is answered
//! (*done*); in between, when an append was left begun and another is to follow (*seen*). Records
//! are 64 bytes in fixed places, so a record never crosses a page, and the kernel copies a page's
//! part whole: a server that is killed leaves the old record or the new one. They are not synced:
//! they protect from the death of the server, not of its node. Behind them stands whether the
//! session has had locks, and since when servers wait for it to take them again; the server at
//! which it has them all has the file locked.
//!
//! A full disk has no room for a ledger, and without one nothing is removed from it. So the server
//! keeps [`SPARES`] empty ledgers that have theirs: a new session takes one, and another is made
//! as soon as there is room.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fd::BorrowedFd,
    fs::{
        Access, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
        access, fallocate, futimens, openat, renameat_with,
    },
    io::{Errno, pread, pwrite, retry_on_intr},
};
use uring::{LockKind, RecordLock};
use wire::SESSION_LEN;

use super::key::{from_hex, hex};
use crate::{names::Identity, place::OWN_FOLDER};

/// Requests of a session that may be recorded at a time.
pub(crate) const RECORDS: u32 = 64;
const WORDS: usize = 8;
const RECORD_LEN: usize = WORDS * size_of::<u64>();
/// A byte that tells of locks, and behind it the milliseconds since the epoch at which a server has
/// begun to wait for them, or one of those below.
const LOCKS_AT: u64 = place(RECORDS);
const AWAITED_SINCE_AT: u64 = LOCKS_AT + 1;
const NOT_AWAITED: u64 = 0;
/// They are lost: as if they had been waited for for very long.
const LOST: u64 = 1;
const LEDGER_LEN: u64 = AWAITED_SINCE_AT + size_of::<u64>() as u64;
/// Sessions that can begin on a full disk.
const SPARES: u32 = 8;
/// Ledgers that have not been written or renewed for so long are removed: nobody replays any more.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Stands in the last word, with all others, so that a torn or foreign record is none.
const SEAL: u64 = 0x6b61_6b65_6869_7265;

const BEGUN: u64 = 1;
const DONE: u64 = 2;
const SEEN: u64 = 3;

/// One request that must not happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The request's.
    pub(crate) id: u64,
    pub(crate) state: State,
    pub(crate) before: Before,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Begun,
    /// Begun by a server that was killed; the file had so many bytes before anybody appended again.
    Seen(u64),
    /// Answered with this value.
    Done(u64),
}

/// What stood there before it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Size of a file that is appended to or has bytes moved; else when it was changed last.
    pub(crate) mark: u64,
    /// Of that file, or of the name; zeros when there was none. Once a file is opened, its own.
    pub(crate) identity: Identity,
    pub(crate) is_append: bool,
}

impl Record {
    /// Whether it is of an append whose outcome nobody has looked into.
    pub(crate) fn is_begun_append(&self) -> bool {
        self.state == State::Begun && self.before.is_append
    }

    fn encode(&self) -> [u8; RECORD_LEN] {
        let (state, value) = match self.state {
            State::Begun => (BEGUN, 0),
            State::Seen(size) => (SEEN, size),
            State::Done(value) => (DONE, value),
        };
        let Before { mark, identity: (device, inode), is_append } = self.before;
        let words = [self.id, state, value, mark, device, inode, u64::from(is_append)];
        let seal = words.iter().fold(SEAL, |sum, word| sum.rotate_left(7) ^ word);
        let mut bytes = [0; RECORD_LEN];
        let chunks = bytes.chunks_exact_mut(size_of::<u64>());
        for (chunk, word) in chunks.zip(words.into_iter().chain([seal])) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = u64::from_le_bytes(*chunk.first_chunk()?);
        }
        let [id, state, value, mark, device, inode, append, seal] = words;
        let summed = [id, state, value, mark, device, inode, append];
        if seal != summed.iter().fold(SEAL, |sum, word| sum.rotate_left(7) ^ word) {
            return None;
        }
        let state = match state {
            BEGUN => State::Begun,
            SEEN => State::Seen(value),
            DONE => State::Done(value),
            _ => return None,
        };
        let before = Before { mark, identity: (device, inode), is_append: append == 1 };
        Some(Self { id, state, before })
    }
}

/// What is known of the locks of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocksNoted {
    /// It has had none, or a server that lives has them all.
    Settled,
    /// They have been waited for for so long.
    Awaited(Duration),
}

/// Where a session's records outlive the server, as an input.
pub(crate) trait Ledger: 'static {
    /// The records there are.
    fn load(&self) -> io::Result<Vec<Option<Record>>>;

    /// Writes a record into its place.
    fn write(&self, slot: u32, record: &Record) -> io::Result<()>;

    /// Remembers that the session has had locks.
    fn note_locks(&self) -> io::Result<()>;

    /// What is known of them. Who finds that they are to be waited for begins to.
    fn locks(&self) -> io::Result<LocksNoted>;

    /// The session has come; the wait for its locks begins anew.
    fn comes(&self);

    /// The session has all its locks, at this server, for as long as this value lives.
    fn have_locks(&self);

    /// The session has lost its locks.
    fn lose_locks(&self);

    /// The session lives: its ledger is not one of the very old.
    fn renew(&self);
}

/// Where ledgers are kept, as an input.
pub(crate) trait Shelf: 'static {
    /// The ledger of a session, made if there is none.
    fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>>;

    /// The sessions that have one.
    fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>>;

    /// Removes the ledger of a session that is over.
    fn remove(&self, session: &[u8; SESSION_LEN]);

    /// Removes the ledgers that have not been written or renewed for very long.
    fn remove_old(&self);
}

/// The server's own folder in its root.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder below `root`, and removes what very old sessions have left.
    ///
    /// # Errors
    ///
    /// Why no ledger can be made there. A full disk is none: there, one may be.
    pub(crate) fn create(root: &Path) -> io::Result<Self> {
        let folder = root.join(OWN_FOLDER);
        match rustix::fs::mkdir(&folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        if !fs::symlink_metadata(&folder)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        access(&folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
        let folder = Self(folder);
        folder.remove_old();
        let made = folder.make_spares();
        let is_full = matches!(made, Err(Errno::NOSPC | Errno::DQUOT));
        if is_full && !folder.spares().any(|spare| spare.exists()) {
            tracing::warn!(
                "the root has no room for a record of requests: its clients can change nothing, \
                 nor remove what fills it, until somebody else makes room"
            );
        }
        Ok(folder)
    }

    fn path(&self, session: &[u8; SESSION_LEN]) -> PathBuf {
        self.0.join(hex(session))
    }

    fn spares(&self) -> impl Iterator<Item = PathBuf> {
        (0..SPARES).map(|index| self.0.join(format!("spare-{index}")))
    }

    /// As many as there is room for; returns why there are no more. Another server of the root may
    /// make a ledger of one meanwhile, and write to it: whatever has its room keeps its content.
    fn make_spares(&self) -> Result<(), Errno> {
        for path in self.spares() {
            let make = |fd| fallocate(fd, FallocateFlags::empty(), 0, LEDGER_LEN);
            if let Err(why) = open(&path).and_then(make) {
                fs::remove_file(path).ok(); // One without room is no use.
                return Err(why);
            }
        }
        Ok(())
    }

    /// Makes a spare the ledger at `path`, unless there is one; returns whether it did.
    fn take_spare(&self, path: &Path) -> bool {
        let take = |spare: PathBuf| {
            // Or it would look as old as it is.
            renew(open(&spare)?.as_fd())?;
            renameat_with(CWD, &spare, CWD, path, RenameFlags::NOREPLACE)
        };
        self.spares().any(|spare| take(spare).is_ok())
    }
}

impl Shelf for Folder {
    fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>> {
        let path = self.path(session);
        if !path.exists() && self.take_spare(&path) {
            self.make_spares().ok();
        }
        Ok(Box::new(LedgerFile(open(&path)?)))
    }

    fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            sessions.extend(name.to_str().and_then(from_hex::<SESSION_LEN>));
        }
        Ok(sessions)
    }

    fn remove(&self, session: &[u8; SESSION_LEN]) {
        fs::remove_file(self.path(session)).ok(); // Somebody else may have tidied up.
        self.make_spares().ok();
    }

    fn remove_old(&self) {
        let now = SystemTime::now();
        for session in self.sessions().unwrap_or_default() {
            let path = self.path(&session);
            // Another server may have removed it since: its session is over.
            let modified = fs::symlink_metadata(&path).and_then(|status| status.modified()).ok();
            let age = modified.and_then(|at| now.duration_since(at).ok());
            if age.is_some_and(|age| age > AGE_MAX) {
                fs::remove_file(path).ok();
            }
        }
    }
}

/// Opens a ledger, made if there is none.
fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)
}

/// Has a ledger look young.
fn renew(ledger: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(ledger, &Timestamps { last_access: now, last_modification: now })
}

struct LedgerFile(OwnedFd);

/// The lock of a ledger whose session has all its locks.
const WHOLE: RecordLock = RecordLock { kind: LockKind::Exclusive, start: 0, len: 0 };

impl LedgerFile {
    fn awaited_since(&self) -> io::Result<u64> {
        let mut since = [0; size_of::<u64>()];
        retry_on_intr(|| pread(&self.0, &mut since, AWAITED_SINCE_AT))?;
        Ok(u64::from_le_bytes(since))
    }

    fn await_since(&self, since: u64) {
        // Where it cannot be written the next server waits as if it were the first.
        retry_on_intr(|| pwrite(&self.0, &since.to_le_bytes(), AWAITED_SINCE_AT)).ok();
    }
}

/// Since the epoch.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Ledger for LedgerFile {
    fn load(&self) -> io::Result<Vec<Option<Record>>> {
        (0..RECORDS)
            .map(|slot| {
                let mut bytes = [0; RECORD_LEN];
                let len = retry_on_intr(|| pread(&self.0, &mut bytes, place(slot)))?;
                Ok(if len == RECORD_LEN { Record::decode(&bytes) } else { None })
            })
            .collect()
    }

    fn write(&self, slot: u32, record: &Record) -> io::Result<()> {
        let bytes = record.encode();
        let len = retry_on_intr(|| pwrite(&self.0, &bytes, place(slot)))?;
        if len == RECORD_LEN { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn note_locks(&self) -> io::Result<()> {
        let noted = retry_on_intr(|| pwrite(&self.0, &[1], LOCKS_AT))?;
        if noted == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn locks(&self) -> io::Result<LocksNoted> {
        let mut noted = [0];
        retry_on_intr(|| pread(&self.0, &mut noted, LOCKS_AT))?;
        // Where files cannot be locked every server waits for all sessions, also another's.
        if noted != [1] || matches!(WHOLE.obstacle(&self.0), Ok(Some(_))) {
            return Ok(LocksNoted::Settled);
        }
        let (since, now) = (self.awaited_since()?, milliseconds());
        if since == NOT_AWAITED || since > now {
            self.await_since(now);
            return Ok(LocksNoted::Awaited(Duration::ZERO));
        }
        Ok(LocksNoted::Awaited(Duration::from_millis(now - since)))
    }

    fn comes(&self) {
        if self.awaited_since().is_ok_and(|since| since > LOST) {
            self.await_since(milliseconds());
        }
    }

    fn have_locks(&self) {
        WHOLE.set(&self.0).ok(); // Else other servers wait longer.
        self.await_since(NOT_AWAITED);
    }

    fn lose_locks(&self) {
        self.await_since(LOST);
    }

    fn renew(&self) {
        if let Err(error) = renew(self.0.as_fd()) {
            tracing::warn!("the records of a session may be taken for old ones: {error}");
        }
    }
}

const fn place(slot: u32) -> u64 {
    slot as u64 * RECORD_LEN as u64
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const SESSION: [u8; SESSION_LEN] = [5; SESSION_LEN];

    #[test]
    fn records_are_found_again_by_the_next_server() {
        let root = tempfile::tempdir().expect("folder");
        let before = Before { mark: 1 << 40, identity: (8, 42), is_append: true };
        let begun = Record { id: 7, state: State::Begun, before };
        let done = Record { id: 9, state: State::Done(u64::MAX - 16), before };
        let folder = Folder::create(root.path()).expect("made");
        let ledger = folder.open(&SESSION).expect("made");
        ledger.write(0, &begun).expect("written");
        ledger.write(RECORDS - 1, &done).expect("written");
        assert_eq!(ledger.locks().expect("read"), LocksNoted::Settled);
        ledger.note_locks().expect("written");

        let ledger = Folder::create(root.path()).and_then(|next| next.open(&SESSION));
        let ledger = ledger.expect("made");
        assert!(matches!(ledger.locks().expect("read"), LocksNoted::Awaited(_)));
        let records = ledger.load().expect("read");
        assert_eq!(folder.sessions().expect("listed"), [SESSION]);
        assert_eq!(records.len(), RECORDS as usize);
        assert_eq!(records[0], Some(begun));
        assert_eq!(records[RECORDS as usize - 1], Some(done));
        assert!(records[1..RECORDS as usize - 1].iter().all(Option::is_none));

        folder.remove(&SESSION);
        let records = folder.open(&SESSION).and_then(|ledger| ledger.load()).expect("read");
        assert!(records.iter().all(Option::is_none));
    }

    /// Or a session that begins on a full disk could not even remove anything.
    #[test]
    fn a_ledger_has_its_room_when_its_session_begins() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder::create(root.path()).expect("made");
        let old = SystemTime::now() - 2 * AGE_MAX;
        for spare in folder.spares() {
            fs::File::open(spare).and_then(|file| file.set_modified(old)).expect("there");
        }
        let ledger = folder.open(&SESSION).expect("made");
        let status = fs::metadata(folder.path(&SESSION)).expect("there");
        assert!(status.blocks() * 512 >= LEDGER_LEN, "{} blocks", status.blocks());
        assert!(folder.spares().all(|spare| spare.exists()), "one is made for the one taken");

        // What is taken is young, and what is there is not replaced.
        folder.remove_old();
        let record = Record { id: 7, state: State::Begun, before: Before::default() };
        ledger.write(0, &record).expect("written");
        let again = folder.open(&SESSION).and_then(|ledger| ledger.load()).expect("read");
        assert_eq!(again[0], Some(record));
    }

    /// As of a job that runs for days, and of a second server of its root.
    #[test]
    fn only_the_ledgers_of_sessions_that_are_gone_grow_old() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder::create(root.path()).expect("made");
        let gone: [u8; SESSION_LEN] = [6; SESSION_LEN];
        let ledgers = [SESSION, gone].map(|session| folder.open(&session).expect("made"));
        for session in [SESSION, gone] {
            let file = fs::File::open(folder.path(&session)).expect("made");
            file.set_modified(SystemTime::now() - 2 * AGE_MAX).expect("its own");
        }
        ledgers[0].renew();
        let next = Folder::create(root.path()).expect("there");
        assert_eq!(next.sessions().expect("listed"), [SESSION]);
    }

    #[test]
    fn locks_are_awaited_from_the_first_look_on_unless_a_server_has_them_or_they_are_lost() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder::create(root.path()).expect("made");
        let ledger = folder.open(&SESSION).expect("made");
        ledger.note_locks().expect("written");
        ledger.have_locks();
        let look = || folder.open(&SESSION).and_then(|other| other.locks()).expect("read");
        assert_eq!(look(), LocksNoted::Settled);
        drop(ledger);
        let waited = || match look() {
            LocksNoted::Awaited(waited) => waited,
            LocksNoted::Settled => panic!("its server is gone"),
        };
        assert_eq!(waited(), Duration::ZERO);
        let an_hour_ago = LedgerFile(open(&folder.path(&SESSION)).expect("there"));
        an_hour_ago.await_since(milliseconds() - 3_600_000);
        assert!(waited() >= Duration::from_secs(3600));
        an_hour_ago.comes();
        assert!(waited() < Duration::from_secs(60));
        an_hour_ago.lose_locks();
        an_hour_ago.comes();
        assert!(waited() > Duration::from_secs(3600));
    }

    #[test]
    fn a_record_with_any_bit_changed_is_none() {
        let record = Record { id: 7, state: State::Done(3), before: Before::default() };
        let bytes = record.encode();
        for bit in 0..RECORD_LEN * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&changed), None, "bit {bit}");
        }
    }
}
