//! Limits of the process, and its umask. A limit of file sizes binds who makes the system call, so
//! files are the kernel's from then on. The umask is taken off modes that the daemon is sent.

use libc::{c_int, c_uint, mode_t, pid_t, rlimit};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    process_client::client,
};

interpose! {
    fn setrlimit|setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int =>
        changed(resource, kernel!(SYS_setrlimit, resource, limit));
    fn prlimit|prlimit64(
        process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit,
    ) -> c_int =>
        changed(resource, kernel!(SYS_prlimit64, process, resource, new, old));
}

interpose! { safe:
    fn umask(mask: mode_t) -> mode_t {
        // SAFETY: no pointers; the call cannot fail.
        let before = unsafe { kernel!(SYS_umask, mask) };
        if let Some(client) = client() {
            client.umask_is(mask);
        }
        before.ok().and_then(|before| mode_t::try_from(before).ok()).unwrap_or(mask)
    }
}

/// Takes note of a call that may have changed a limit of this process.
fn changed(resource: c_uint, outcome: Outcome) -> Outcome {
    if let Some(client) = client().filter(|_| resource == libc::RLIMIT_FSIZE) {
        client.limited();
    }
    outcome
}
