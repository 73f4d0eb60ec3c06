//! Streams whose reads and writes come to the client, by glibc's `fopencookie`.
//!
//! Such a stream has no descriptor of its own. It is given the file's number all the same, so that
//! `fileno` answers as the program expects; glibc uses the number for nothing else there. Whether
//! this C library's streams are laid out as glibc's is seen on each stream before it is used.
//!
//! glibc makes such streams for bytes only. A program may use any stream for wide characters
//! instead, so each is given what glibc keeps for those in its own streams. With the first wide
//! character glibc then makes it one of its own, which writes to the file's number itself: the
//! kernel has the position then, unless the program, too, has written by the number before.

use core::{
    ffi::{CStr, c_void},
    ptr::{self, with_exposed_provenance_mut},
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use libc::{FILE, c_char, c_int, off64_t, size_t, ssize_t};

use crate::{
    bits::{counted, returned},
    data::{read_into, write_from},
    descriptor::close_number,
    errno::{answer, set},
    glibc::{
        APPENDING, BUFFER_LEN, Callbacks, Head, NO_READS, NO_WRITES, Stream, Wide, open_cookie,
    },
    kernel::{Word, ask, ignore, kernel},
    plain_streams::{Mode, plain_fclose},
    pointers::{Buffer, Data},
    position::seek,
    stat::status_of,
};

/// Numbers that can have a stream of ours.
const NUMBERS: usize = 4096;
const CLOSED: c_int = -1;

/// The stream of ours over each number.
static STREAMS: [AtomicPtr<FILE>; NUMBERS] = [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERS];

/// No number from this one on ever had a stream of ours: most programs end with none, and touch no
/// page of the above.
static NUMBERS_USED: AtomicUsize = AtomicUsize::new(0);

/// The thread that flushes all streams, if one does.
static FLUSHER: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = 0;
const WAIT: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// Makes a stream over a delegated file; `None` where streams are laid out otherwise, and where
/// libc has no memory.
pub(crate) fn stream(fd: c_int, mode: Mode) -> Option<Stream<'static>> {
    let place = place_of(fd)?;
    let callbacks = Callbacks { read, write, seek: seek_to, close };
    // The number is the cookie; nothing is behind the pointer.
    let cookie = with_exposed_provenance_mut(fd.word());
    // SAFETY: the callbacks below take the number of a file for a cookie.
    let stream = unsafe { open_cookie(cookie, mode_of(mode), callbacks) };
    if stream.is_null() {
        return None;
    }
    // SAFETY: a stream that nobody else knows yet.
    if !unsafe { stream.give_number(fd) } {
        // Its place is still empty, so this does not close the file.
        // SAFETY: nobody has learned of the stream, so nobody uses it again.
        unsafe { plain_fclose(stream) };
        return None;
    }
    // SAFETY: it has its number, and nobody else knows it yet.
    unsafe { stream.give_wide() };
    // SAFETY: it has its number, and nobody else knows it yet.
    give_buffer(unsafe { stream.head() });
    NUMBERS_USED.fetch_max(fd.word().saturating_add(1), Ordering::SeqCst);
    place.store(stream.pointer(), Ordering::Release);
    Some(stream)
}

/// As libc does: the position of what is only appended to is told from the end.
pub(crate) fn begin(fd: c_int, mode: Mode) {
    if mode.appends() && !mode.is_readable() {
        // What has no position cannot be asked for it.
        ignore(seek(fd, 0, libc::SEEK_END));
    }
}

/// True if the stream over a number is one with callbacks. One of wide characters is so no longer.
pub(crate) fn is_ours(fd: c_int, stream: Stream<'_>) -> bool {
    let Some(place) = made(fd, stream) else { return false };
    let is_wide = stream.is_wide();
    if is_wide {
        vacate(place);
    }
    !is_wide
}

