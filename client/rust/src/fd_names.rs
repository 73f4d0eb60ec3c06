//! Names by which a process finds its own open files: `/proc/self/fd/N`, `/dev/fd/N`, and the like.
//!
//! Behind the number of a delegated file the kernel has a placeholder, which is the daemon's
//! socket: by such a name, or by an empty one, it would change that.

use core::{ffi::CStr, str};

use rustix::{
    fd::RawFd,
    io::{self, Errno},
    process::getpid,
};
use wire::Reason;

use crate::{client::Client, rules::CURRENT_FOLDER};

const FOLDERS: [&[u8]; 3] = [b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/"];

impl Client {
    /// The open file that a name means, `dir` if it is empty, where that has a placeholder.
    pub fn placeholder_at(&'static self, dir: RawFd, path: &CStr) -> Option<RawFd> {
        if !self.is_ruled() {
            return None;
        }
        let number = if path.is_empty() { Some(dir) } else { number_of(path.to_bytes()) };
        number.filter(|number| self.is_placeholder(*number))
    }

    /// Before the kernel is given a name: leaves the open file that it means to it, a remote one by
    /// its view.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is remote, and its folder has no view.
    pub fn detach_at(&'static self, dir: RawFd, path: &CStr) -> io::Result<()> {
        let Some(number) = self.placeholder_at(dir, path) else { return Ok(()) };
        self.detach(number, Reason::Unsupported);
        if self.is_placeholder(number) { Err(Errno::NOTSUP) } else { Ok(()) }
    }

    /// As [`detach_at`](Self::detach_at), for calls that take no empty name.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn detach_number(&'static self, path: &CStr) -> io::Result<()> {
        self.detach_at(CURRENT_FOLDER, path)
    }
}

/// The number in such a name.
fn number_of(path: &[u8]) -> Option<RawFd> {
    let digits = FOLDERS.iter().find_map(|folder| path.strip_prefix(*folder));
    let digits = digits.or_else(|| {
        let path = path.strip_prefix(b"/proc/")?;
        let (process, rest) = path.split_at_checked(path.iter().position(|byte| *byte == b'/')?)?;
        let is_own = parsed(process) == Some(getpid().as_raw_pid());
        rest.strip_prefix(b"/fd/").filter(|_| is_own)
    })?;
    parsed(digits)
}

fn parsed(digits: &[u8]) -> Option<i32> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_found_by_the_processes_own_number_alone() {
        let own = getpid().as_raw_pid();
        let number = |process: i32| number_of(std::format!("/proc/{process}/fd/7").as_bytes());
        assert_eq!((number(own), number(own + 1)), (Some(7), None));
    }

    #[test]
    fn numbers_are_found_in_names() {
        for (name, number) in [
            ("/proc/self/fd/3", Some(3)),
            ("/proc/thread-self/fd/12", Some(12)),
            ("/dev/fd/0", Some(0)),
            ("/dev/fd/", None),
            ("/dev/fd/3/x", None),
            ("/proc/self/fd", None),
            ("/data/fd/3", None),
        ] {
            assert_eq!(number_of(name.as_bytes()), number, "{name}");
        }
    }
}
