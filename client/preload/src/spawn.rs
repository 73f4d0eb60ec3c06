//! Files of a child of `posix_spawn`. libc carries the actions out by itself, past every wrapper,
//! so whatever they hand on has to be real by then.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering},
};

use client::{Client, Errno, Reason};
use libc::{AT_FDCWD, c_char, c_int, mode_t};

use crate::{
    descriptor::close_number,
    errno::code,
    interpose::{interpose, next},
    kernel::{Outcome, ignore},
    open::open_at,
    served::{client, text},
};

/// Remote files that may be open for actions at a time.
const FILES: usize = 64;
const NONE: c_int = -1;

/// The actions that each file was opened for, and its number.
static FILES_OPEN: [(AtomicPtr<c_void>, AtomicI32); FILES] =
    [const { (AtomicPtr::new(ptr::null_mut()), AtomicI32::new(NONE)) }; FILES];

interpose! {
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
        if let Some(client) = client().filter(|client| client.is_remote_file(fd)) {
            client.leave(fd, Reason::PassedOn);
        }
        add_duplicate(actions, fd, new)
    }

    // A remote file is opened here and now: the child would open a name in an empty folder.
    fn posix_spawn_file_actions_addopen(
        actions: *mut c_void, new: c_int, path: *const c_char, flags: c_int, mode: mode_t,
    ) -> c_int {
        let remote = text(path).and_then(|name| {
            client().filter(|client| client.is_remote(AT_FDCWD, name))
        });
        let Some(client) = remote else { return add_open(actions, new, path, flags, mode) };
        match open_for(client, actions, path, flags, mode) {
            Ok(fd) => add_duplicate(actions, fd, new),
            Err(errno) => {
                // Whoever does not look at this answer is to find that there is no child.
                add_open(actions, new, c"".as_ptr(), flags & !libc::O_CREAT, mode);
                code(Err(errno))
            }
        }
    }

    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
        for (of, number) in &FILES_OPEN {
            if of.load(Ordering::Acquire) == actions {
                // What the child may write now is its own affair.
                ignore(close_number(number.swap(NONE, Ordering::AcqRel)));
                of.store(ptr::null_mut(), Ordering::Release);
            }
        }
        next!(posix_spawn_file_actions_destroy(actions => *mut c_void) -> c_int)
    }
}

/// Opens a remote file for a child, until the actions are destroyed.
///
/// # Safety
///
/// `path` is a C string.
unsafe fn open_for(
    client: &'static Client,
    actions: *mut c_void,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Outcome<c_int> {
    let is_taken = |place: &&(AtomicPtr<c_void>, AtomicI32)| {
        let (none, order) = (ptr::null_mut(), Ordering::AcqRel);
        place.0.compare_exchange(none, actions, order, Ordering::Relaxed).is_ok()
    };
    let (of, number) = FILES_OPEN.iter().find(is_taken).ok_or(Errno::NOMEM)?;
    // SAFETY: as the caller promises.
    let opened = unsafe { open_at(AT_FDCWD, path, flags | libc::O_CLOEXEC, mode) };
    match opened {
        Ok(fd) => {
            client.leave(fd, Reason::PassedOn);
            number.store(fd, Ordering::Release);
        }
        Err(_) => of.store(ptr::null_mut(), Ordering::Release),
    }
    opened
}

/// libc's `posix_spawn_file_actions_adddup2`.
///
/// # Safety
///
/// As that function asks.
unsafe fn add_duplicate(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        next!(
            posix_spawn_file_actions_adddup2(
                actions => *mut c_void, fd => c_int, new => c_int,
            ) -> c_int
        )
    }
}

/// libc's `posix_spawn_file_actions_addopen`.
///
/// # Safety
///
/// As that function asks.
unsafe fn add_open(
    actions: *mut c_void,
    new: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        next!(
            posix_spawn_file_actions_addopen(
                actions => *mut c_void, new => c_int, path => *const c_char, flags => c_int,
                mode => mode_t,
            ) -> c_int
        )
    }
}
