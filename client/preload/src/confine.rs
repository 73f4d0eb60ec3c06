//! Sandboxes that a process enters: what it denies itself the daemon does not do for it.
//!
//! A seccomp filter allows system calls, and may kill the process for another than the one it makes
//! natively. So the kernel has every open file before, and every call is a plain system call from
//! then on. A Landlock domain denies names: the process opens files itself, and remote names, which
//! it cannot open itself, are refused.

use libc::{c_int, c_long};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{self, Outcome, kernel},
    start::{client, resume, retire, say},
};

/// One of the younger calls, which have one number everywhere.
#[expect(non_upper_case_globals, reason = "as libc names those that it knows")]
pub(crate) const SYS_landlock_restrict_self: c_long = 446;

/// Operations of `seccomp` that install a filter.
const STRICT: usize = 0;
const FILTER: usize = 1;

interpose! {
    fn prctl(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
        let call = || kernel!(SYS_prctl, option, b, c, d, e);
        answer(if option == libc::PR_SET_SECCOMP { filtered(call) } else { call() })
    }
}

/// As `seccomp(2)`.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn filter(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: as the caller promises.
    let call = || unsafe { kernel::call(number, args) };
    if matches!(args, [STRICT | FILTER, ..]) { filtered(call) } else { call() }
}

/// As `landlock_restrict_self(2)`.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn restrict(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: as the caller promises.
    let done = unsafe { kernel::call(number, args) }?;
    if let Some(client) = client() {
        client.confine();
    }
    Ok(done)
}

/// Installs a filter in a process that makes plain system calls from now on.
fn filtered(install: impl FnOnce() -> Outcome) -> Outcome {
    let Some(client) = client() else { return install() };
    if client.has_remote() {
        say(["seccomp filter installed: remote folders are not served in this process", "", ""]);
    }
    retire();
    install().inspect_err(|_| resume())
}
