//! Processes that begin, become another program, and end.
#![expect(non_snake_case, reason = "as C has it")]

use core::ffi::c_void;

use libc::{c_char, c_int, pid_t};

use crate::{
    environment::with_ours,
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, ignore, kernel},
    start::client,
};

/// `argv` or `envp`: C strings up to a null pointer.
pub(crate) type Strings = *const *const c_char;

interpose! {
    // A child of `vfork` would change this process's tables.
    fn fork|__fork|vfork|__vfork() -> pid_t {
        forked(|| next!(fork() -> pid_t))
    }

    fn _Fork() -> pid_t {
        forked(|| next!(_Fork() -> pid_t))
    }

    fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int {
        before_fork();
        let parent = libc::getpid();
        let outcome = next!(daemon(keep_folder => c_int, keep_streams => c_int) -> c_int);
        if libc::getpid() != parent {
            in_child(if keep_streams == 0 { &[0, 1, 2] } else { &[] });
        }
        outcome
    }

    fn execve(path: *const c_char, arguments: Strings, variables: Strings) -> c_int {
        answer(execute(path, arguments, variables))
    }

    fn execv(path: *const c_char, arguments: Strings) -> c_int {
        answer(execute(path, arguments, environ))
    }

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

    fn posix_spawn(
        process: *mut pid_t, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, variables: Strings,
    ) -> c_int {
        before_spawn(actions);
        with_ours(variables, |variables| {
            next!(
                posix_spawn(
                    process => *mut pid_t, path => *const c_char, actions => *const c_void,
                    attributes => *const c_void, arguments => Strings, variables => Strings,
                ) -> c_int
            )
        })
    }

    fn posix_spawnp(
        process: *mut pid_t, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, variables: Strings,
    ) -> c_int {
        before_spawn(actions);
        with_ours(variables, |variables| {
            next!(
                posix_spawnp(
                    process => *mut pid_t, file => *const c_char, actions => *const c_void,
                    attributes => *const c_void, arguments => Strings, variables => Strings,
                ) -> c_int
            )
        })
    }

    fn system(command: *const c_char) -> c_int {
        before_exec(false);
        next!(system(command => *const c_char) -> c_int)
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        before_exec(false);
        let stream = next!(
            popen(command => *const c_char, mode => *const c_char) -> *mut libc::FILE
        );
        if !stream.is_null() {
            crate::descriptor::forget(libc::fileno(stream));
        }
        stream
    }

    fn _exit|_Exit(status: c_int) {
        exiting();
        loop {
            // The call does not return.
            ignore(kernel!(SYS_exit_group, status));
        }
    }

    fn quick_exit(status: c_int) {
        exiting();
        next!(quick_exit(status => c_int) -> ())
    }
}

unsafe extern "C" {
    pub(crate) static environ: Strings;
}

/// Every open file is left to the kernel, which both processes share.
pub(crate) fn before_fork() {
    if let Some(client) = client() {
        client.before_fork();
    }
}

/// The child of a fork that libc made starts; it gave the `new` numbers another meaning.
pub(crate) fn in_child(new: &[c_int]) {
    if let Some(client) = client() {
        client.after_fork_in_child();
        new.iter().for_each(|fd| client.forget(*fd));
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

fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    before_fork();
    let child = fork();
    if child == 0 {
        in_child(&[]);
    }
    child
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
    // SAFETY: the program's own call.
    let start = |variables| unsafe { kernel!(SYS_execve, path, arguments, variables) };
    // SAFETY: as the caller promises.
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
    // SAFETY: the program's own call.
    let start = |variables| unsafe {
        next!(execvpe(file => *const c_char, arguments => Strings, variables => Strings) -> c_int)
    };
    // SAFETY: as the caller promises.
    unsafe { with_ours(variables, start) }
}
