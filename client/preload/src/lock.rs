//! Locks. They stay with the kernel; a locked file is written through.

use client::{Client, Errno};
use libc::{c_int, off_t};

use crate::{
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, blocking},
    position,
    start::client,
};

interpose! {
    fn flock(fd: c_int, operation: c_int) -> c_int {
        match client().map_or(Ok(()), |client| before(client, fd)) {
            Ok(()) => answer(blocking!(SYS_flock, fd, operation)),
            Err(errno) => answer(Err::<c_int, _>(errno)),
        }
    }

    fn lockf|lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
        if let Err(errno) = client().map_or(Ok(()), |client| before(client, fd)) {
            return answer(Err::<c_int, _>(errno));
        }
        next!(lockf(fd => c_int, command => c_int, len => off_t) -> c_int)
    }
}

/// Before a lock is taken: what it guards is in the file, and ranges that count from the file
/// position find the kernel's to be right.
///
/// # Errors
///
/// `ENOSYS`: the file is remote, and its server keeps no locks. As parallel file systems without
/// locks say it, which HDF5 takes for permission to go on.
pub(crate) fn before(client: &'static Client, fd: c_int) -> Outcome<()> {
    if client.is_remote_file(fd) {
        return Err(Errno::NOSYS);
    }
    client.lock(fd);
    position::publish(client, fd);
    Ok(())
}