/// Makes a stream of ours that has seen the end of its file look there again, if a read of `len`
/// bytes is one that libc's own streams make past their buffer. Returns whether it does.
pub(crate) fn forget_end(stream: Stream<'_>, len: usize) -> bool {
    // Locked not for as long as it reads: a thread may be cancelled there.
    stream.locked(|| {
        // SAFETY: made here, as `is_ours` has found, and locked.
        is_ours(stream.own_number(), stream) && unsafe { stream.head() }.forget_end(len)
    })
}

/// Has a stream say of itself that it has seen the end of its file, as libc's own do until they are
/// told otherwise.
///
/// # Safety
///
/// The stream is ours.
pub(crate) unsafe fn remember_end(stream: Stream<'_>) {
    // SAFETY: made here, as the caller knows, and locked.
    stream.locked(|| unsafe { stream.head() }.remember_end());
}

/// Flushes the streams that nobody has, at the end of the program. To wait for the others might be
/// for ever; as it ends, libc writes out what they have without asking for them.
pub(crate) fn flush_all() {
    let used = STREAMS.iter().take(NUMBERS_USED.load(Ordering::SeqCst));
    if used.len() == 0 {
        return;
    }
    FLUSHER.store(own_id(), Ordering::SeqCst);
    for place in used {
        // SAFETY: whoever frees the stream waits in `vacate` until this is over.
        let stream = unsafe { Stream::new(place.load(Ordering::SeqCst)) };
        if !stream.is_null() {
            stream.locked_if_free(|| stream.flush());
        }
    }
    let_all_vacate();
}

/// In the child of a fork: nobody flushes all streams, which the parent may have begun.
pub(crate) fn vacate_in_child() {
    if FLUSHER.load(Ordering::Relaxed) != NOBODY {
        let_all_vacate();
    }
}

/// Nobody flushes all streams any more.
fn let_all_vacate() {
    FLUSHER.store(NOBODY, Ordering::SeqCst);
    // SAFETY: the word is ours, and stays where it is.
    ignore(unsafe { kernel!(SYS_futex, FLUSHER.as_ptr(), WAKE, c_int::MAX) });
}

/// Returns what to drop once a stream has been closed.
pub(crate) fn wide_of(fd: c_int, stream: Stream<'_>) -> Wide {
    match made(fd, stream) {
        // SAFETY: made here; the program closes it, so nobody else uses it.
        Some(_) => unsafe { stream.wide() },
        None => Wide::NONE,
    }
}

/// Makes a stream as if just opened, after another file was put beneath it, under its number.
///
/// # Safety
///
/// The stream is ours, and nobody uses it meanwhile.
pub(crate) unsafe fn restart(fd: c_int, stream: Stream<'_>, mode: Mode) {
    // SAFETY: made here, and this thread's alone, as the caller promises.
    let head = unsafe { stream.emptied() };
    give_buffer(head);
    for (bit, is_set) in [
        (NO_READS, !mode.is_readable()),
        (NO_WRITES, !mode.is_writable()),
        (APPENDING, mode.appends()),
    ] {
        head.add_flags(if is_set { bit } else { 0 });
    }
    head.unorient();
    begin(fd, mode);
}

/// Leaves a stream without a file.
///
/// # Safety
///
/// The stream is ours, and nobody uses it meanwhile.
pub(crate) unsafe fn strand(fd: c_int, stream: Stream<'_>) {
    if let Some(place) = place_of(fd) {
        vacate(place);
    }
    // SAFETY: made here, and this thread's alone, as the caller promises.
    unsafe { stream.emptied() }.strand();
}

/// Gives a stream the buffer that libc would give its own: as long as the file's block. By itself
/// libc gives a stream with callbacks one that may be longer, and a crash would lose more.
fn give_buffer(head: &mut Head) {
    if head.has_buffer() {
        return;
    }
    let Ok(found) = status_of(head.number()) else { return };
    head.set_buffer(match usize::try_from(found.st_blksize) {
        Ok(0) | Err(_) => BUFFER_LEN,
        Ok(len) => len,
    });
}

