//! Attributes of an open file: mode, owner, times, extended attributes.
//!
//! A placeholder has none of its own, so the file behind it takes its place first. A modification
//! time that the program sets must not be changed by a drain that comes later.

use core::ffi::c_void;

use client::Errno;
use libc::{c_char, c_int, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    paths::set_times_at,
    start::client,
    sync::drain,
};

interpose! {
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        match client().and_then(|client| client.set_mode_of(fd, mode)) {
            Some(done) => answer(done),
            None => {
                drain(fd);
                answer(kernel!(SYS_fchmod, fd, mode))
            }
        }
    }

    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int {
        match client().and_then(|client| client.set_owner_of(fd, (owner, group))) {
            Some(done) => answer(done),
            None => {
                drain(fd);
                answer(kernel!(SYS_fchown, fd, owner, group))
            }
        }
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        drain(fd);
        answer(set_times_at(fd, core::ptr::null(), times, 0))
    }

    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        drain(fd);
        if times.is_null() {
            return answer(set_times_at(fd, core::ptr::null(), core::ptr::null(), 0));
        }
        let both = times.cast::<[timeval; 2]>().read();
        let both = both.map(|at| timespec { tv_sec: at.tv_sec, tv_nsec: at.tv_usec * 1000 });
        answer(set_times_at(fd, core::ptr::null(), both.as_ptr(), 0))
    }

    fn fsetxattr(
        fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int {
        answer(on_local(fd, || kernel!(SYS_fsetxattr, fd, name, value, len, flags)))
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        answer(on_local(fd, || kernel!(SYS_fgetxattr, fd, name, value, len)))
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        answer(on_local(fd, || kernel!(SYS_flistxattr, fd, list, len)))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        answer(on_local(fd, || kernel!(SYS_fremovexattr, fd, name)))
    }
}

/// Drains, and asks the kernel; a server keeps no extended attributes.
fn on_local(fd: c_int, ask: impl FnOnce() -> Outcome) -> Outcome {
    if client().is_some_and(|client| client.is_remote_file(fd)) {
        return Err(Errno::NOTSUP);
    }
    drain(fd);
    ask()
}
