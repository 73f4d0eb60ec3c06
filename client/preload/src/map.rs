//! Mapping files.

use client::{Client, Errno, Reason};
use libc::{c_int, c_void, off_t, size_t};
use rustix::fd::{AsRawFd, OwnedFd};

use crate::{
    argument::number,
    bits::signed,
    descriptor::is_writable,
    errno::set,
    interpose::{interpose, next},
    kernel::{Outcome, kernel},
    process_client::client,
};

interpose! {
    // By libc's own code, which registration caches (UCX, libfabric) and interceptors patch.
    fn mmap|mmap64(
        hint: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t,
    ) -> *mut c_void {
        let call = |fd: c_int| {
            next!(
                mmap(
                    hint => *mut c_void, len => size_t, protection => c_int, flags => c_int,
                    fd => c_int, at => off_t,
                ) -> *mut c_void
            )
        };
        with_content(fd, protection, flags, call).unwrap_or_else(|errno| {
            set(errno);
            libc::MAP_FAILED
        })
    }
}

/// As the system call `mmap`: what patches libc's code ends in one.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn call(args: [usize; 6]) -> Outcome {
    let [hint, len, protection, flags, fd, at] = args;
    let (protection, flags, fd) = (number(protection), number(flags), number(fd));
    // SAFETY: the program's own mapping, of another number for the same file at most.
    let call = |fd| unsafe { kernel!(SYS_mmap, hint, len, protection, flags, fd, at) };
    with_content(fd, protection, flags, call)?
}

/// Maps what is in a file now.
fn with_content<T>(
    fd: c_int,
    protection: c_int,
    flags: c_int,
    map: impl FnOnce(c_int) -> T,
) -> Outcome<T> {
    let Some(client) = client().filter(|_| flags & libc::MAP_ANONYMOUS == 0) else {
        return Ok(map(fd));
    };
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if client.map_unexamined(fd, is_shared) {
        return Ok(map(fd));
    }
    let real = in_view(client, fd, is_shared && protection & libc::PROT_WRITE != 0)?;
    if real.is_none() {
        before(client, fd, is_shared);
    }
    Ok(map(real.as_ref().map_or(fd, AsRawFd::as_raw_fd)))
}

/// Returns what to map in place of a remote file: the file in its folder's view. The mapping
/// `writes` what others see.
fn in_view(client: &'static Client, fd: c_int, writes: bool) -> Result<Option<OwnedFd>, Errno> {
    // What the kernel says of a file that is not open for that; a placeholder is for nothing.
    match client.flags(fd).map(|flags| signed(flags) & libc::O_ACCMODE) {
        Some(libc::O_WRONLY) => return Err(Errno::ACCESS),
        Some(libc::O_RDONLY) if writes => return Err(Errno::ACCESS),
        _ => {}
    }
    if !client.is_remote_file(fd) {
        return Ok(None);
    }
    // What it writes by its descriptor, or by the mapping, both have to show.
    if is_writable(client, fd) && client.detach_to_view(fd, Reason::Mapped) {
        return Ok(None);
    }
    if writes {
        return Err(Errno::NODEV);
    }
    client.opened_in_view(fd).map(Some).map_err(|_| Errno::NODEV)
}

/// A mapping shows what is in the file, at every moment: a file that the program can still write is
/// left to the kernel, one that it only reads has to be complete, and what others have staged is
/// drained.
fn before(client: &'static Client, fd: c_int, is_shared: bool) {
    client.mapping(fd, is_shared);
    if !client.is_file(fd) {
        return;
    }
    if is_writable(client, fd) {
        client.detach(fd, Reason::Mapped);
    } else {
        client.drain(fd);
    }
}
