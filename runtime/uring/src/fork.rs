//! A second process of this program, which begins where this one is.
//!
//! An `exec` costs 1 to 2 ms more (the loader, relocations, pages that are not mapped yet): as much
//! as all else that a daemon does until it serves.

use std::{
    fs, io,
    os::{fd::RawFd, unix::fs::MetadataExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    process,
};

use rustix::process::Pid;

/// Exit code of a process that has panicked, as Rust's own.
const PANICKED: i32 = 101;
/// Links of a process's folder of threads, of which there is one.
const LINKS_OF_ONE_THREAD: u64 = 3;

/// Begins a process that runs `first` and then `child`, and ends with what that returns. It has a
/// copy of this one's memory; of its descriptors, from `child` on, the standard ones and those with
/// the numbers `kept`: it may use no other, whoever owns them.
///
/// # Errors
///
/// - This process has other threads, whose locks nobody would release there.
/// - As `fork(2)`; and where `/proc` is not mounted.
#[expect(clippy::exit, clippy::disallowed_methods, reason = "it ends what it has begun")]
pub fn fork(kept: &[RawFd], first: impl FnOnce(), child: impl FnOnce() -> i32) -> io::Result<Pid> {
    if fs::metadata("/proc/self/task")?.nlink() != LINKS_OF_ONE_THREAD {
        return Err(io::Error::other("a library that is preloaded has begun threads"));
    }
    // SAFETY: no thread but this one can hold a lock, or be about to change something: what is
    // copied is whole, and any function may be called.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(child) = Pid::from_raw(pid) {
        return Ok(child);
    }
    // The frames below are the other process's: nothing may return to them, or unwind.
    let run = || {
        first();
        close_all_but(kept);
        child()
    };
    process::exit(catch_unwind(AssertUnwindSafe(run)).unwrap_or(PANICKED))
}

/// Closes what a process has open, but for the standard descriptors and `kept`.
fn close_all_but(kept: &[RawFd]) {
    // Where they cannot be seen they stay, and are open for as long as the process is.
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && !kept.contains(number)) {
        // SAFETY: its owners are in frames that never run again in this process.
        unsafe { libc::close(number) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_several_threads_is_not_forked() {
        // That of the tests has one of its own.
        fork(&[], || {}, || 0).expect_err("several threads");
    }
}
