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
    mem::MaybeUninit,
    ptr::{self, with_exposed_provenance_mut},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use libc::{FILE, c_char, c_int, off64_t, size_t, ssize_t};

use crate::{
    bits::{counted, returned},
    data::{read_into, write_from},
    descriptor::close_number,
    errno::answer,
    interpose::next,
    kernel::{Word, ignore, kernel},
    position::seek,
    stat::fstat,
    streams::{Mode, plain_fclose},
};

/// Numbers that can have a stream of ours.
const NUMBERS: usize = 4096;
/// glibc's mark of a stream without a descriptor.
const NO_DESCRIPTOR: c_int = -2;
const CLOSED: c_int = -1;
/// glibc's mark of a stream for bytes only.
const NO_WIDE: *mut *const c_void = ptr::without_provenance_mut(usize::MAX);
/// Bytes of the buffer that libc gives to a stream whose file does not say.
const BUFFER_LEN: usize = 8192;
/// Words that glibc keeps for wide characters, at most.
const WIDE_WORDS: usize = 64;

// Bits of `_flags`.
const BUFFER_IS_USERS: c_int = 0x1;
const UNBUFFERED: c_int = 0x2;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const EOF_SEEN: c_int = 0x10;
const ERROR_SEEN: c_int = 0x20;
const LINE_BUFFERED: c_int = 0x200;
const PUTTING: c_int = 0x800;
const APPENDING: c_int = 0x1000;

/// The stream of ours over each number.
static STREAMS: [AtomicPtr<FILE>; NUMBERS] = [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERS];

/// The thread that flushes all streams, if one does.
static FLUSHER: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = 0;
const WAIT: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// The beginning of glibc's `struct _IO_FILE`, which its headers make part of every program.
#[repr(C)]
struct Head {
    flags: c_int,
    read_at: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    write_at: *mut c_char,
    write_end: *mut c_char,
    buffer: *mut c_char,
    buffer_end: *mut c_char,
    saved: [*mut c_char; 3],
    markers: *mut c_void,
    next: *mut FILE,
    number: c_int,
    more_flags: c_int,
    old_offset: i64,
    column: u16,
    vtable_offset: i8,
    short_buffer: [c_char; 1],
    lock: *mut c_void,
    offset: i64,
    conversion: *mut c_void,
    wide: *mut *const c_void,
    unused: [*mut c_void; 3],
    /// Negative for bytes, positive for wide characters, 0 for a stream nobody has used.
    orientation: c_int,
}

impl Head {
    /// How long the buffer would be if the stream were libc's own.
    fn usual_len(&self) -> usize {
        match self.buffer_end.addr().saturating_sub(self.buffer.addr()) {
            0 => BUFFER_LEN,
            len => len,
        }
    }
}

const _: () = {
    assert!(core::mem::offset_of!(Head, number) == 112);
    assert!(core::mem::offset_of!(Head, offset) == 144);
    assert!(core::mem::offset_of!(Head, orientation) == 192);
};

#[repr(C)]
struct Callbacks {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, callbacks: Callbacks) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    fn fwide(stream: *mut FILE, orientation: c_int) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
}

