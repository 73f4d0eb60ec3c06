//! The ledgers of a root, as files in the server's own folder there.
//!
//! A full disk has no room for a ledger, and without one nothing is removed from it. So the server
//! keeps [`SPARES`] empty ledgers that have theirs: a new session takes one, and another is made
//! as soon as there is room.

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fd::BorrowedFd,
    fs::{
        Access, AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Stat,
        Timespec, Timestamps, UTIME_NOW, accessat, fallocate, fstat, futimens, mkdirat, openat,
        renameat_with, statat, unlinkat,
    },
    io::{Errno, pread, pwrite, retry_on_intr},
    process::geteuid,
};
use storage::scope::OWN_FOLDER;
use uring::{LockKind, RecordLock};
use wire::{ROOT_LEN, SESSION_LEN};

use super::{Ledger, LocksNoted, RECORD_LEN, RECORDS, Record, Shelf};
use crate::{
    line::key::{from_hex, random},
    server::root,
};

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
/// The server's own folder in its root, wherever that is moved to.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    /// The root's, once that has one.
    name: Cell<Option<[u8; ROOT_LEN]>>,
    /// Records are written down, for the server that comes when this one was killed.
    keeps: bool,
}

impl Folder {
    /// Makes the folder below `root`, and removes what very old sessions have left. It `keeps`
    /// records of requests, unless its server has only a client that ends with it.
    ///
    /// # Errors
    ///
    /// Why no ledger can be made there. A full disk is none: there, one may be.
    pub fn create(root: &Path, keeps: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        match mkdirat(&root, OWN_FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        check(&root)?;
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        accessat(&root, OWN_FOLDER, all, AtFlags::empty())?;
        let folder = Self { root, name: Cell::default(), keeps };
        folder.remove_old();
        let made = folder.make_spares();
        let is_full = |why| matches!(why, Errno::NOSPC | Errno::DQUOT);
        if let Err(why) = folder.root() {
            if !Errno::from_io_error(&why).is_some_and(is_full) {
                return Err(why);
            }
        }
        if made.is_err_and(is_full) && !spares().any(|spare| folder.status(&spare).is_ok()) {
            tracing::warn!(
                "the root has no room for a record of requests: its clients can change nothing, \
                 nor remove what fills it, until somebody else makes room"
            );
        }
        Ok(folder)
    }

    /// Opens a ledger, made if there is none.
    fn file(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.file_with(path, OFlags::CREATE)
    }

    fn file_with(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR)
    }

    fn status(&self, path: &Path) -> rustix::io::Result<Stat> {
        statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Somebody else may have tidied up.
    fn remove_if_there(&self, path: &Path) {
        unlinkat(&self.root, path, AtFlags::empty()).ok();
    }

    /// As many as there is room for; returns why there are no more. Another server of the root may
    /// make a ledger of one meanwhile, and write to it: whatever has its room keeps its content.
    fn make_spares(&self) -> Result<(), Errno> {
        for path in spares().take(if self.keeps { usize::MAX } else { 0 }) {
            let make = |fd: OwnedFd| {
                retry_on_intr(|| fallocate(&fd, FallocateFlags::empty(), 0, LEDGER_LEN))
            };
            if let Err(why) = self.file(&path).and_then(make) {
                self.remove_if_there(&path); // One without room is no use.
                return Err(why);
            }
        }
        Ok(())
    }

    /// Makes a spare the ledger at `path`, unless there is one; returns whether it did.
    fn take_spare(&self, path: &Path) -> bool {
        let take = |spare: PathBuf| {
            // Or it would look as old as it is.
            renew(self.file(&spare)?.as_fd())?;
            renameat_with(&self.root, &spare, &self.root, path, RenameFlags::NOREPLACE)
        };
        spares().any(|spare| take(spare).is_ok())
    }
}

/// Refuses a folder that somebody else has made, or may write to: what is in it may be made up.
///
/// What file systems tell of users and modes may not be what they were told (`root_squash`, vfat):
/// what counts then is how a file looks that is made there.
fn check(root: &OwnedFd) -> io::Result<()> {
    let own = statat(root, OWN_FOLDER, AtFlags::SYMLINK_NOFOLLOW)?;
    if !FileType::from_raw_mode(own.st_mode).is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let is_open =
        |stat: &Stat| Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if own.st_uid == geteuid().as_raw() && !is_open(&own) {
        return Ok(());
    }
    let made = made_there(root).ok();
    let user = made.map_or_else(|| geteuid().as_raw(), |made| made.st_uid);
    let why = if own.st_uid != user {
        format!("belongs to user {}", own.st_uid)
    } else if is_open(&own) && !made.as_ref().is_some_and(is_open) {
        "can be written by others".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!(
        "the folder {OWN_FOLDER} in it, which has the server's records, {why}; remove it, or \
         serve another root"
    )))
}

