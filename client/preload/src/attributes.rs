//! Attributes of an open file: mode, owner, times.
//!
//! A placeholder has none of its own, so the file behind it takes its place first. A modification
//! time that the program sets must not be changed by a drain that comes later.

use client::Errno;
use libc::{c_int, gid_t, mode_t, timespec, timeval, uid_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::ask,
    path_attributes::{precise, set_times_at, set_times_of},
    pointers::{Given, Text},
    process_client::client,
    sync::drain,
};

interpose! { safe:
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        match client().and_then(|client| client.set_mode_of(fd, mode)) {
            Some(done) => answer(done),
            None => {
                drain(fd);
                answer(ask!(SYS_fchmod, fd, mode))
            }
        }
    }

    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int {
        match client().and_then(|client| client.set_owner_of(fd, owner, group)) {
            Some(done) => answer(done),
            None => {
                drain(fd);
                answer(ask!(SYS_fchown, fd, owner, group))
            }
        }
    }

    fn futimens(fd: c_int, times: Given<'_, [timespec; 2]>) -> c_int {
        if fd < 0 {
            return answer(Err::<c_int, _>(Errno::BADF));
        }
        drain(fd);
        answer(set_times_at(fd, Text::NULL, times, 0))
    }

    fn futimes(fd: c_int, times: Given<'_, [timeval; 2]>) -> c_int {
        if fd < 0 {
            return answer(Err::<c_int, _>(Errno::BADF));
        }
        drain(fd);
        let both = times.get().map(|both| both.map(precise));
        let times = both.as_ref().map_or(Given::NULL, Given::of);
        answer(set_times_at(fd, Text::NULL, times, 0))
    }

    fn futimesat(dir: c_int, path: Text<'_>, times: Given<'_, [timeval; 2]>) -> c_int {
        if path.is_null() {
            return futimes(dir, times);
        }
        answer(set_times_of(dir, path, times, 0))
    }
}
