//! Attributes of an open file: mode, owner, times, extended attributes.
//!
//! A placeholder has none of its own, so the file behind it takes its place first. A modification
//! time that the program sets must not be changed by a drain that comes later.

use core::ffi::c_void;

use libc::{c_char, c_int, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t};

use crate::{
    errno::answer,
    interpose::{interpose, next},
    kernel::kernel,
    sync::drain,
};

interpose! {
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        drain(fd);
        answer(kernel!(SYS_fchmod, fd, mode))
    }

    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int {
        drain(fd);
        answer(kernel!(SYS_fchown, fd, owner, group))
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        drain(fd);
        next!(futimens(fd => c_int, times => *const timespec) -> c_int)
    }

    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        drain(fd);
        next!(futimes(fd => c_int, times => *const timeval) -> c_int)
    }

    fn fsetxattr(
        fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int {
        drain(fd);
        answer(kernel!(SYS_fsetxattr, fd, name, value, len, flags))
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        drain(fd);
        answer(kernel!(SYS_fgetxattr, fd, name, value, len))
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        drain(fd);
        answer(kernel!(SYS_flistxattr, fd, list, len))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        drain(fd);
        answer(kernel!(SYS_fremovexattr, fd, name))
    }
}
