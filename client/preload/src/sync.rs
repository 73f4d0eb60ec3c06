//! Durability and size.

use client::{Client, Errno};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};

use crate::{
    bits::unsigned,
    errno::{answer, code},
    interpose::interpose,
    kernel::{Outcome, ask, ask_blocking, cancellation_point, ignore},
    pointers::Text,
    process_client::client,
    settle::settle_found,
};

/// Blocks of a file, bytes, into each of which libc writes a zero: as long as the file system says,
/// within these bounds.
const BLOCK_MIN: u64 = 512;
const BLOCK_MAX: u64 = 4096;
/// All that `sync_file_range` knows.
const RANGE_FLAGS: c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

interpose! { safe:
    fn fsync(fd: c_int) -> c_int => make_durable(fd, false);
    fn fdatasync(fd: c_int) -> c_int => make_durable(fd, true);
    fn ftruncate|ftruncate64(fd: c_int, len: off_t) -> c_int => set_size(fd, len);

    fn posix_fadvise|posix_fadvise64(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int {
        code(advise(fd, at, len, advice))
    }

    fn sync() {
        drain_job();
        // `sync` cannot fail.
        ignore(ask!(SYS_sync));
    }

    fn syncfs(fd: c_int) -> c_int {
        drain_job();
        // The server's file system is its own.
        if client().is_some_and(|client| client.is_remote_file(fd)) {
            return answer(make_durable(fd, false));
        }
        drain(fd); // A placeholder cannot be asked.
        answer(ask!(SYS_syncfs, fd))
    }

    fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int {
        cancellation_point();
        drain(fd);
        if is_placeholder(fd) {
            // The server writes by itself; a sync waits for that.
            let is_range = at >= 0 && len >= 0 && at.checked_add(len).is_some();
            let is_known = is_range && flags & !RANGE_FLAGS == 0;
            return answer(if is_known { Ok(0) } else { Err(Errno::INVAL) });
        }
        answer(ask_blocking!(SYS_sync_file_range, fd, at, len, flags))
    }

    fn truncate|truncate64(path: Text<'_>, len: off_t) -> c_int {
        match (client(), path.get(), u64::try_from(len)) {
            (Some(client), Some(name), Ok(size)) => match client.truncate_path(name, size) {
                Some(done) => answer(done),
                None => answer(truncate_settled(client, path, len, size)),
            },
            _ => answer(ask!(SYS_truncate, path, len)),
        }
    }

    fn fallocate|fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
        cancellation_point();
        if let Some(done) = allocate(fd, mode, at, len) {
            return answer(done);
        }
        drain(fd);
        answer(ask_blocking!(SYS_fallocate, fd, mode, at, len))
    }

    fn readahead(fd: c_int, at: off_t, len: size_t) -> ssize_t {
        if is_placeholder(fd) {
            // As for `posix_fadvise`, of a file that can be read.
            let flags = client().and_then(|client| client.flags(fd)).unwrap_or(0);
            let is_readable = flags & unsigned(libc::O_ACCMODE) != unsigned(libc::O_WRONLY);
            return answer(if is_readable { Ok(0) } else { Err(Errno::BADF) });
        }
        answer(ask!(SYS_readahead, fd, at, len))
    }
}

interpose! {
    fn posix_fallocate|posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int, next {
        match allocate(fd, 0, at, len) {
            // As below, where there is no file here for libc to write zeros to.
            Some(Err(Errno::OPNOTSUPP)) if is_remote(fd) => {
                return code(write_zeros(fd, at, len).map(|()| 0));
            }
            Some(Err(Errno::OPNOTSUPP)) => {}
            Some(done) => return code(done.map(|()| 0)),
            None => {}
        }
        drain(fd);
        match ask!(SYS_fallocate, fd, 0_i32, at, len) {
            // libc then writes zeros where there is a hole.
            Err(Errno::OPNOTSUPP) => next(),
            done => code(done),
        }
    }
}

