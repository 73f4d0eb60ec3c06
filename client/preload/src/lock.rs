//! Locks. Those of local files stay with the kernel, and a locked file is written through; those of
//! remote files are the server's. What is staged for other files is drained before each call, and
//! what was read ahead is forgotten after it: any of them may be what the lock guards.

use client::{Client, Errno, LockKind, LockOwner, LockRange};
use libc::{c_int, c_short, off_t};

use crate::{
    bits::unsigned,
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, ask, cancellation_point},
    process_client::client,
    signals::Held,
};

interpose! { safe:
    fn flock(fd: c_int, operation: c_int) -> c_int => whole(fd, operation);
}

interpose! {
    fn lockf|lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
        if command == libc::F_LOCK {
            cancellation_point();
        }
        if let Some(done) = client().and_then(|client| section(client, fd, command, len)) {
            return answer(done);
        }
        if let Some(client) = client() {
            before(client, fd);
        }
        let done = next!(lockf(fd => c_int, command => c_int, len => off_t) -> c_int);
        if done == 0 {
            after();
        }
        done
    }
}

/// As `flock(2)`, which is no cancellation point.
fn whole(fd: c_int, operation: c_int) -> Outcome {
    let Some(client) = client() else {
        return ask!(SYS_flock, fd, operation);
    };
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => Some(LockKind::Shared),
        libc::LOCK_EX => Some(LockKind::Exclusive),
        libc::LOCK_UN => Some(LockKind::Unlocked),
        _ => None,
    };
    let waits = operation & libc::LOCK_NB == 0;
    let (owner, range) = (LockOwner::Whole, LockRange::default());
    match kind.and_then(|kind| set(client, fd, owner, kind, range, waits)) {
        Some(done) => done.map(|()| 0),
        None => {
            before(client, fd);
            ask!(SYS_flock, fd, operation).inspect(|_| after())
        }
    }
}

/// As `lockf(3)`, of a remote file.
fn section(client: &'static Client, fd: c_int, command: c_int, len: off_t) -> Option<Outcome<()>> {
    let range = LockRange { whence: unsigned(libc::SEEK_CUR), start: 0, len };
    let (owner, kind) = (LockOwner::Process, LockKind::Exclusive);
    match command {
        libc::F_ULOCK => set(client, fd, owner, LockKind::Unlocked, range, false),
        libc::F_LOCK => set(client, fd, owner, kind, range, true),
        libc::F_TLOCK => set(client, fd, owner, kind, range, false),
        libc::F_TEST => Some(match client.find_remote_lock(fd, owner, kind, range)? {
            Ok(Some(_)) => Err(Errno::ACCESS),
            found => found.map(drop),
        }),
        _ => None,
    }
}

/// The commands of `fcntl(2)` that are about locks, of a remote file.
///
/// # Safety
///
/// For these commands `argument` is the address of a `struct flock`.
pub(crate) unsafe fn control(
    client: &'static Client,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> Option<Outcome<c_int>> {
    if !client.is_remote_file(fd) {
        return None;
    }
    let address = core::ptr::with_exposed_provenance_mut::<libc::flock>(argument);
    // SAFETY: null, or a `struct flock` that the program lends to this call alone.
    let Some(lock) = (unsafe { address.as_mut() }) else { return Some(Err(Errno::FAULT)) };
    let mut told = *lock;
    let outcome = about(client, fd, command, &mut told)?;
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) && outcome.is_ok() {
        *lock = told;
    }
    Some(outcome.map(|()| 0))
}

fn about(
    client: &'static Client,
    fd: c_int,
    command: c_int,
    lock: &mut libc::flock,
) -> Option<Outcome<()>> {
    let owner = match command {
        libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK => LockOwner::Process,
        _ if lock.l_pid != 0 => return Some(Err(Errno::INVAL)),
        _ => LockOwner::OpenFile,
    };
    let kind = match c_int::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlocked,
        _ => return Some(Err(Errno::INVAL)),
    };
    let whence = unsigned(c_int::from(lock.l_whence));
    let range = LockRange { whence, start: lock.l_start, len: lock.l_len };
    match command {
        libc::F_SETLK | libc::F_OFD_SETLK => set(client, fd, owner, kind, range, false),
        libc::F_SETLKW | libc::F_OFD_SETLKW => set(client, fd, owner, kind, range, true),
        _ if kind == LockKind::Unlocked => Some(Err(Errno::INVAL)),
        _ => Some(find(client, fd, owner, kind, range, lock)?),
    }
}

fn find(
    client: &'static Client,
    fd: c_int,
    owner: LockOwner,
    kind: LockKind,
    range: LockRange,
    lock: &mut libc::flock,
) -> Option<Outcome<()>> {
    Some(client.find_remote_lock(fd, owner, kind, range)?.and_then(|found| {
        let Some(found) = found else {
            lock.l_type = short(libc::F_UNLCK);
            return Ok(());
        };
        let place = |byte: u64| off_t::try_from(byte).map_err(|_| Errno::OVERFLOW);
        let (start, len) = (place(found.start)?, place(found.len)?);
        let is_shared = found.kind == LockKind::Shared;
        lock.l_type = short(if is_shared { libc::F_RDLCK } else { libc::F_WRLCK });
        (lock.l_whence, lock.l_start, lock.l_len) = (short(libc::SEEK_SET), start, len);
        // Whose it is the server cannot say: as of locks that belong to no process.
        lock.l_pid = -1;
        Ok(())
    }))
}

/// Takes a lock on a remote file, or gives it up; `waits`: until there is one, or a signal comes.
fn set(
    client: &'static Client,
    fd: c_int,
    owner: LockOwner,
    kind: LockKind,
    range: LockRange,
    waits: bool,
) -> Option<Outcome<()>> {
    let ask = |waits| client.lock_remote(fd, owner, kind, range, waits);
    let first = ask(false)?;
    if !waits || first != Err(Errno::AGAIN) {
        return Some(first);
    }
    let signals = Held::new();
    loop {
        match ask(true)? {
            Err(Errno::AGAIN) => {}
            done => return Some(done),
        }
        if let Err(errno) = signals.let_come() {
            return Some(Err(errno));
        }
    }
}

/// Before the kernel takes a lock, or gives it up: all that it may guard is in the files, and
/// ranges that count from the file position find the kernel's to be right.
pub(crate) fn before(client: &'static Client, fd: c_int) {
    client.lock(fd);
    client.publish_position(fd);
}

/// After there is a lock, or a name that may be one.
pub(crate) fn after() {
    if let Some(client) = client() {
        client.forget_read_ahead();
    }
}

/// A small constant, whose type differs between platforms.
fn short(value: c_int) -> c_short {
    c_short::try_from(value).unwrap_or_default()
}
