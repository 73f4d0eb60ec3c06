//! Locks. They stay with the kernel; a locked file is written through.

use client::Client;
use libc::{c_int, off_t};

use crate::{
    errno::answer,
    interpose::{interpose, next},
    kernel::blocking,
    position,
    start::client,
};

interpose! {
    fn flock(fd: c_int, operation: c_int) -> c_int {
        if let Some(client) = client() {
            before(client, fd);
        }
        answer(blocking!(SYS_flock, fd, operation))
    }

    fn lockf|lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
        if let Some(client) = client() {
            before(client, fd);
        }
        next!(lockf(fd => c_int, command => c_int, len => off_t) -> c_int)
    }
}

/// Before a lock is taken: what it guards is in the file, and ranges that count from the file
/// position find the kernel's to be right.
pub(crate) fn before(client: &'static Client, fd: c_int) {
    client.lock(fd);
    position::publish(client, fd);
}
