//! Descriptors that somebody else has opened.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use crate::{engines::Engines, file::File};

/// A descriptor of whatever kind, as another process has sent it.
///
/// To close it may take for ever: a socket lingers, a file system in user space does not answer. So
/// an engine thread does that, some time after this is dropped.
pub struct ForeignFd {
    fd: Arc<OwnedFd>,
    engines: Engines,
}

impl ForeignFd {
    /// Takes care of `fd`.
    #[must_use]
    pub fn new(engines: &Engines, fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), engines: engines.clone() }
    }

    /// The descriptor as a file; [`Engines::close`] closes it, if need be on a thread.
    ///
    /// # Errors
    ///
    /// Those of [`File::new`].
    pub fn into_file(self) -> io::Result<File> {
        File::of(Arc::clone(&self.fd))
    }
}

impl Drop for ForeignFd {
    fn drop(&mut self) {
        if Arc::strong_count(&self.fd) == 1 {
            let fd = Arc::clone(&self.fd);
            self.engines.call_later(move || {
                drop(fd);
                Ok(0)
            });
        }
    }
}

impl AsFd for ForeignFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for ForeignFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForeignFd").field(&self.fd).finish()
    }
}
