//! Copies to read: a local file without a name in place of a remote one.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{MemfdFlags, Mode, OFlags, SeekFrom, memfd_create, open, seek},
    io::Errno,
};

use super::{dial::Dial, file::RemoteFile};
use crate::{
    place::link_to,
    storage::{Machine, Storage as _},
};

/// Bytes that are read at a time.
const COPY_LEN: usize = 1 << 20;

/// A local copy of a remote file, opened to be read, its position at `at`.
pub(super) async fn of(
    remote: &RemoteFile<Dial>,
    at: u64,
    machine: &Machine,
    folder: &Path,
) -> io::Result<uring::File> {
    let folder = folder.to_owned();
    let made = machine.call(move || uring::File::new(unnamed(&folder)?)).await?;
    let buffer = uring::Heap::buffer(COPY_LEN);
    let mut end = 0;
    loop {
        let len = remote.read(end, &buffer.clone().into()).await?;
        if len == 0 {
            break;
        }
        let mut done = 0;
        while done < len {
            let rest = buffer.prefix(len).suffix(done);
            match machine.write(&made, end + done as u64, rest.into()).await? {
                0 => return Err(Errno::IO.into()),
                written => done += written,
            }
        }
        end += len as u64;
    }
    let at = if at == u64::MAX { end } else { at };
    machine.call(move || uring::File::new(reopened(&made, at)?)).await
}

/// A file without a name.
fn unnamed(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match open(folder, flags, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(memfd_create("kakehi", MemfdFlags::CLOEXEC)?),
        opened => Ok(opened?),
    }
}

/// The same file, to be read from `at` on.
fn reopened(file: &uring::File, at: u64) -> io::Result<OwnedFd> {
    let link = link_to(file.fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = open(link, flags, Mode::empty())?;
    seek(&fd, SeekFrom::Start(at))?;
    Ok(fd)
}
