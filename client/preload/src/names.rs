//! Calls that change names. Under policy `delegate` they are the daemon's to make.
//!
//! To other programs a name may be a lock. So before one goes, all that is staged is in the files:
//! whoever finds it gone finds what was written before; and once there is one, nothing counts any
//! more that was read ahead before.

use core::mem::{MaybeUninit, offset_of};

use client::{Errno, Name, Reason};
use libc::{
    AF_UNIX, AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, c_char, c_int, c_uint,
    dev_t, mode_t, sa_family_t, sockaddr, sockaddr_un, socklen_t,
};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    lock::after,
    paths::remote,
    served::{client, text},
    sync::drain_all,
};

interpose! {
    fn unlink(path: *const c_char) -> c_int {
        answer(remove_at(AT_FDCWD, path, 0))
    }

    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        answer(remove_at(dir, path, flags))
    }

    fn rmdir(path: *const c_char) -> c_int {
        answer(remove_at(AT_FDCWD, path, AT_REMOVEDIR))
    }

    fn remove(path: *const c_char) -> c_int {
        match remove_at(AT_FDCWD, path, 0) {
            Err(Errno::ISDIR) => answer(remove_at(AT_FDCWD, path, AT_REMOVEDIR)),
            outcome => answer(outcome),
        }
    }

    fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
        answer(make_dir_at(AT_FDCWD, path, mode))
    }

    fn mkdirat(dir: c_int, path: *const c_char, mode: c_uint) -> c_int {
        answer(make_dir_at(dir, path, mode))
    }

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        answer(make_at(AT_FDCWD, path, mode, device))
    }

    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        answer(make_at(dir, path, mode, device))
    }

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        answer(make_at(AT_FDCWD, path, mode | libc::S_IFIFO, 0))
    }

    fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        answer(make_at(dir, path, mode | libc::S_IFIFO, 0))
    }

    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        answer(bind_to(fd, address, len))
    }

    fn __xmknod(
        _version: c_int, path: *const c_char, mode: mode_t, device: *const dev_t,
    ) -> c_int {
        answer(make_at(AT_FDCWD, path, mode, device.read()))
    }

    fn __xmknodat(
        _version: c_int, dir: c_int, path: *const c_char, mode: mode_t, device: *const dev_t,
    ) -> c_int {
        answer(make_at(dir, path, mode, device.read()))
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        answer(rename_at(given(AT_FDCWD, from), given(AT_FDCWD, to), 0))
    }

    fn renameat(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
    ) -> c_int {
        answer(rename_at(given(from_dir, from), given(to_dir, to), 0))
    }

    fn renameat2(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int {
        answer(rename_at(given(from_dir, from), given(to_dir, to), flags))
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int {
        answer(link_at(given(AT_FDCWD, from), given(AT_FDCWD, to), 0))
    }

    fn linkat(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int,
    ) -> c_int {
        answer(link_at(given(from_dir, from), given(to_dir, to), flags))
    }

    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        answer(symlink_at(target, AT_FDCWD, path).inspect(|_| after()))
    }

    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
        answer(symlink_at(target, dir, path).inspect(|_| after()))
    }
}

/// A name as C passes it: relative to an open folder.
#[derive(Clone, Copy)]
struct Given {
    dir: c_int,
    path: *const c_char,
}

const fn given(dir: c_int, path: *const c_char) -> Given {
    Given { dir, path }
}

/// # Safety
///
/// Names are null or C strings.
unsafe fn remove_at(dir: c_int, path: *const c_char, flags: c_int) -> Outcome {
    drain_all();
    // The kernel refuses all other flags.
    let client = client().filter(|_| flags & !AT_REMOVEDIR == 0);
    // SAFETY: the caller promises null or a C string.
    if let (Some(client), Some(name)) = (client, unsafe { text(path) }) {
        if let Some(done) = client.unlink(dir, name, flags & AT_REMOVEDIR != 0) {
            return done.map(|()| 0);
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_unlinkat, dir, path, flags) }
}

/// # Safety
///
/// Names are null or C strings.
pub(crate) unsafe fn make_dir_at(dir: c_int, path: *const c_char, mode: c_uint) -> Outcome {
    // SAFETY: the caller promises null or a C string.
    if let (Some(client), Some(name)) = (client(), unsafe { text(path) }) {
        if let Some(done) = client.make_dir(dir, name, mode) {
            return done.map(|()| 0).inspect(|_| after());
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_mkdirat, dir, path, mode) }.inspect(|_| after())
}