/// As `fsync(2)`, or `fdatasync(2)`.
fn make_durable(fd: c_int, data_only: bool) -> Outcome {
    match client() {
        Some(client) => {
            cancellation_point();
            client.sync(fd, data_only).map(|()| 0)
        }
        None if data_only => ask_blocking!(SYS_fdatasync, fd),
        None => ask_blocking!(SYS_fsync, fd),
    }
}

/// As `ftruncate(2)`.
fn set_size(fd: c_int, len: off_t) -> Outcome {
    match (client(), u64::try_from(len)) {
        (Some(client), Ok(len)) => client.truncate(fd, len).map(|()| 0),
        _ => ask!(SYS_ftruncate, fd, len),
    }
}

/// As `fadvise64(2)`.
pub(crate) fn advise(fd: c_int, at: off_t, len: off_t, advice: c_int) -> Outcome {
    if is_placeholder(fd) {
        // A hint, to nobody: the daemon reads ahead by itself.
        let is_known = (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice);
        return if is_known && len >= 0 { Ok(0) } else { Err(Errno::INVAL) };
    }
    if advice == libc::POSIX_FADV_DONTNEED {
        drain(fd);
    }
    ask!(SYS_fadvise64, fd, at, len, advice)
}

/// As `fallocate(2)`, of a file that the daemon answers for.
fn allocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> Option<Outcome<()>> {
    let client = client()?;
    let (Ok(at), Ok(len)) = (u64::try_from(at), u64::try_from(len)) else {
        return is_placeholder(fd).then_some(Err(Errno::INVAL));
    };
    client.allocate(fd, unsigned(mode), at, len)
}

/// As libc's `posix_fallocate` where the file system has no `fallocate`, of a file that only a
/// server has: writes a zero into every block, but for those that have data.
fn write_zeros(fd: c_int, at: off_t, len: off_t) -> Outcome<()> {
    let client = client().ok_or(Errno::IO)?;
    let flags = client.flags(fd).ok_or(Errno::BADF)?;
    if flags & unsigned(libc::O_APPEND) != 0 {
        return Err(Errno::BADF); // What is written would not come where it has to.
    }
    let status = client.stat(fd).ok_or(Errno::BADF)??;
    at.checked_add(len).ok_or(Errno::FBIG)?;
    let range = u64::try_from(at).ok().zip(u64::try_from(len).ok());
    let (at, len) = range.filter(|(_, len)| *len > 0).ok_or(Errno::INVAL)?;
    let block = match status.block_size {
        0 => BLOCK_MIN,
        size => size.min(BLOCK_MAX),
    };
    let mut last = at + (len - 1) % block;
    while last < at + len {
        let mut byte = [0];
        let has_data = last < status.size && client.read_at(fd, &mut byte, last)? == 1;
        if !(has_data && byte != [0]) && client.write_at(fd, &[0], last)? != 1 {
            return Err(Errno::IO);
        }
        last += block;
    }
    // The zeros are staged; whether there is room for them is what the caller wants to know.
    client.sync(fd, true)
}

fn is_remote(fd: c_int) -> bool {
    client().is_some_and(|client| client.is_remote_file(fd))
}

/// True if the kernel would refuse data calls on this number.
pub(crate) fn is_placeholder(fd: c_int) -> bool {
    client().is_some_and(|client| client.is_placeholder(fd))
}

/// Has what is staged for a number in its file.
pub(crate) fn drain(fd: c_int) {
    if let Some(client) = client() {
        client.drain(fd);
    }
}

/// Has what any process of the job has staged in the files.
fn drain_job() {
    if let Some(client) = client() {
        client.drain_job();
    }
}

/// Has what is staged for any number in the files.
pub(crate) fn drain_all() {
    if let Some(client) = client() {
        client.drain_all();
    }
}

/// As `truncate(2)`; what is staged for the file goes first, or it would come back.
fn truncate_settled(client: &'static Client, path: Text<'_>, len: off_t, size: u64) -> Outcome {
    if let Some((device, inode)) = settle_found(client, libc::AT_FDCWD, path, 0) {
        let may_write = || ask!(SYS_faccessat, libc::AT_FDCWD, path, libc::W_OK).map(drop);
        client.truncate_refused(device, inode, size, may_write)?;
    }
    ask!(SYS_truncate, path, len)
}
