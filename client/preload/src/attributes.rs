//! Attributes of an open file: mode, owner, times.
//!
//! A placeholder has none of its own, so the file behind it takes its place first. A modification
//! time that the program sets must not be changed by a drain that comes later.

use client::Errno;
use libc::{c_char, c_int, gid_t, mode_t, timespec, timeval, uid_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::kernel,
    paths::{precise, set_times_at, set_times_of},
    served::client,
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
        match client().and_then(|client| client.set_owner_of(fd, owner, group)) {
            Some(done) => answer(done),
            None => {
                drain(fd);
                answer(kernel!(SYS_fchown, fd, owner, group))
            }
        }
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        if fd < 0 {
            return answer(Err::<c_int, _>(Errno::BADF));
        }
        drain(fd);
        answer(set_times_at(fd, core::ptr::null(), times, 0))
    }

    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        if fd < 0 {
            return answer(Err::<c_int, _>(Errno::BADF));
        }
        drain(fd);
        if times.is_null() {
            return answer(set_times_at(fd, core::ptr::null(), core::ptr::null(), 0));
        }
        let both = times.cast::<[timeval; 2]>().read();
        let both = both.map(precise);
        answer(set_times_at(fd, core::ptr::null(), both.as_ptr(), 0))
    }

    fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int {
        if path.is_null() {
            return futimes(dir, times);
        }
        answer(set_times_of(dir, path, times, 0))
    }
}
