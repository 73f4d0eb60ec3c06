//! A second process of this program, which begins where this one is: for a daemon, and for a call
//! that may never return.
//!
//! An `exec` costs 1 to 2 ms more (the loader, relocations, pages that are not mapped yet): as much
//! as all else that a daemon does until it serves.

use std::{
    ffi::CStr,
    fs,
    io::{self, Read as _},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::fs::MetadataExt as _,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};

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

/// Asks a file system for what `statfs(2)` says of it, and waits for at most `time`. Returns the
/// call's error, 0 if it has none, or `None` if no answer has come.
///
/// A process of its own asks: a thread that a file system lets hang would hang in this process, and
/// one that has just ended is still counted when [`fork`] looks for other threads.
///
/// # Errors
///
/// As `pipe(2)` and `fork(2)`.
pub fn statfs_within(path: &CStr, time: Duration) -> io::Result<Option<i32>> {
    let (answer, told) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: other threads may hold any lock: the child makes system calls, and nothing else.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(child) = Pid::from_raw(pid) else { tell_statfs(path, told.as_raw_fd()) };
    drop(told);
    let found = answer_of(answer, time);
    if found.is_none() {
        // It may hang until the file system's server is gone, and nobody waits for it.
        kill_process(child, Signal::KILL).ok();
        return Ok(None);
    }
    // Where ended children are ignored, as by a parent of this process, there is none to wait for.
    retry_on_intr(|| waitpid(Some(child), WaitOptions::empty())).ok();
    Ok(found)
}

/// Waits for a number in a pipe, for at most `time`.
fn answer_of(pipe: OwnedFd, time: Duration) -> Option<i32> {
    let mut ready = [PollFd::new(&pipe, PollFlags::IN)];
    let time = Timespec::try_from(time).ok()?;
    retry_on_intr(|| poll(&mut ready, Some(&time))).ok().filter(|ready| *ready > 0)?;
    let mut number = [0; size_of::<i32>()];
    fs::File::from(pipe).read_exact(&mut number).ok()?;
    Some(i32::from_le_bytes(number))
}

/// Writes the error of `statfs(2)` into a pipe, as the only thing that this process does.
fn tell_statfs(path: &CStr, told: RawFd) -> ! {
    // SAFETY: whoever owns the descriptor 0 is in a frame that never runs again in this process.
    let told = unsafe { libc::dup2(told, 0) };
    close_all_but_first();
    let error = rustix::fs::statfs(path).err().map_or(0, Errno::raw_os_error);
    let number = error.to_le_bytes();
    // SAFETY: `number` is that long.
    unsafe { libc::write(told, number.as_ptr().cast(), number.len()) };
    // SAFETY: nothing that others have set up is run at the end.
    unsafe { libc::_exit(0) }
}

/// Closes all descriptors but 0, without asking which there are: others may wait for the end of
/// what this process has open.
fn close_all_but_first() {
    if close_range(1, RawFd::MAX) {
        return;
    }
    // Before Linux 5.9: as many as a process may have that has not asked for more.
    for number in 1..1024 {
        // SAFETY: as those that `close_range` closes.
        unsafe { libc::close(number) };
    }
}

/// Closes what a process has open, but for the standard descriptors and `kept`.
fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<_> = kept.iter().copied().filter(|number| *number > 2).collect();
    kept.sort_unstable();
    let mut start = 3;
    for number in kept.iter().copied().chain([RawFd::MAX]) {
        if start < number && !close_range(start, number - 1) {
            return close_listed_but(&kept);
        }
        start = number.saturating_add(1);
    }
}

/// Closes the descriptors from `first` to `last`; false: the kernel cannot, before Linux 5.9.
fn close_range(first: RawFd, last: RawFd) -> bool {
    // SAFETY: their owners are in frames that never run again in this process.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

/// The same as [`close_all_but`], of what `/proc` lists.
fn close_listed_but(kept: &[RawFd]) {
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
    fn another_process_asks_a_file_system() {
        let ask = |path| statfs_within(path, Duration::from_secs(10)).expect("a process");
        assert_eq!(ask(c"/proc"), Some(0));
        assert_eq!(ask(c"/proc/none/such"), Some(Errno::NOENT.raw_os_error()));
        let pipe = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        assert_eq!(answer_of(pipe.0, Duration::from_millis(10)), None);
    }

    #[test]
    fn process_with_several_threads_is_not_forked() {
        // That of the tests has one of its own.
        fork(&[], || {}, || 0).expect_err("several threads");
    }
}
