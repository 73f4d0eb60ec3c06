//! Names by which a process finds its own open files: `/proc/self/fd/N`, `/dev/fd/N`, and the like.
//!
//! The kernel serves them, of a remote file what its folder's view has.

use core::{ffi::CStr, str};

use rustix::{fd::RawFd, process::getpid};
use wire::Reason;

use crate::client::Client;

const FOLDERS: [&[u8]; 3] = [b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/"];

impl Client {
    /// Before the kernel is given a name: if it is such a one, of a remote file, that is left to
    /// its view.
    pub fn detach_number(&'static self, path: &CStr) {
        let is_remote = self.active().is_some_and(|config| config.rules().has_remote());
        let number = if is_remote { number_of(path.to_bytes()) } else { None };
        if let Some(number) = number.filter(|number| self.is_remote_file(*number)) {
            self.detach(number, Reason::Unsupported);
        }
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
