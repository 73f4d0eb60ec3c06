//! Questions of a program about a file, and about the library.

use std::ffi::{c_char, c_int};

use crate::{
    client::client,
    error::{answer, last},
};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

#[unsafe(no_mangle)]
extern "C" fn kakehi_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn kakehi_is_delegated(fd: c_int) -> c_int {
    client().map_or(0, |client| (client.is_delegated)(fd))
}

#[unsafe(no_mangle)]
extern "C" fn kakehi_flush(fd: c_int) -> c_int {
    answer(flush(fd))
}

fn flush(fd: c_int) -> Result<(), c_int> {
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(last());
    }
    match client().map_or(0, |client| (client.flush)(fd)) {
        0 => Ok(()),
        negated => Err(-negated),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, fs::File, os::fd::AsRawFd as _};

    use super::*;

    #[test]
    fn every_open_file_can_be_flushed_and_no_other() {
        let file = File::open("/dev/null").expect("there");
        assert_eq!(flush(file.as_raw_fd()), Ok(()));
        assert_eq!(flush(-1), Err(libc::EBADF));
        assert_eq!(kakehi_is_delegated(file.as_raw_fd()), 0);
    }

    #[test]
    fn version_is_the_packages() {
        // SAFETY: a C string, for ever.
        let version = unsafe { CStr::from_ptr(kakehi_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
