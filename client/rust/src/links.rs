//! Names by which a process finds its own open files: `/proc/self/fd/N`, `/dev/fd/N`, and the like.
//!
//! The kernel serves them, but for remote files: what it would open there is the placeholder, which
//! is empty, or the pipe that stands for the file since a fork, which has nothing to read.

use core::{ffi::CStr, str};

use rustix::{
    fd::{IntoRawFd, RawFd},
    fs::{self, OFlags, SeekFrom},
    io::{self, Errno, FdFlags},
    process::getpid,
};

use crate::{client::Client, table::Entry};

const FOLDERS: [&[u8]; 3] = [b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/"];

impl Client {
    /// The number of the remote file that such a name stands for.
    pub(crate) fn remote_number(&'static self, path: &CStr) -> Option<RawFd> {
        let number = self.active()?.has_remote().then(|| number_of(path.to_bytes()))??;
        let file = self.locked_fd(number)?;
        file.is_remote().then_some(number)
    }

    /// True if a name is that of a remote file's number: only the server knows the file's own.
    pub fn is_remote_number(&'static self, path: &CStr) -> bool {
        self.remote_number(path).is_some()
    }

    /// Opens a remote file by such a name: a copy, to read.
    pub(crate) fn open_number(
        &'static self,
        path: &CStr,
        flags: OFlags,
    ) -> Option<io::Result<RawFd>> {
        let number = self.remote_number(path).filter(|_| !flags.contains(OFlags::PATH))?;
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            return Some(Err(Errno::OPNOTSUPP));
        }
        let Some(copy) = self.copy_of(number) else { return self.refuse_pipe(number) };
        Some(copy.and_then(|copy| {
            fs::seek(&copy, SeekFrom::Start(0))?;
            if !flags.contains(OFlags::CLOEXEC) {
                io::fcntl_setfd(&copy, FdFlags::empty())?;
            }
            let fd = copy.into_raw_fd();
            self.table.set(fd, Entry::Foreign);
            Ok(fd)
        }))
    }

    /// In the child of a fork a remote file is a copy, which the kernel opens, or a pipe.
    fn refuse_pipe(&'static self, number: RawFd) -> Option<io::Result<RawFd>> {
        if let Err(errno) = self.borrow_file(number) {
            return Some(Err(errno));
        }
        self.locked_fd(number)?.is_piped().then_some(Err(Errno::OPNOTSUPP))
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
