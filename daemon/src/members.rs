//! Programs of a job: a daemon that is to end waits for those that have made no call yet, and so
//! have no session.

use std::{cell::Cell, fs, os::unix::ffi::OsStrExt as _, path::Path, process};

use rustix::process::getppid;

/// Variable by which a program of a job knows its daemon.
const VARIABLE: &[u8] = b"KAKEHI_SOCKET=";

/// Processes with the daemon's folder in their environment, as far as this user may see it, that
/// are younger than the run that has started the daemon.
#[derive(Debug)]
pub(crate) struct Members {
    variable: Vec<u8>,
    run: u32,
    /// The one that was found last.
    found: Cell<Option<u32>>,
}

impl Members {
    pub(crate) fn of(folder: &Path) -> Self {
        let run = getppid().map_or(0, |run| run.as_raw_nonzero().get().unsigned_abs());
        let variable = [VARIABLE, folder.as_os_str().as_bytes()].concat();
        Self { variable, run, found: Cell::new(None) }
    }

    /// True if there are any.
    pub(crate) fn are_left(&self) -> bool {
        let found = self.found.get().filter(|found| self.has(*found));
        self.found.set(found.or_else(|| self.find()));
        self.found.get().is_some()
    }

    fn find(&self) -> Option<u32> {
        let all = fs::read_dir("/proc").ok()?;
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // Numbers are given in order. Those that begin again are missed.
        let mut young = numbers.filter(|number| *number > self.run && *number != process::id());
        young.find(|number| self.has(*number))
    }

    /// True if the process is one. One that has ended has no environment.
    fn has(&self, process: u32) -> bool {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == self.variable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_left_until_it_ends() {
        let folder = Path::new("/nowhere/job");
        let members = Members { run: process::id(), ..Members::of(folder) };
        assert!(!members.are_left());
        let mut sleep = process::Command::new("sleep");
        let mut child = sleep.arg("60").env("KAKEHI_SOCKET", folder).spawn().expect("sleep");
        assert!(members.are_left());
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(!members.are_left());
    }
}
