//! Limits of the process. One of file sizes binds who makes the system call, so files are the
//! kernel's from then on.

use libc::{c_int, c_uint, pid_t, rlimit};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    start::client,
};

interpose! {
    fn setrlimit|setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int {
        answer(changed(resource, kernel!(SYS_setrlimit, resource, limit)))
    }

    fn prlimit|prlimit64(
        process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit,
    ) -> c_int {
        answer(changed(resource, kernel!(SYS_prlimit64, process, resource, new, old)))
    }
}

/// Takes note of a call that may have changed a limit of this process.
fn changed(resource: c_uint, outcome: Outcome) -> Outcome {
    if let Some(client) = client().filter(|_| resource == libc::RLIMIT_FSIZE) {
        client.limited();
    }
    outcome
}
