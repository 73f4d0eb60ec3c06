//! Small files that somebody names: a key, or what a server has left of its address.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// No address is longer, in bytes.
const TEXT_LEN_MAX: u64 = 4096;

/// Opens a file to read. Waits for nobody, as a pipe would for who writes to it.
///
/// # Errors
///
/// Those of `open`; `InvalidInput`: it is something else than a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Reads the address that a server has left in a file of its address folder.
///
/// # Errors
///
/// Those of opening and reading; `InvalidInput`: it is something else than a regular file.
pub fn published(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(TEXT_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}
