//! Mapping files.

use client::{Errno, Reason};
use libc::{c_int, c_void, off_t, size_t};
use rustix::fd::{AsRawFd, OwnedFd};

use crate::{
    bits::signed,
    descriptor::is_writable,
    errno::set,
    interpose::{interpose, next},
    start::client,
};

interpose! {
    fn mmap|mmap64(
        hint: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t,
    ) -> *mut c_void {
        let copy = match copy_of(fd, protection, flags) {
            Ok(copy) => copy,
            Err(errno) => {
                set(errno);
                return libc::MAP_FAILED;
            }
        };
        if flags & libc::MAP_ANONYMOUS == 0 && copy.is_none() {
            before(fd);
        }
        let fd = copy.as_ref().map_or(fd, AsRawFd::as_raw_fd);
        // By libc's own code, which registration caches (UCX, libfabric) and interceptors patch.
        next!(
            mmap(
                hint => *mut c_void, len => size_t, protection => c_int, flags => c_int,
                fd => c_int, at => off_t,
            ) -> *mut c_void
        )
    }
}

/// What to map in the place of a remote file: a copy of what is in it now. One that is written
/// through the mapping cannot be had.
fn copy_of(fd: c_int, protection: c_int, flags: c_int) -> Result<Option<OwnedFd>, Errno> {
    let Some(client) = client().filter(|_| flags & libc::MAP_ANONYMOUS == 0) else {
        return Ok(None);
    };
    let writes = flags & libc::MAP_PRIVATE == 0 && protection & libc::PROT_WRITE != 0;
    // What the kernel says of a file that is not open for that; a placeholder is for nothing.
    match client.flags(fd).map(|flags| signed(flags) & libc::O_ACCMODE) {
        Some(libc::O_WRONLY) => return Err(Errno::ACCESS),
        Some(libc::O_RDONLY) if writes => return Err(Errno::ACCESS),
        _ => {}
    }
    if writes && client.is_remote_file(fd) {
        return Err(Errno::NODEV);
    }
    client.copy_of(fd).transpose()
}

/// A mapping shows what is in the file, at every moment: a file that the program can still write is
/// left to the kernel, one that it only reads has to be complete.
fn before(fd: c_int) {
    let Some(client) = client() else { return };
    client.mapping(fd);
    if !client.is_delegated(fd) {
        return;
    }
    if is_writable(client, fd) {
        client.leave(fd, Reason::Mapped);
    } else {
        client.drain(fd);
    }
}