/// Makes a stream over a delegated file; `None` where streams are laid out otherwise, and where
/// libc has no memory.
pub(crate) fn stream(fd: c_int, mode: Mode) -> Option<*mut FILE> {
    let place = place_of(fd)?;
    let callbacks = Callbacks { read, write, seek: seek_to, close };
    // The number is the cookie; nothing is behind the pointer.
    let cookie = with_exposed_provenance_mut(fd.word());
    // SAFETY: the callbacks take such a cookie; the mode is a C string.
    let stream = unsafe { fopencookie(cookie, mode_of(mode).as_ptr(), callbacks) };
    if stream.is_null() {
        return None;
    }
    // SAFETY: a stream that nobody else knows yet.
    if !unsafe { give_number(stream, fd) } {
        // Its place is still empty, so this does not close the file.
        // SAFETY: as above.
        unsafe { plain_fclose(stream) };
        return None;
    }
    // SAFETY: as above, and laid out as expected.
    unsafe { give_wide(stream) };
    // SAFETY: as above.
    give_buffer(unsafe { &mut *stream.cast::<Head>() });
    place.store(stream, Ordering::Release);
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
pub(crate) fn is_ours(fd: c_int, stream: *mut FILE) -> bool {
    let Some(place) = made(fd, stream) else { return false };
    // SAFETY: an open stream, made here; this only asks.
    let is_wide = unsafe { fwide(stream, 0) } > 0;
    if is_wide {
        vacate(place);
    }
    !is_wide
}

/// Makes a stream of ours that has seen the end of its file look there again, if a read of `len`
/// bytes is one that libc's own streams make past their buffer. Returns whether it does.
///
/// # Safety
///
/// The stream is open.
pub(crate) unsafe fn forget_end(stream: *mut FILE, len: usize) -> bool {
    // SAFETY: as the caller promises. Not for as long as it reads: a thread may be cancelled there.
    unsafe { flockfile(stream) };
    // SAFETY: as the caller promises; so every stream begins. `fileno` may change `errno`.
    let is_ours = is_ours(unsafe { (*stream.cast::<Head>()).number }, stream);
    let looks_again = is_ours && {
        // SAFETY: ours, so laid out like this, and locked.
        let head = unsafe { &mut *stream.cast::<Head>() };
        let looks_again = head.flags & EOF_SEEN != 0 && len >= head.usual_len();
        head.flags &= if looks_again { !EOF_SEEN } else { !0 };
        looks_again
    };
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
    looks_again
}

/// Has a stream say of itself that it has seen the end of its file, as libc's own do until they are
/// told otherwise.
///
/// # Safety
///
/// The stream is open, and ours.
pub(crate) unsafe fn remember_end(stream: *mut FILE) {
    // SAFETY: as the caller promises.
    unsafe { flockfile(stream) };
    // SAFETY: ours, so laid out like this, and locked.
    unsafe { (*stream.cast::<Head>()).flags |= EOF_SEEN };
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
}

/// Flushes the streams that nobody has, at the end of the program. To wait for the others might be
/// for ever; as it ends, libc writes out what they have without asking for them.
pub(crate) fn flush_all() {
    FLUSHER.store(own_id(), Ordering::SeqCst);
    for place in &STREAMS {
        let stream = place.load(Ordering::SeqCst);
        // SAFETY: whoever frees the stream waits in `vacate` until this is over.
        if stream.is_null() || unsafe { ftrylockfile(stream) } != 0 {
            continue;
        }
        // SAFETY: as above. A stream that fails keeps its error to itself, as when libc flushes it.
        let _: c_int = unsafe { libc::fflush(stream) };
        // SAFETY: locked above.
        unsafe { funlockfile(stream) };
    }
    let_all_vacate();
}

/// Nobody flushes all streams any more, as in a child that was forked meanwhile.
pub(crate) fn let_all_vacate() {
    FLUSHER.store(NOBODY, Ordering::SeqCst);
    // SAFETY: the word is ours, and stays where it is.
    ignore(unsafe { kernel!(SYS_futex, FLUSHER.as_ptr(), WAKE, c_int::MAX) });
}

/// Returns the memory to free once a stream has been closed; null for libc's own.
pub(crate) fn wide_of(fd: c_int, stream: *mut FILE) -> *mut c_void {
    match made(fd, stream) {
        // SAFETY: made here, so laid out like this.
        Some(_) => match unsafe { &*stream.cast::<Head>() } {
            head if head.wide == NO_WIDE => ptr::null_mut(),
            head => head.wide.cast(),
        },
        None => ptr::null_mut(),
    }
}

/// Makes a stream as if just opened, after another file was put beneath it, under its number.
///
/// # Safety
///
/// The stream is ours, and nobody uses it meanwhile.
pub(crate) unsafe fn restart(fd: c_int, stream: *mut FILE, mode: Mode) {
    // SAFETY: as the caller promises.
    let head = unsafe { emptied(stream) };
    give_buffer(head);
    for (bit, is_set) in [
        (NO_READS, !mode.is_readable()),
        (NO_WRITES, !mode.is_writable()),
        (APPENDING, mode.appends()),
    ] {
        head.flags |= if is_set { bit } else { 0 };
    }
    if head.wide != NO_WIDE {
        head.orientation = 0;
    }
    begin(fd, mode);
}

/// Leaves a stream without a file.
///
/// # Safety
///
/// The stream is ours, and nobody uses it meanwhile.
pub(crate) unsafe fn strand(fd: c_int, stream: *mut FILE) {
    if let Some(place) = place_of(fd) {
        vacate(place);
    }
    // SAFETY: as the caller promises.
    let head = unsafe { emptied(stream) };
    head.flags |= NO_READS | NO_WRITES;
    head.number = CLOSED;
}

/// Drops what a stream holds, how it was used, and what `setvbuf` was told: as in libc, a buffer of
/// the program's is for one file only. One of libc's is kept.
///
/// # Safety
///
/// The stream is ours, and nobody uses it meanwhile.
unsafe fn emptied<'a>(stream: *mut FILE) -> &'a mut Head {
    // SAFETY: an open stream. Also drops what was pushed back.
    unsafe { __fpurge(stream) };
    // SAFETY: ours, so laid out like this.
    let head = unsafe { &mut *stream.cast::<Head>() };
    if head.flags & BUFFER_IS_USERS != 0 {
        head.buffer = ptr::null_mut();
        head.buffer_end = ptr::null_mut();
    }
    head.flags &= !(BUFFER_IS_USERS | UNBUFFERED | LINE_BUFFERED | PUTTING);
    head.flags &= !(NO_READS | NO_WRITES | EOF_SEEN | ERROR_SEEN | APPENDING);
    for pointer in [
        &mut head.read_at,
        &mut head.read_end,
        &mut head.read_base,
        &mut head.write_base,
        &mut head.write_at,
        &mut head.write_end,
    ] {
        *pointer = head.buffer;
    }
    head.offset = -1;
    head
}

/// Gives a stream the buffer that libc would give its own: as long as the file's block. By itself
/// libc gives a stream with callbacks one that may be longer, and a crash would lose more.
fn give_buffer(head: &mut Head) {
    if !head.buffer.is_null() {
        return;
    }
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for the answer.
    if unsafe { fstat(head.number, found.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: the file's status is there.
    let len = usize::try_from(unsafe { found.assume_init() }.st_blksize).unwrap_or(0);
    let len = if len == 0 { BUFFER_LEN } else { len };
    // SAFETY: any length may be asked for. libc frees it with the stream.
    let buffer = unsafe { libc::malloc(len) }.cast::<c_char>();
    if !buffer.is_null() {
        (head.buffer, head.buffer_end) = (buffer, buffer.wrapping_add(len));
    }
}

/// Gives a new stream a number; `false` when its layout is not the expected one.
///
/// # Safety
///
/// The stream is new, made by `fopencookie`, and nobody uses it meanwhile.
unsafe fn give_number(stream: *mut FILE, fd: c_int) -> bool {
    // SAFETY: a stream is at least this large in every C library that has `fopencookie`.
    let number = unsafe { &raw mut (*stream.cast::<Head>()).number };
    // SAFETY: inside the stream.
    if unsafe { number.read() } != NO_DESCRIPTOR {
        return false;
    }
    // SAFETY: inside the stream, and it held what glibc keeps only there.
    unsafe { number.write(fd) };
    // SAFETY: an open stream.
    if unsafe { libc::fileno(stream) } == fd {
        return true;
    }
    // SAFETY: puts back what was there.
    unsafe { number.write(NO_DESCRIPTOR) };
    false
}

/// Gives a new stream what wide characters need, if this glibc keeps it as others do: words, all
/// zero, and last the functions.
///
/// # Safety
///
/// The stream is new, made by `fopencookie`, and nobody uses it meanwhile.
unsafe fn give_wide(stream: *mut FILE) {
    // SAFETY: ours, so laid out like this.
    let head = unsafe { &mut *stream.cast::<Head>() };
    // Looked up, so that this library loads where libc has no such streams.
    let (place, name) = next!(@place _IO_2_1_stderr_);
    let Some(model) = place.look(name) else { return };
    // SAFETY: libc's, for as long as the program runs; what is read never changes.
    let model = unsafe { (*model.as_ptr().cast::<Head>()).wide };
    let (place, name) = next!(@place _IO_wfile_jumps);
    let functions = place.look(name).map_or(ptr::null(), |found| found.as_ptr().cast_const());
    let is_last = |at: &usize| {
        let word = model.wrapping_add(*at);
        // SAFETY: libc's data, which goes on behind this; the search ends at the functions.
        unsafe { word.read() == functions }
    };
    let Some(last) = (0..WIDE_WORDS).find(is_last).filter(|_| head.wide == NO_WIDE) else { return };
    // SAFETY: plain memory.
    let wide = unsafe { libc::calloc(last + 1, size_of::<*const c_void>()) };
    if wide.is_null() {
        return;
    }
    let wide = wide.cast::<*const c_void>();
    let place = wide.wrapping_add(last);
    // SAFETY: the last word of what was made.
    unsafe { place.write(functions) };
    head.wide = wide;
    head.orientation = 0;
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
    // SAFETY: no arguments.
    unsafe { kernel!(SYS_gettid) }.map_or(NOBODY, |id| u32::try_from(id).unwrap_or(NOBODY))
}

/// The place of a stream that was made here.
fn made(fd: c_int, stream: *mut FILE) -> Option<&'static AtomicPtr<FILE>> {
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
    // SAFETY: libc gives the room.
    answer(unsafe { read_into(number_of(cookie), buffer.cast(), len) })
}

/// Writes everything, as libc's own streams do. Short only after an error, which `errno` names.
unsafe extern "C" fn write(cookie: *mut c_void, data: *const c_char, len: size_t) -> ssize_t {
    let mut written = 0;
    while written < len {
        // SAFETY: `written` bytes are behind, and at least one is ahead.
        let rest = unsafe { data.add(written) };
        // SAFETY: libc gives the data.
        match unsafe { write_from(number_of(cookie), rest.cast(), len - written) } {
            Ok(more) => written += counted(more),
            Err(errno) => {
                crate::errno::set(errno);
                break;
            }
        }
    }
    // SAFETY: libc has called this, and has the stream locked.
    unsafe { move_on(number_of(cookie), written) };
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
    // SAFETY: made here, so laid out like this; it is this thread's for now.
    let Some(head) = (unsafe { place.load(Ordering::Acquire).cast::<Head>().as_mut() }) else {
        return;
    };
    if head.flags & PUTTING != 0 && head.offset >= 0 {
        head.offset = head.offset.saturating_add_unsigned(len as u64);
    }
}

unsafe extern "C" fn seek_to(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: libc gives the offset.
    let outcome = seek(number_of(cookie), unsafe { offset.read() }, whence);
    if let Ok(at) = outcome {
        // SAFETY: libc gives room for the answer.
        unsafe { offset.write(i64::try_from(at).unwrap_or(i64::MAX)) };
    }
    answer(outcome.map(|_| 0_isize))
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = number_of(cookie);
    if place_of(fd).is_some_and(vacate) { answer(close_number(fd)) } else { 0 }
}