/// As `mknodat(2)`; servers keep no special files.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn make_at(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> Outcome {
    // SAFETY: as the caller promises.
    if unsafe { remote(dir, path) }.is_some() {
        return Err(Errno::NOTSUP);
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_mknodat, dir, path, mode, device) }.inspect(|_| after())
}

/// As `bind(2)`; servers keep no sockets.
///
/// # Safety
///
/// `address` is null, or has `len` bytes.
unsafe fn bind_to(fd: c_int, address: *const sockaddr, len: socklen_t) -> Outcome {
    const PATH_AT: usize = offset_of!(sockaddr_un, sun_path);
    let lens = PATH_AT + 1..=size_of::<sockaddr_un>();
    let has_path = !address.is_null() && lens.contains(&(len as usize));
    // SAFETY: it has bytes behind the family.
    let family = has_path.then(|| unsafe { address.cast::<sa_family_t>().read_unaligned() });
    if family.is_some_and(|family| c_int::from(family) == AF_UNIX) {
        // One byte more than a path has: a NUL is behind the longest.
        let mut name = MaybeUninit::<[c_char; size_of::<sockaddr_un>()]>::zeroed();
        let (from, to) = (address.cast::<c_char>(), name.as_mut_ptr().cast::<c_char>());
        // SAFETY: `len` bytes are there, as the caller promises.
        let path = unsafe { from.add(PATH_AT) };
        // SAFETY: the rest of them, and there is room for as many.
        unsafe { path.copy_to_nonoverlapping(to, len as usize - PATH_AT) };
        // SAFETY: a C string: fewer bytes were copied than there are zeros. One that has no name,
        // or an abstract one, is empty, which no folder has.
        if unsafe { remote(AT_FDCWD, to) }.is_some_and(|(_, name)| !name.is_empty()) {
            return Err(Errno::NOTSUP);
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_bind, fd, address, len) }
}

/// # Safety
///
/// Names are null or C strings.
unsafe fn rename_at(from: Given, to: Given, flags: c_uint) -> Outcome {
    let call = || -> Outcome {
        drain_all();
        // SAFETY: the caller promises null or a C string.
        let old = unsafe { text(from.path) };
        // SAFETY: the caller promises null or a C string.
        let new = unsafe { text(to.path) };
        if let (Some(client), Some(old), Some(new)) = (client(), old, new) {
            if let Some(done) = client.rename(
                Name { dir: from.dir, path: old },
                Name { dir: to.dir, path: new },
                flags,
            ) {
                return done.map(|()| 0);
            }
        }
        // SAFETY: the program's own call.
        unsafe { kernel!(SYS_renameat2, from.dir, from.path, to.dir, to.path, flags) }
    };
    call().inspect(|_| after())
}

/// # Safety
///
/// Names are null or C strings.
unsafe fn link_at(from: Given, to: Given, flags: c_int) -> Outcome {
    let call = || -> Outcome {
        // SAFETY: the caller promises null or a C string.
        let old = unsafe { text(from.path) };
        // SAFETY: the caller promises null or a C string.
        let new = unsafe { text(to.path) };
        let follow = flags == AT_SYMLINK_FOLLOW;
        if let (Some(client), Some(old), Some(new), true) =
            (client(), old, new, follow || flags == 0)
        {
            if let Some(done) = client.link(
                Name { dir: from.dir, path: old },
                Name { dir: to.dir, path: new },
                follow,
            ) {
                return done.map(|()| 0);
            }
        }
        if let (Some(client), true) = (client(), flags & AT_EMPTY_PATH != 0) {
            client.leave(from.dir, Reason::Unsupported);
        }
        // SAFETY: the program's own call.
        unsafe { kernel!(SYS_linkat, from.dir, from.path, to.dir, to.path, flags) }
    };
    call().inspect(|_| after())
}

/// # Safety
///
/// Names are null or C strings.
unsafe fn symlink_at(target: *const c_char, dir: c_int, path: *const c_char) -> Outcome {
    // SAFETY: the caller promises null or a C string.
    let content = unsafe { text(target) };
    // SAFETY: the caller promises null or a C string.
    let name = unsafe { text(path) };
    if let (Some(client), Some(text), Some(name)) = (client(), content, name) {
        if let Some(done) = client.symlink(text, Name { dir, path: name }) {
            return done.map(|()| 0);
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_symlinkat, target, dir, path) }
}
