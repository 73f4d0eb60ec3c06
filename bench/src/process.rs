//! Child processes that do not outlive their handle.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open,
        set_parent_process_death_signal,
    },
};

/// How long a process may take to end once it was asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// A child that is waited for when dropped, and killed when that takes too long.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Sends a signal.
    pub(crate) fn send(&self, signal: Signal) {
        // One that has ended already is fine too; it has not been waited for: the id is its own.
        kill_process(Pid::from_child(&self.0), signal).ok();
    }

    /// Sends `SIGKILL`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().ok();
    }

    fn ends_in_time(&self) -> bool {
        let Ok(process) = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()) else {
            return false;
        };
        is_ready(process, PATIENCE).unwrap_or(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ends_in_time() {
            self.kill();
        }
        self.0.wait().ok();
    }
}

/// For a child between fork and exec: has it get a signal when this process ends. One that may be
/// stopped, and would stay behind, needs `SIGKILL`.
pub(crate) fn end_with_this(
    signal: Signal,
) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
    let parent = getpid();
    move || {
        set_parent_process_death_signal(Some(signal))?;
        // It may have been killed already.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    }
}

/// Runs a command to its end; returns what it printed.
///
/// # Errors
///
/// It cannot be started, or fails: the first line of its standard error.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().next().unwrap_or("it said nothing");
    ensure!(output.status.success(), "{name}: {}: {why}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// CPU time that a process has used, with all threads that it has had.
///
/// # Errors
///
/// There is no such process.
pub(crate) fn cpu_of(pid: u32) -> io::Result<Duration> {
    let (mut clock, mut time) = (0, MaybeUninit::<libc::timespec>::zeroed());
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: `clock` is this function's.
    let errno = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: `time` has room for what is written.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a time, too.
    let time = unsafe { time.assume_init() };
    let (s, ns) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Ok(Duration::new(s.unwrap_or(0), ns.unwrap_or(0)))
}

/// CPU time of all children that were waited for.
pub(crate) fn cpu_of_children() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: there is room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: numbers, which may all be zero.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Waits until something can be read or has ended, for `time` at the most; returns whether it can.
pub(crate) fn is_ready(fd: impl AsFd, time: Duration) -> io::Result<bool> {
    wait(&mut [PollFd::new(&fd, PollFlags::IN)], time)
}

/// Waits for `time`.
pub(crate) fn pause(time: Duration) -> io::Result<()> {
    wait(&mut [], time).map(drop)
}

/// Waits for one of `fds`, for `time` at the most. A signal does not end the wait.
fn wait(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll(fds, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::unix::net::UnixStream,
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn interrupt(_: libc::c_int) {
        INTERRUPTED.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn a_signal_does_not_end_a_wait() {
        let handler = interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does what handlers may, and this signal means nothing else here.
        unsafe { libc::signal(libc::SIGUSR1, handler) };
        let (reading, mut writing) = UnixStream::pair().expect("a pair");
        // SAFETY: no arguments.
        let waiting = unsafe { libc::pthread_self() };
        let (begun, ends) = (INTERRUPTED.load(Ordering::SeqCst), Duration::from_secs(120));
        let ready = thread::scope(|scope| {
            scope.spawn(move || {
                while INTERRUPTED.load(Ordering::SeqCst) < begun + 3 {
                    // SAFETY: the thread waits for this scope.
                    unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
                    thread::yield_now();
                }
                writing.write_all(b"x").expect("room");
            });
            is_ready(&reading, ends)
        });
        assert!(ready.expect("a socket can be waited for"));
    }
}
