//! Processes that begin, become another program, and end.
//!
//! libc runs handlers of the program's within `fork`, which may use files like any other code. So
//! what a fork needs done here is done by such handlers, too, of which libc knows before any other:
//! then the one before the fork comes after the program's, and the one in the child before them.
#![expect(non_snake_case, reason = "as C has it")]

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use libc::{c_char, c_int, pid_t};

use crate::{
    cookie,
    descriptor::forget,
    environment::{Strings, environ, with_ours},
    errno::answer,
    glibc::Stream,
    interpose::{interpose, next},
    kernel::{Outcome, ignore, kernel},
    plain_streams::made_plain,
    process_client::client,
};

/// A handler that is run at a fork.
type Handler = Option<extern "C" fn()>;

interpose! {
    // Runs no handlers.
    fn _Fork() -> pid_t {
        before_fork();
        let child = next!(_Fork() -> pid_t);
        if child == 0 {
            in_child();
        }
        child
    }

    fn __register_atfork(
        before: Handler, in_parent: Handler, in_child: Handler, library: *mut c_void,
    ) -> c_int {
        watch_forks();
        register(before, in_parent, in_child, library)
    }

    fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int {
        let parent = libc::getpid();
        let outcome = next!(daemon(keep_folder => c_int, keep_streams => c_int) -> c_int);
        if libc::getpid() != parent && keep_streams == 0 {
            [0, 1, 2].into_iter().for_each(forget);
        }
        outcome
    }

    fn execve(path: *const c_char, arguments: Strings, variables: Strings) -> c_int =>
        execute(path, arguments, variables);
    fn execv(path: *const c_char, arguments: Strings) -> c_int => execute(path, arguments, environ);

    fn execvp(file: *const c_char, arguments: Strings) -> c_int {
        execute_found(file, arguments, environ)
    }

    fn execvpe(file: *const c_char, arguments: Strings, variables: Strings) -> c_int {
        execute_found(file, arguments, variables)
    }

    fn fexecve(fd: c_int, arguments: Strings, variables: Strings) -> c_int {
        before_exec(true);
        with_ours(variables, |variables| {
            next!(fexecve(fd => c_int, arguments => Strings, variables => Strings) -> c_int)
        })
    }

    fn execveat(
        dir: c_int, path: *const c_char, arguments: Strings, variables: Strings, flags: c_int,
    ) -> c_int {
        before_exec(true);
        answer(with_ours(variables, |variables| {
            kernel!(SYS_execveat, dir, path, arguments, variables, flags)
        }))
    }

    fn system(command: *const c_char) -> c_int, next {
        before_exec(false);
        next()
    }

    fn popen(command: *const c_char, mode: *const c_char) -> Stream<'static>, next {
        before_exec(false);
        let stream = next();
        if !stream.is_null() {
            forget(stream.number());
        }
        made_plain(stream)
    }

    fn _exit|_Exit(status: c_int) {
        exiting();
        loop {
            // The call does not return.
            ignore(kernel!(SYS_exit_group, status));
        }
    }
}

/// Defines libc's functions that start another program. An older libc has not all of them: then the
/// answer is a younger one's on a kernel without.
macro_rules! spawning {
    ($(fn $name:ident(*mut $process:ty);)+) => {
        interpose! {
            $(
                fn $name(
                    process: *mut $process, path: *const c_char, actions: *const c_void,
                    attributes: *const c_void, arguments: Strings, variables: Strings,
                ) -> c_int {
                    before_spawn(actions);
                    let spawned = with_ours(variables, |variables| {
                        next!(
                            @younger $name(
                                process => *mut $process, path => *const c_char,
                                actions => *const c_void, attributes => *const c_void,
                                arguments => Strings, variables => Strings,
                            ) -> c_int
                        )
                    });
                    spawned.unwrap_or(libc::ENOSYS)
                }
            )+
        }
    };
}

spawning! {
    fn posix_spawn(*mut pid_t);
    fn posix_spawnp(*mut pid_t);
    fn pidfd_spawn(*mut c_int);
    fn pidfd_spawnp(*mut c_int);
}

/// Has libc run what a fork needs, if it does not yet.
pub(crate) fn watch_forks() {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHING.swap(true, Ordering::Relaxed) {
        // There is room for these, as for the first ones. They belong to no library, with whose end
        // they would be dropped while destructors may yet fork.
        // SAFETY: all may be called whenever somebody forks.
        unsafe { register(Some(before_fork), None, Some(in_child), ptr::null_mut()) };
    }
}

/// Gives libc functions to be run at each fork, until the library that they belong to ends.
///
/// # Safety
///
/// As `pthread_atfork(3)`.
unsafe fn register(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *mut c_void,
) -> c_int {
    // SAFETY: libc runs the handlers, which the caller lets it, and looks at nothing else.
    unsafe {
        next!(
            __register_atfork(
                before => Handler, in_parent => Handler, in_child => Handler,
                library => *mut c_void,
            ) -> c_int
        )
    }
}

/// Every open file is left to the kernel, which both processes share.
pub(crate) extern "C" fn before_fork() {
    if let Some(client) = client() {
        client.before_fork();
    }
}

/// The child of a fork starts.
pub(crate) extern "C" fn in_child() {
    if let Some(client) = client() {
        client.after_fork_in_child();
        cookie::vacate_in_child();
    }
}

/// Another program is about to read what this one wrote.
pub(crate) fn before_exec(replaces: bool) {
    if let Some(client) = client() {
        client.before_exec(replaces);
        client.drain_all();
    }
}

/// The actions cannot be read, and may hand any open file to the child: then as before a fork.
fn before_spawn(actions: *const c_void) {
    if actions.is_null() {
        before_exec(false);
    } else {
        before_fork();
    }
}

pub(crate) fn exiting() {
    if let Some(client) = client() {
        client.exiting();
    }
}

/// As `execve(2)`.
///
/// # Safety
///
/// The arguments are as `execve` asks.
pub(crate) unsafe fn execute(
    path: *const c_char,
    arguments: Strings,
    variables: Strings,
) -> Outcome {
    before_exec(true);
    // SAFETY: a path and two lists that the kernel copies before this program is no more.
    let start = |variables| unsafe { kernel!(SYS_execve, path, arguments, variables) };
    // SAFETY: the variables of `execve`, a list that ends.
    unsafe { with_ours(variables, start) }
}

/// As `execvpe(3)`: libc looks for the file in the folders of `PATH`.
///
/// # Safety
///
/// The arguments are as `execvpe` asks.
pub(crate) unsafe fn execute_found(
    file: *const c_char,
    arguments: Strings,
    variables: Strings,
) -> c_int {
    before_exec(true);
    // SAFETY: `execvpe` asks for a name and two lists, as the program gave them.
    let start = |variables| unsafe {
        next!(execvpe(file => *const c_char, arguments => Strings, variables => Strings) -> c_int)
    };
    // SAFETY: the variables of `execvpe`, a list that ends.
    unsafe { with_ours(variables, start) }
}
