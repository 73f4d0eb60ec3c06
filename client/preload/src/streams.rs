//! Streams that libc makes and keeps itself: their modes, and the numbers they are over.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::{FILE, c_char, c_int};

use crate::{bits::unsigned, interpose::next, served::text};

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
    ///
    /// # Safety
    ///
    /// `mode` is null or a C string.
    pub(crate) unsafe fn parse(mode: *const c_char) -> Option<Self> {
        // SAFETY: as the caller promises.
        let (first, rest) = unsafe { text(mode) }?.to_bytes().split_first()?;
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
///
/// # Safety
///
/// The stream is null or open.
pub(crate) unsafe fn made_plain(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: as the caller promises.
        set_plain(unsafe { libc::fileno(stream) }, true);
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
///
/// # Safety
///
/// As `fopen(3)`.
pub(crate) unsafe fn plain_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    let made = unsafe { next!(fopen64(path => *const c_char, mode => *const c_char) -> *mut FILE) };
    // SAFETY: null or new.
    unsafe { made_plain(made) }
}

/// libc's `fdopen`.
///
/// # Safety
///
/// As `fdopen(3)`.
pub(crate) unsafe fn plain_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    let made = unsafe { next!(fdopen(fd => c_int, mode => *const c_char) -> *mut FILE) };
    // SAFETY: null or new.
    unsafe { made_plain(made) }
}

/// libc's `freopen`.
///
/// # Safety
///
/// As `freopen(3)`, for a stream that libc made.
pub(crate) unsafe fn plain_freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller promises.
    let made = unsafe {
        next!(
            freopen64(path => *const c_char, mode => *const c_char, stream => *mut FILE)
                -> *mut FILE
        )
    };
    // SAFETY: null, or open as another file's.
    unsafe { made_plain(made) }
}

/// libc's `fclose`.
///
/// # Safety
///
/// As `fclose(3)`.
pub(crate) unsafe fn plain_fclose(stream: *mut FILE) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { next!(fclose(stream => *mut FILE) -> c_int) }
}
