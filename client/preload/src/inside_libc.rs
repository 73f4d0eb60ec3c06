//! Functions in which libc itself reads and writes the program's files, past every wrapper.
//!
//! A file that they find by a name has what this process has written so far.

use client::Reason;
use libc::{Lmid_t, c_char, c_int, c_void};

use crate::{
    interpose::{interpose, next},
    process_client::client,
    sync::drain_all,
};

interpose! {
    // It counts from the kernel's position.
    fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) {
        if let Some(client) = client() {
            client.detach(fd, Reason::Unsupported);
        }
        next!(
            backtrace_symbols_fd(
                frames => *const *mut c_void, count => c_int, fd => c_int,
            ) -> ()
        )
    }

    // libc looks for a library where the caller of this is, whose address it takes from the stack.
    // So these end in a call that the compiler makes a jump; a test fails where it does not.
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
        before_load(flags);
        next!(dlopen(name => *const c_char, flags => c_int) -> *mut c_void)
    }

    fn dlmopen(space: Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void {
        before_load(if space == libc::LM_ID_BASE { flags } else { libc::RTLD_DEEPBIND });
        next!(dlmopen(space => Lmid_t, name => *const c_char, flags => c_int) -> *mut c_void)
    }
}

/// A library that was just written is whole before it is mapped. One that is bound to libc past
/// everybody else, or to a libc of its own, may write to what the program has open, and nobody sees
/// it; to bind it otherwise might give it another library's functions in the place of its own.
fn before_load(flags: c_int) {
    if flags & libc::RTLD_DEEPBIND == 0 {
        drain_all();
    } else if let Some(client) = client() {
        client.detach_open();
    }
}
