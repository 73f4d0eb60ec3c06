//! Plain streams, which libc makes and keeps itself: their modes, and the numbers they are over.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::{bits::unsigned, glibc::Stream, interpose::next, pointers::Text};

/// Numbers that can have a stream of libc's: as many as the client looks up.
const NUMBERS: usize = 1 << 16;

/// A bit for each number that libc has made a stream over.
static PLAIN: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Parsed mode of `fopen`.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    /// `O_*` bits of the file.
    pub(crate) flags: c_int,
    /// A character set is named, so the stream is one of wide characters.
    pub(crate) has_charset: bool,
}

impl Mode {
    /// Reads a mode; `None` when libc would refuse it.
    pub(crate) fn parse(mode: Text<'_>) -> Option<Self> {
        let (first, rest) = mode.get()?.to_bytes().split_first()?;
        let mut flags = match first {
            b'r' => libc::O_RDONLY,
            b'w' => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
            b'a' => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
            _ => return None,
        };
        for letter in rest.iter().take_while(|letter| **letter != b',') {
            match letter {
                b'+' => flags = flags & !libc::O_ACCMODE | libc::O_RDWR,
                b'x' => flags |= libc::O_EXCL,
                b'e' => flags |= libc::O_CLOEXEC,
                _ => {}
            }
        }
        Some(Self { flags, has_charset: rest.contains(&b',') })
    }

    pub(crate) fn is_writable(self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    pub(crate) fn is_readable(self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(crate) fn appends(self) -> bool {
        self.flags & libc::O_APPEND != 0
    }
}

/// Remembers that libc reads and writes the number of a stream by itself.
pub(crate) fn made_plain(stream: Stream<'_>) -> Stream<'_> {
    if !stream.is_null() {
        set_plain(stream.number(), true);
    }
    stream
}

/// True if libc has a stream of its own over the number.
pub(crate) fn has_plain(fd: c_int) -> bool {
    plain_bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

pub(crate) fn set_plain(fd: c_int, is_plain: bool) {
    match plain_bit(fd) {
        Some((word, bit)) if is_plain => word.fetch_or(bit, Ordering::Relaxed),
        Some((word, bit)) => word.fetch_and(!bit, Ordering::Relaxed),
        None => 0,
    };
}

fn plain_bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let word = PLAIN.get(usize::try_from(fd).ok()? / 64)?;
    Some((word, 1 << (unsigned(fd) % 64)))
}

/// libc's `fopen`.
pub(crate) fn plain_fopen(path: Text<'_>, mode: Text<'_>) -> Stream<'static> {
    // SAFETY: C strings are all that it asks for, and it refuses null by a fault of its own.
    made_plain(unsafe { next!(fopen64(path => Text<'_>, mode => Text<'_>) -> Stream<'static>) })
}

/// libc's `fdopen`.
pub(crate) fn plain_fdopen(fd: c_int, mode: Text<'_>) -> Stream<'static> {
    // SAFETY: a number, and a C string for the mode, are all that it asks for.
    made_plain(unsafe { next!(fdopen(fd => c_int, mode => Text<'_>) -> Stream<'static>) })
}

/// libc's `freopen`.
///
/// # Safety
///
/// libc made the stream, and nobody uses it again if the answer is null.
pub(crate) unsafe fn plain_freopen(
    path: Text<'_>,
    mode: Text<'_>,
    stream: Stream<'_>,
) -> Stream<'static> {
    // SAFETY: the names are C strings, and the stream is one for it, as the caller promises.
    made_plain(unsafe {
        next!(
            freopen64(path => Text<'_>, mode => Text<'_>, stream => Stream<'_>) -> Stream<'static>
        )
    })
}

/// libc's `fclose`.
///
/// # Safety
///
/// Nobody uses the stream again.
pub(crate) unsafe fn plain_fclose(stream: Stream<'_>) -> c_int {
    // SAFETY: an open stream, given up by the caller.
    unsafe { next!(fclose(stream => Stream<'_>) -> c_int) }
}
