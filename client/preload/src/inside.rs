//! Functions in which libc itself reads and writes the program's files, past every wrapper.

use client::Reason;
use libc::{c_int, c_void};

use crate::{
    interpose::{interpose, next},
    start::client,
};

interpose! {
    // It counts from the kernel's position.
    fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) {
        if let Some(client) = client() {
            client.leave(fd, Reason::Unsupported);
        }
        next!(
            backtrace_symbols_fd(
                frames => *const *mut c_void, count => c_int, fd => c_int,
            ) -> ()
        )
    }
}
