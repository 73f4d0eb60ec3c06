//! Sandboxes that a process enters: what it denies itself the daemon does not do for it.
//!
//! A seccomp filter allows system calls, and may kill the process for another than the one it makes
//! natively. So the kernel has every open file before, and every call is a plain system call from
//! then on. A Landlock domain denies names: the process opens files itself, and remote names, which
//! it cannot open itself, are refused. A process that gives up a user, groups, or capabilities
//! opens files itself, too; what is remote is checked against the server's user in any case.

use libc::{c_char, c_int, c_long, c_void, gid_t, size_t, uid_t};

use crate::{
    errno::answer,
    interpose::{interpose, next},
    kernel::{self, Outcome, kernel},
    process_client::{client, resume, retire},
    start::say,
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

/// Defines libc's functions that change who a process is.
macro_rules! becoming {
    ($(fn $name:ident($($arg:ident: $type:ty),+);)+) => {
        interpose! {
            $(
                fn $name($($arg: $type),+) -> c_int {
                    let done = next!($name($($arg => $type),+) -> c_int);
                    became();
                    done
                }
            )+
        }
    };
}

becoming! {
    fn setuid(user: uid_t);
    fn setgid(group: gid_t);
    fn seteuid(user: uid_t);
    fn setegid(group: gid_t);
    fn setreuid(real: uid_t, effective: uid_t);
    fn setregid(real: gid_t, effective: gid_t);
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    fn setgroups(count: size_t, groups: *const gid_t);
    fn initgroups(user: *const c_char, group: gid_t);
    fn setfsuid(user: uid_t);
    fn setfsgid(group: gid_t);
    fn capset(header: *mut c_void, data: *const c_void);
}

/// Makes a system call that changes who the calling thread is.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn become_other(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: ids, or lists of them as the program gave them; no memory but theirs is read.
    let done = unsafe { kernel::call(number, args) };
    became();
    done
}

/// The process may be somebody else, or may do less, than the daemon.
fn became() {
    if let Some(client) = client() {
        client.change_view();
    }
}

/// As `seccomp(2)`.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn filter(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: the program's filter, which the kernel reads; what it forbids is the program's will.
    let call = || unsafe { kernel::call(number, args) };
    if matches!(args, [STRICT | FILTER, ..]) { filtered(call) } else { call() }
}

/// As `landlock_restrict_self(2)`.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn restrict(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: two numbers, a rule set's and flags.
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
