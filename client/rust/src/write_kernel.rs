//! Writes that the kernel executes for a program, of several buffers and behind what was staged.

use rustix::{
    fd::BorrowedFd,
    io::{self, IoSlice},
};
use shm::staging::APPEND;

use crate::buffers::{behind, total};

/// Buffers that most vectored writes have, and the most that one system call takes.
const FEW: usize = 16;
const MOST: usize = 1024;

/// The daemon went away after `accepted` bytes: writes the others directly, as far as the kernel
/// takes them, and returns how many are written with those.
///
/// # Errors
///
/// What the kernel says, when nothing at all was written: else the program, told of an error, would
/// write again what is in the file.
pub(crate) fn write_rest(
    fd: BorrowedFd<'_>,
    data: &[&[u8]],
    start: u64,
    accepted: usize,
) -> io::Result<usize> {
    let mut done = accepted;
    for rest in behind(data, accepted) {
        let at = if start == APPEND { 0 } else { start + done as u64 };
        // With O_APPEND, Linux appends whatever the offset.
        match io::retry_on_intr(|| io::pwrite(fd, rest, at)) {
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
            Ok(len) => {
                done += len;
                if len < rest.len() {
                    break;
                }
            }
        }
    }
    Ok(done)
}

/// Writes several buffers by as few calls as there can be: only those of one call are one append.
pub(crate) fn kernel_write_vectored(
    fd: BorrowedFd<'_>,
    data: &[&[u8]],
    at: Option<u64>,
) -> io::Result<usize> {
    if data.len() <= FEW {
        write_batches::<FEW>(fd, data, at)
    } else {
        write_batches::<MOST>(fd, data, at)
    }
}

/// As [`kernel_write_vectored`], at most `N` by one call. Apart, for the list's room on the stack.
#[inline(never)]
fn write_batches<const N: usize>(
    fd: BorrowedFd<'_>,
    data: &[&[u8]],
    at: Option<u64>,
) -> io::Result<usize> {
    let mut done = 0;
    for batch in data.chunks(N) {
        let mut parts = [IoSlice::new(&[]); N];
        for (part, data) in parts.iter_mut().zip(batch) {
            *part = IoSlice::new(data);
        }
        let parts = invariant!(some parts.get(..batch.len()), "a batch has N buffers at most",
            else return Err(io::Errno::IO));
        let wrote = match at {
            None => io::writev(fd, parts),
            Some(at) => io::pwritev(fd, parts, at + done as u64),
        };
        match wrote {
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
            Ok(len) => done += len,
        }
        if wrote != Ok(total(batch)) {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use rustix::{
        fd::AsFd as _,
        fs::{self, Mode, OFlags},
        io::Errno,
    };

    use super::*;

    /// A program that is told of an error writes all of it again; an append would be there twice.
    #[test]
    fn an_error_after_accepted_bytes_is_a_short_write() {
        let full = fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).expect("/dev/full");
        let data: &[&[u8]] = &[b"abc", b"", b"defgh"];
        for start in [0, 7, APPEND] {
            for accepted in 1..8 {
                assert_eq!(write_rest(full.as_fd(), data, start, accepted), Ok(accepted));
            }
            assert_eq!(write_rest(full.as_fd(), data, start, 0), Err(Errno::NOSPC));
        }
    }

    #[test]
    fn what_was_not_accepted_is_written_behind_what_was() {
        for accepted in 0..=8 {
            let fd = fs::memfd_create("rest", fs::MemfdFlags::CLOEXEC).expect("memfd");
            let wrote = write_rest(fd.as_fd(), &[b"abc", b"", b"defgh"], 2, accepted);
            assert_eq!(wrote, Ok(8));
            let mut found = [0; 10];
            io::pread(&fd, &mut found[..], 0).expect("read");
            let mut expected = *b"\0\0abcdefgh";
            expected[2..2 + accepted].fill(0);
            assert_eq!(found, expected, "{accepted} accepted");
        }
    }
}
