//! Calls that change names. Under policy `delegate` they are the daemon's to make.
//!
//! To other programs a name may be a lock. So before one goes, all that is staged is in the files:
//! whoever finds it gone finds what was written before; and once there is one, nothing counts any
//! more that was read ahead before.

use core::{
    ffi::{CStr, c_void},
    mem::offset_of,
};

use client::{Errno, Name};
use libc::{
    AF_UNIX, AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW,
    RENAME_EXCHANGE, c_int, c_uint, dev_t, mode_t, sa_family_t, sockaddr_un, socklen_t,
};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask},
    lock::after,
    path_attributes::remote,
    pointers::{Data, Given, Text},
    process_client::client,
    settle::settle_found,
    sync::drain_all,
};

interpose! { safe:
    fn unlink(path: Text<'_>) -> c_int => remove_at(AT_FDCWD, path, 0);
    fn unlinkat(dir: c_int, path: Text<'_>, flags: c_int) -> c_int => remove_at(dir, path, flags);
    fn rmdir(path: Text<'_>) -> c_int => remove_at(AT_FDCWD, path, AT_REMOVEDIR);

    fn remove(path: Text<'_>) -> c_int {
        match remove_at(AT_FDCWD, path, 0) {
            Err(Errno::ISDIR) => answer(remove_at(AT_FDCWD, path, AT_REMOVEDIR)),
            outcome => answer(outcome),
        }
    }

    fn mkdir(path: Text<'_>, mode: c_uint) -> c_int => make_dir_at(AT_FDCWD, path, mode);
    fn mkdirat(dir: c_int, path: Text<'_>, mode: c_uint) -> c_int => make_dir_at(dir, path, mode);
    fn mknod(path: Text<'_>, mode: mode_t, device: dev_t) -> c_int =>
        make_at(AT_FDCWD, path, mode, device);
    fn mknodat(dir: c_int, path: Text<'_>, mode: mode_t, device: dev_t) -> c_int =>
        make_at(dir, path, mode, device);
    fn mkfifo(path: Text<'_>, mode: mode_t) -> c_int =>
        make_at(AT_FDCWD, path, mode | libc::S_IFIFO, 0);
    fn mkfifoat(dir: c_int, path: Text<'_>, mode: mode_t) -> c_int =>
        make_at(dir, path, mode | libc::S_IFIFO, 0);
    fn __xmknod(
        _version: c_int, path: Text<'_>, mode: mode_t, device: Given<'_, dev_t>,
    ) -> c_int =>
        make_device_at(AT_FDCWD, path, mode, device);
    fn __xmknodat(
        _version: c_int, dir: c_int, path: Text<'_>, mode: mode_t, device: Given<'_, dev_t>,
    ) -> c_int =>
        make_device_at(dir, path, mode, device);
    fn rename(from: Text<'_>, to: Text<'_>) -> c_int =>
        rename_at(at_path(AT_FDCWD, from), at_path(AT_FDCWD, to), 0);
    fn renameat(
        from_dir: c_int, from: Text<'_>, to_dir: c_int, to: Text<'_>,
    ) -> c_int =>
        rename_at(at_path(from_dir, from), at_path(to_dir, to), 0);
    fn renameat2(
        from_dir: c_int, from: Text<'_>, to_dir: c_int, to: Text<'_>, flags: c_uint,
    ) -> c_int =>
        rename_at(at_path(from_dir, from), at_path(to_dir, to), flags);
    fn link(from: Text<'_>, to: Text<'_>) -> c_int =>
        link_at(at_path(AT_FDCWD, from), at_path(AT_FDCWD, to), 0);
    fn linkat(
        from_dir: c_int, from: Text<'_>, to_dir: c_int, to: Text<'_>, flags: c_int,
    ) -> c_int =>
        link_at(at_path(from_dir, from), at_path(to_dir, to), flags);
    fn symlink(target: Text<'_>, path: Text<'_>) -> c_int =>
        symlink_at(target, AT_FDCWD, path).inspect(|_| after());
    fn symlinkat(target: Text<'_>, dir: c_int, path: Text<'_>) -> c_int =>
        symlink_at(target, dir, path).inspect(|_| after());
}

interpose! {
    fn bind(fd: c_int, address: *const c_void, len: socklen_t) -> c_int =>
        bind_to(fd, Data::new(address, len as usize));
}

/// A name as C passes it: relative to an open folder.
#[derive(Clone, Copy)]
struct AtPath<'a> {
    dir: c_int,
    path: Text<'a>,
}

const fn at_path(dir: c_int, path: Text<'_>) -> AtPath<'_> {
    AtPath { dir, path }
}

fn remove_at(dir: c_int, path: Text<'_>, flags: c_int) -> Outcome {
    drain_all();
    // The kernel refuses all other flags.
    let client = client().filter(|_| flags & !AT_REMOVEDIR == 0);
    if let (Some(client), Some(name)) = (client, path.get()) {
        if let Some(done) = client.unlink(dir, name, flags & AT_REMOVEDIR != 0) {
            return done.map(|()| 0);
        }
    }
    ask!(SYS_unlinkat, dir, path, flags)
}

pub(crate) fn make_dir_at(dir: c_int, path: Text<'_>, mode: c_uint) -> Outcome {
    if let (Some(client), Some(name)) = (client(), path.get()) {
        if let Some(done) = client.make_dir(dir, name, mode) {
            return done.map(|()| 0).inspect(|_| after());
        }
    }
    ask!(SYS_mkdirat, dir, path, mode).inspect(|_| after())
}

/// As `mknodat(2)`; servers keep no special files.
fn make_at(dir: c_int, path: Text<'_>, mode: mode_t, device: dev_t) -> Outcome {
    if remote(dir, path).is_some() {
        return Err(Errno::NOTSUP);
    }
    ask!(SYS_mknodat, dir, path, mode, device).inspect(|_| after())
}

/// As [`make_at`], of a device that older C libraries pass by its address.
fn make_device_at(dir: c_int, path: Text<'_>, mode: mode_t, device: Given<'_, dev_t>) -> Outcome {
    make_at(dir, path, mode, device.get().ok_or(Errno::FAULT)?)
}

/// As `bind(2)`; servers keep no sockets.
fn bind_to(fd: c_int, address: Data<'_>) -> Outcome {
    const PATH_AT: usize = offset_of!(sockaddr_un, sun_path);
    const FAMILY_LEN: usize = size_of::<sa_family_t>();
    let lens = PATH_AT + 1..=size_of::<sockaddr_un>();
    let bytes = lens.contains(&address.len()).then(|| address.slice().ok()).flatten();
    let family = bytes.and_then(|bytes| bytes.first_chunk::<FAMILY_LEN>());
    let is_local =
        family.is_some_and(|bytes| c_int::from(sa_family_t::from_le_bytes(*bytes)) == AF_UNIX);
    if let Some(path) = bytes.and_then(|bytes| bytes.get(PATH_AT..)).filter(|_| is_local) {
        // One byte more than a path has: a NUL is behind the longest.
        let mut name = [0; size_of::<sockaddr_un>()];
        name.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        // One that has no name, or an abstract one, is empty, which no folder has.
        if !name.is_empty() && remote(AT_FDCWD, Text::of(name)).is_some() {
            return Err(Errno::NOTSUP);
        }
    }
    ask!(SYS_bind, fd, address.at(), address.len())
}

/// The error of staged bytes that a file's new name would be without. The daemon looks at those
/// that are remote.
fn owed_for(AtPath { dir, path }: &AtPath<'_>) -> Option<Errno> {
    let client = client().filter(|_| remote(*dir, *path).is_none())?;
    client.owed_for(|| settle_found(client, *dir, *path, AT_SYMLINK_NOFOLLOW))
}

fn rename_at(from: AtPath<'_>, to: AtPath<'_>, flags: c_uint) -> Outcome {
    let call = || -> Outcome {
        drain_all();
        if let Some(errno) = owed_for(&from) {
            return Err(errno);
        }
        if flags & RENAME_EXCHANGE != 0 {
            if let Some(errno) = owed_for(&to) {
                return Err(errno);
            }
        }
        let old = from.path.get();
        let new = to.path.get();
        if let (Some(client), Some(old), Some(new)) = (client(), old, new) {
            if let Some(done) = client.rename(
                Name { dir: from.dir, path: old },
                Name { dir: to.dir, path: new },
                flags,
            ) {
                return done.map(|()| 0);
            }
        }
        ask!(SYS_renameat2, from.dir, from.path, to.dir, to.path, flags)
    };
    call().inspect(|_| after())
}

fn link_at(from: AtPath<'_>, to: AtPath<'_>, flags: c_int) -> Outcome {
    let call = || -> Outcome {
        let old = from.path.get();
        let new = to.path.get();
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
        let unnamed = from.path.get().filter(|_| flags & AT_EMPTY_PATH != 0);
        if let Some((client, name)) = client().zip(unnamed) {
            client.detach_at(from.dir, name)?;
        }
        ask!(SYS_linkat, from.dir, from.path, to.dir, to.path, flags)
    };
    call().inspect(|_| after())
}

fn symlink_at(target: Text<'_>, dir: c_int, path: Text<'_>) -> Outcome {
    let content = target.get();
    let name = path.get();
    if let (Some(client), Some(text), Some(name)) = (client(), content, name) {
        if let Some(done) = client.symlink(text, Name { dir, path: name }) {
            return done.map(|()| 0);
        }
    }
    ask!(SYS_symlinkat, target, dir, path)
}
