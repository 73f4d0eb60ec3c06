//! Attributes of an open file: mode, owner, times.
//!
//! A placeholder has none of its own, so the file behind it takes its place first. A modification
//! time that the program sets must not be changed by a drain that comes later.

use libc::{c_int, gid_t, mode_t, timespec, timeval, uid_t};

use crate::{
    errno::answer,
    interpose::interpose,
    path_attributes::{precise, set_mode, set_owner, set_times, set_times_of},
    pointers::{Given, Text},
};

interpose! { safe:
    fn fchmod(fd: c_int, mode: mode_t) -> c_int => set_mode(fd, mode);
    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int => set_owner(fd, owner, group);
    fn futimens(fd: c_int, times: Given<'_, [timespec; 2]>) -> c_int => set_times(fd, times);

    fn futimes(fd: c_int, times: Given<'_, [timeval; 2]>) -> c_int {
        let both = times.get().map(|both| both.map(precise));
        answer(set_times(fd, both.as_ref().map_or(Given::NULL, Given::of)))
    }

    fn futimesat(dir: c_int, path: Text<'_>, times: Given<'_, [timeval; 2]>) -> c_int {
        if path.is_null() {
            return futimes(dir, times);
        }
        answer(set_times_of(dir, path, times, 0))
    }
}