/// Empties a place, whose stream may be freed when this returns. Returns whether there was one.
///
/// Of the two stores and loads of this and [`flush_all`], all `SeqCst`, either that one finds the
/// place empty, or this one finds that it has to wait.
fn vacate(place: &AtomicPtr<FILE>) -> bool {
    let had_one = !place.swap(ptr::null_mut(), Ordering::SeqCst).is_null();
    loop {
        let flusher = FLUSHER.load(Ordering::SeqCst);
        // A signal handler closes what it has interrupted at its own risk.
        if flusher == NOBODY || flusher == own_id() {
            return had_one;
        }
        let no_limit = ptr::null::<libc::timespec>();
        // SAFETY: the word is ours, and stays where it is. Whatever ends this, it is looked again.
        ignore(unsafe { kernel!(SYS_futex, FLUSHER.as_ptr(), WAIT, flusher, no_limit) });
    }
}

fn own_id() -> u32 {
    ask!(SYS_gettid).map_or(NOBODY, |id| u32::try_from(id).unwrap_or(NOBODY))
}

/// The place of a stream that was made here.
fn made(fd: c_int, stream: Stream<'_>) -> Option<&'static AtomicPtr<FILE>> {
    let stream = stream.pointer();
    place_of(fd).filter(|place| !stream.is_null() && place.load(Ordering::Acquire) == stream)
}

fn place_of(fd: c_int) -> Option<&'static AtomicPtr<FILE>> {
    STREAMS.get(usize::try_from(fd).ok()?)
}

fn mode_of(mode: Mode) -> &'static CStr {
    match (mode.is_readable(), mode.is_writable(), mode.appends()) {
        (true, true, true) => c"a+",
        (true, true, false) => c"r+",
        (false, _, true) => c"a",
        (false, _, false) => c"w",
        (true, false, _) => c"r",
    }
}

/// The number that a cookie is.
fn number_of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.word()).unwrap_or(CLOSED)
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc gives its stream's buffer, or the program's, with room for so much.
    answer(read_into(number_of(cookie), unsafe { Buffer::new(buffer.cast(), len) }))
}

/// Writes everything, as libc's own streams do. Short only after an error, which `errno` names.
unsafe extern "C" fn write(cookie: *mut c_void, data: *const c_char, len: size_t) -> ssize_t {
    let fd = number_of(cookie);
    // SAFETY: libc gives what its stream's buffer, or the program's, holds.
    let mut data = unsafe { Data::new(data.cast(), len) };
    while data.len() > 0 {
        match write_from(fd, data) {
            Ok(more) => data = data.behind(counted(more)),
            Err(errno) => {
                set(errno);
                break;
            }
        }
    }
    let written = len - data.len();
    // SAFETY: libc has called this, and has the stream locked.
    unsafe { move_on(fd, written) };
    returned(written)
}

/// Tells a stream of a position it knows how far it has moved by writing. Of its own streams libc
/// does so itself; else one that is read next, after `fseek(stream, 0, SEEK_CUR)`, would give out
/// again what was just written.
///
/// # Safety
///
/// The stream over the number is being written.
unsafe fn move_on(fd: c_int, len: usize) {
    let Some(place) = place_of(fd) else { return };
    // SAFETY: a stream's place is vacated before the stream is freed.
    let stream = unsafe { Stream::new(place.load(Ordering::Acquire)) };
    if !stream.is_null() {
        // SAFETY: made here; it is this thread's while that writes it.
        unsafe { stream.head() }.move_on(len as u64);
    }
}

unsafe extern "C" fn seek_to(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: libc gives the place of an offset, for the question and for the answer.
    let offset = unsafe { &mut *offset };
    let outcome = seek(number_of(cookie), *offset, whence);
    if let Ok(at) = outcome {
        *offset = i64::try_from(at).unwrap_or(i64::MAX);
    }
    answer(outcome.map(|_| 0_isize))
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = number_of(cookie);
    if place_of(fd).is_some_and(vacate) { answer(close_number(fd)) } else { 0 }
}
