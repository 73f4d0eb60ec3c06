//! Walks that libc makes through folders by itself, past every wrapper.
//!
//! Files have what this process has written so far. In a remote folder that has no view they would
//! find the one that a view hides, empty: there they fail, as `opendir` does. `glob` asks the
//! functions of this library there, for its pattern may lead into such a folder anywhere.

use core::{ffi::c_void, ptr};

use client::Errno;
use libc::{AT_FDCWD, c_char, c_int, size_t};

use crate::{
    environment::{Strings, lines},
    errno::set,
    folders::{opendir, viewable},
    interpose::{interpose, next},
    other_descriptors::closedir,
    pointers::{Out, Text},
    process_client::client,
    stat::{lstat, stat},
    sync::drain_all,
};

/// Has `glob` call functions of its caller.
const ALTERNATIVE: c_int = libc::GLOB_ALTDIRFUNC;

/// Tells of a folder that cannot be read; not 0 ends the search.
type Failed = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;
type StatusOf = extern "C" fn(Text<'_>, Out<'_, libc::stat>) -> c_int;

/// `glob_t`.
#[repr(C)]
pub(crate) struct Matches {
    count: size_t,
    names: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    close: unsafe extern "C" fn(*mut c_void),
    next: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    open: unsafe extern "C" fn(Text<'_>) -> *mut c_void,
    status_of_name: StatusOf,
    status: StatusOf,
}

interpose! {
    fn ftw|ftw64(path: Text<'_>, each: *const c_void, depth: c_int) -> c_int, next {
        walk([path].into_iter(), -1, next)
    }

    fn nftw|nftw64(path: Text<'_>, each: *const c_void, depth: c_int, flags: c_int) -> c_int, next {
        walk([path].into_iter(), -1, next)
    }

    fn fts_open|fts64_open(
        paths: Strings, options: c_int, compare: *const c_void,
    ) -> *mut c_void, next {
        walk(lines(paths).map(Text::of), ptr::null_mut(), next)
    }

    fn glob|glob64(
        pattern: Text<'_>, flags: c_int, failed: Failed, found: *mut Matches,
    ) -> c_int {
        drain_all();
        let (mut flags, mut failed) = (flags, failed);
        let is_hidden = client().is_some_and(|client| client.has_remote() && !client.has_view());
        let serves = is_hidden && flags & ALTERNATIVE == 0 && !found.is_null();
        if serves {
            (*found).close = close;
            (*found).next = next_of;
            (*found).open = opendir;
            (*found).status_of_name = lstat;
            (*found).status = stat;
            flags |= ALTERNATIVE;
            failed = failed.or(Some(unless_served));
        }
        let done = next!(
            glob(
                pattern => Text<'_>, flags => c_int, failed => Failed, found => *mut Matches,
            ) -> c_int
        );
        if serves {
            (*found).flags &= !ALTERNATIVE;
        }
        done
    }
}

/// Walks from these folders on, if each can be listed.
fn walk<'a, T>(mut from: impl Iterator<Item = Text<'a>>, refused: T, go: impl FnOnce() -> T) -> T {
    drain_all();
    match from.try_for_each(|path| viewable(AT_FDCWD, path)) {
        Ok(()) => go(),
        Err(errno) => {
            set(errno);
            refused
        }
    }
}

unsafe extern "C" fn next_of(folder: *mut c_void) -> *mut c_void {
    // SAFETY: a folder that `opendir` has opened.
    unsafe { libc::readdir(folder.cast()) }.cast()
}

unsafe extern "C" fn close(folder: *mut c_void) {
    // SAFETY: as above; the search is over.
    let _: c_int = unsafe { closedir(folder) };
}

/// Ends a search that nobody asked to tell of errors in a folder that is not served.
unsafe extern "C" fn unless_served(_: *const c_char, errno: c_int) -> c_int {
    c_int::from(errno == Errno::NOTSUP.raw_os_error())
}