/// A file that was made in the folder, for its user alone.
fn made_there(root: &OwnedFd) -> io::Result<Stat> {
    let path = Path::new(OWN_FOLDER).join(hex::encode(random::<SESSION_LEN>()?) + "-made");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let made = fstat(openat(root, &path, flags, Mode::RUSR | Mode::WUSR)?);
    unlinkat(root, &path, AtFlags::empty())?;
    Ok(made?)
}

/// Of a session's ledger, in the root.
fn path_of(session: &[u8; SESSION_LEN]) -> PathBuf {
    Path::new(OWN_FOLDER).join(hex::encode(session))
}

/// Of the empty ledgers, in the root.
fn spares() -> impl Iterator<Item = PathBuf> {
    (0..SPARES).map(|index| Path::new(OWN_FOLDER).join(format!("spare-{index}")))
}

impl Shelf for Folder {
    fn root(&self) -> io::Result<[u8; ROOT_LEN]> {
        let known = self.name.get();
        let name = known.map_or_else(|| root::name_of(self.root.as_fd()), Ok)?;
        self.name.set(Some(name));
        Ok(name)
    }

    fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>> {
        let path = path_of(session);
        if self.status(&path).is_err() && self.take_spare(&path) {
            self.make_spares().ok();
        }
        Ok(Box::new(LedgerFile(self.file(&path)?, self.keeps)))
    }

    fn find(&self, session: &[u8; SESSION_LEN]) -> io::Result<Option<Box<dyn Ledger>>> {
        match self.file_with(&path_of(session), OFlags::empty()) {
            Ok(file) => Ok(Some(Box::new(LedgerFile(file, self.keeps)))),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>> {
        let mut sessions = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&self.root, OWN_FOLDER, flags, Mode::empty())?)? {
            let entry = entry?;
            sessions.extend(entry.file_name().to_str().ok().and_then(from_hex::<SESSION_LEN>));
        }
        Ok(sessions)
    }

    fn remove(&self, session: &[u8; SESSION_LEN]) {
        self.remove_if_there(&path_of(session));
        self.make_spares().ok();
    }

    fn remove_old(&self) {
        let now = SystemTime::now();
        for session in self.sessions().unwrap_or_default() {
            let path = path_of(&session);
            // Another server may have removed it since: its session is over.
            let modified = self.status(&path).ok().and_then(|status| {
                let since = Duration::from_secs(u64::try_from(status.st_mtime).ok()?);
                SystemTime::UNIX_EPOCH.checked_add(since)
            });
            let age = modified.and_then(|at| now.duration_since(at).ok());
            if age.is_some_and(|age| age > AGE_MAX) {
                self.remove_if_there(&path);
            }
        }
    }
}

/// Has a ledger look young.
fn renew(ledger: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(ledger, &Timestamps { last_access: now, last_modification: now })
}

