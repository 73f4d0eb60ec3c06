//! A stream of the C library, to be written.

use std::{ffi::CString, io, os::unix::ffi::OsStrExt as _, path::Path, ptr::NonNull};

use libc::FILE;

/// A stream open for writing. Closed when dropped, without a look at the result.
pub(crate) struct Stream(Option<NonNull<FILE>>);

impl Stream {
    /// Opens the file with `fopen`, empty.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: both strings end with a NUL and live until the call returns.
        let stream = unsafe { libc::fopen(path.as_ptr(), c"w".as_ptr()) };
        NonNull::new(stream).map(|stream| Self(Some(stream))).ok_or_else(io::Error::last_os_error)
    }

    /// Writes all of `bytes` with `fwrite`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(stream) = self.0 else { return Ok(()) };
        // SAFETY: the stream is open, and the bytes are there until the call returns.
        let count = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream.as_ptr()) };
        if count == bytes.len() { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Closes the stream with `fclose`.
    pub(crate) fn close(mut self) -> io::Result<()> {
        let Some(stream) = self.0.take() else { return Ok(()) };
        // SAFETY: the stream is open, and taken: nobody closes it again.
        let closed = unsafe { libc::fclose(stream.as_ptr()) };
        if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            // SAFETY: the stream is open, and taken: nobody closes it again.
            unsafe { libc::fclose(stream.as_ptr()) };
        }
    }
}
