//! Child processes that do not outlive their handle.

use std::{process::Child, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// How long a process may take to end once it was asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// A child that is waited for when dropped, and killed when that takes too long.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Sends `SIGTERM`.
    pub(crate) fn ask_to_end(&self) {
        self.send(Signal::TERM);
    }

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
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).ok();
        poll(&mut fds, patience.as_ref()).is_ok_and(|count| count > 0)
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