/// One that keeps records, or does not.
struct LedgerFile(OwnedFd, bool);

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
        if !self.1 {
            return Ok(());
        }
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
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    };

    use super::*;
    use crate::server::ledger::{Before, State};

    const SESSION: [u8; SESSION_LEN] = [5; SESSION_LEN];

    #[test]
    fn records_are_found_again_by_the_next_server() {
        let root = tempfile::tempdir().expect("folder");
        let before = Before { mark: 1 << 40, identity: (8, 42), is_append: true };
        let begun = Record { id: 7, state: State::Begun, before };
        let done = Record { id: 9, state: State::Done(u64::MAX - 16), before };
        let folder = Folder::create(root.path(), true).expect("made");
        let ledger = folder.open(&SESSION).expect("made");
        ledger.write(0, &begun).expect("written");
        ledger.write(RECORDS - 1, &done).expect("written");
        assert_eq!(ledger.locks().expect("read"), LocksNoted::Settled);
        ledger.note_locks().expect("written");

        let ledger = Folder::create(root.path(), true).and_then(|next| next.open(&SESSION));
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
        let folder = Folder::create(root.path(), true).expect("made");
        let old = SystemTime::now() - 2 * AGE_MAX;
        for spare in spares() {
            fs::File::open(root.path().join(spare))
                .and_then(|file| file.set_modified(old))
                .expect("there");
        }
        let ledger = folder.open(&SESSION).expect("made");
        let status = fs::metadata(root.path().join(path_of(&SESSION))).expect("there");
        assert!(status.blocks() * 512 >= LEDGER_LEN, "{} blocks", status.blocks());
        assert!(
            spares().all(|spare| root.path().join(spare).exists()),
            "one is made for the one taken"
        );

        // What is taken is young, and what is there is not replaced.
        folder.remove_old();
        let record = Record { id: 7, state: State::Begun, before: Before::default() };
        ledger.write(0, &record).expect("written");
        let again = folder.open(&SESSION).and_then(|ledger| ledger.load()).expect("read");
        assert_eq!(again[0], Some(record));
    }

    /// The server serves the folder it opened.
    #[test]
    fn a_root_that_is_renamed_keeps_its_records() {
        let place = tempfile::tempdir().expect("folder");
        let (root, moved) = (place.path().join("root"), place.path().join("moved"));
        fs::create_dir(&root).expect("made");
        let folder = Folder::create(&root, true).expect("made");
        fs::rename(&root, &moved).expect("renamed");
        let ledger = folder.open(&SESSION).expect("a new session begins");
        ledger.note_locks().expect("written");
        assert_eq!(folder.sessions().expect("listed"), [SESSION]);
        assert!(moved.join(path_of(&SESSION)).exists());
        folder.remove(&SESSION);
        assert_eq!(folder.sessions().expect("listed"), <[[u8; SESSION_LEN]; 0]>::default());
    }

    /// As of a job that runs for days, and of a second server of its root.
    #[test]
    fn only_the_ledgers_of_sessions_that_are_gone_grow_old() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder::create(root.path(), true).expect("made");
        let gone: [u8; SESSION_LEN] = [6; SESSION_LEN];
        let ledgers = [SESSION, gone].map(|session| folder.open(&session).expect("made"));
        for session in [SESSION, gone] {
            let file = fs::File::open(root.path().join(path_of(&session))).expect("made");
            file.set_modified(SystemTime::now() - 2 * AGE_MAX).expect("its own");
        }
        ledgers[0].renew();
        let next = Folder::create(root.path(), true).expect("there");
        assert_eq!(next.sessions().expect("listed"), [SESSION]);
    }

    #[test]
    fn locks_are_awaited_from_the_first_look_on_unless_a_server_has_them_or_they_are_lost() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder::create(root.path(), true).expect("made");
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
        let file = folder.file(&path_of(&SESSION)).expect("there");
        let an_hour_ago = LedgerFile(file, true);
        an_hour_ago.await_since(milliseconds() - 3_600_000);
        assert!(waited() >= Duration::from_secs(3600));
        an_hour_ago.comes();
        assert!(waited() < Duration::from_secs(60));
        an_hour_ago.lose_locks();
        an_hour_ago.comes();
        assert!(waited() > Duration::from_secs(3600));
    }

    #[test]
    fn ledger_of_a_server_that_its_client_ends_with_keeps_no_record() {
        let root = tempfile::tempdir().expect("folder");
        let record = Record { id: 7, state: State::Begun, before: Before::default() };
        let folder = Folder::create(root.path(), false).expect("made");
        let ledger = folder.open(&SESSION).expect("made");
        ledger.write(0, &record).expect("nothing to do");
        assert_eq!(ledger.load().expect("readable")[0], None);
    }

    /// A writer there could make a replayed request succeed, or fail, that never happened.
    #[test]
    fn a_folder_of_records_that_is_not_the_servers_alone_is_refused() {
        let root = tempfile::tempdir().expect("folder");
        drop(Folder::create(root.path(), true).expect("made"));
        let own = root.path().join(OWN_FOLDER);
        let refused = |says: &str| {
            let why = Folder::create(root.path(), true).map(drop).expect_err("refused").to_string();
            assert!(why.contains(says) && why.contains(OWN_FOLDER), "{why}");
        };
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(&own, Permissions::from_mode(mode)).expect("its own");
            refused("by others");
        }
        fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("its own");
        drop(Folder::create(root.path(), true).expect("nobody else writes there"));
        if geteuid().is_root() {
            chown(&own, Some(1), None).expect("by root");
            refused("user 1;");
        }
    }
}
