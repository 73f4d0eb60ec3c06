//! Knowledge of glibc beyond its headers: how a stream lies in memory, what stands
//! for a stream without a descriptor, and what it keeps for wide characters.
//!
//! Nothing here is promised by glibc. A [`Stream`] of which more is used than C's own functions has
//! been made by [`open_cookie`], and [`give_number`](Stream::give_number) has found it to be laid
//! out as expected; where it is not, there are no such streams.

use core::{
    ffi::{CStr, c_void},
    marker::PhantomData,
    ptr,
};

use libc::{FILE, c_char, c_int, off64_t, size_t, ssize_t};

use crate::interpose::next;

/// glibc's mark of a stream without a descriptor.
const NO_DESCRIPTOR: c_int = -2;
const CLOSED: c_int = -1;
/// glibc's mark of a stream for bytes only.
const NO_WIDE: *mut *const c_void = ptr::without_provenance_mut(usize::MAX);
/// Words that glibc keeps for wide characters, at most.
const WIDE_WORDS: usize = 64;
/// Bytes of the buffer that libc gives to a stream whose file does not say.
pub(crate) const BUFFER_LEN: usize = 8192;

// Bits of `_flags`.
const BUFFER_IS_USERS: c_int = 0x1;
const UNBUFFERED: c_int = 0x2;
pub(crate) const NO_READS: c_int = 0x4;
pub(crate) const NO_WRITES: c_int = 0x8;
const EOF_SEEN: c_int = 0x10;
const ERROR_SEEN: c_int = 0x20;
const LINE_BUFFERED: c_int = 0x200;
const PUTTING: c_int = 0x800;
pub(crate) const APPENDING: c_int = 0x1000;

/// The beginning of glibc's `struct _IO_FILE`, which its headers make part of every program.
#[repr(C)]
pub(crate) struct Head {
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

const _: () = {
    assert!(core::mem::offset_of!(Head, number) == 112);
    assert!(core::mem::offset_of!(Head, offset) == 144);
    assert!(core::mem::offset_of!(Head, orientation) == 192);
};

impl Head {
    pub(crate) const fn number(&self) -> c_int {
        self.number
    }

    pub(crate) const fn has_buffer(&self) -> bool {
        !self.buffer.is_null()
    }

    /// Gives the stream memory of libc's, which frees it with the stream.
    pub(crate) fn set_buffer(&mut self, len: usize) {
        // SAFETY: any length may be asked for; without memory the answer is null.
        let buffer = unsafe { libc::malloc(len) }.cast::<c_char>();
        if !buffer.is_null() {
            (self.buffer, self.buffer_end) = (buffer, buffer.wrapping_add(len));
        }
    }

    /// Forgets that the stream has seen the end of its file, if a read of `len` bytes is one that
    /// libc's own streams make past their buffer. Returns whether it does.
    pub(crate) fn forget_end(&mut self, len: usize) -> bool {
        let looks_again = self.flags & EOF_SEEN != 0 && len >= self.usual_len();
        self.flags &= if looks_again { !EOF_SEEN } else { !0 };
        looks_again
    }

    pub(crate) const fn remember_end(&mut self) {
        self.flags |= EOF_SEEN;
    }

    pub(crate) const fn add_flags(&mut self, flags: c_int) {
        self.flags |= flags;
    }

    /// How long the buffer would be if the stream were libc's own.
    fn usual_len(&self) -> usize {
        match self.buffer_end.addr().saturating_sub(self.buffer.addr()) {
            0 => BUFFER_LEN,
            len => len,
        }
    }

    /// Drops what the stream holds, how it was used, and what `setvbuf` was told: as in libc, a
    /// buffer of the program's is for one file only. One of libc's is kept.
    fn empty(&mut self) {
        if self.flags & BUFFER_IS_USERS != 0 {
            self.buffer = ptr::null_mut();
            self.buffer_end = ptr::null_mut();
        }
        self.flags &= !(BUFFER_IS_USERS | UNBUFFERED | LINE_BUFFERED | PUTTING);
        self.flags &= !(NO_READS | NO_WRITES | EOF_SEEN | ERROR_SEEN | APPENDING);
        for pointer in [
            &mut self.read_at,
            &mut self.read_end,
            &mut self.read_base,
            &mut self.write_base,
            &mut self.write_at,
            &mut self.write_end,
        ] {
            *pointer = self.buffer;
        }
        self.offset = -1;
    }

    /// The next use decides whether it is one of wide characters, if it can be.
    pub(crate) fn unorient(&mut self) {
        if self.wide != NO_WIDE {
            self.orientation = 0;
        }
    }

    pub(crate) const fn strand(&mut self) {
        self.flags |= NO_READS | NO_WRITES;
        self.number = CLOSED;
    }

    /// Moves a position that the stream knows by what it has written.
    pub(crate) const fn move_on(&mut self, len: u64) {
        if self.flags & PUTTING != 0 && self.offset >= 0 {
            self.offset = self.offset.saturating_add_unsigned(len);
        }
    }
}

/// A stream that is open for `'a`, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Stream<'a>(*mut FILE, PhantomData<&'a FILE>);

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, callbacks: Callbacks) -> *mut FILE;
    fn __fpurge(stream: Stream<'_>);
    fn feof_unlocked(stream: Stream<'_>) -> c_int;
    fn fwide(stream: Stream<'_>, orientation: c_int) -> c_int;
    fn flockfile(stream: Stream<'_>);
    fn ftrylockfile(stream: Stream<'_>) -> c_int;
    fn funlockfile(stream: Stream<'_>);
}

/// C's own functions; a null stream is never handed to them.
impl<'a> Stream<'a> {
    pub(crate) const NULL: Self = Self(ptr::null_mut(), PhantomData);

    /// # Safety
    ///
    /// A pointer that is not null is that of a stream that is open for `'a`.
    pub(crate) const unsafe fn new(pointer: *mut FILE) -> Self {
        Self(pointer, PhantomData)
    }

    pub(crate) const fn pointer(self) -> *mut FILE {
        self.0
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The number of the file beneath it.
    pub(crate) fn number(self) -> c_int {
        // SAFETY: `fileno` reads a field of a stream, which is open as long as a `Stream` is.
        unsafe { libc::fileno(self.0) }
    }

    /// True if it has seen the end of its file; asked without its lock, as the program reads.
    pub(crate) fn has_ended(self) -> bool {
        // SAFETY: `feof_unlocked` reads a field of the open stream.
        unsafe { feof_unlocked(self) != 0 }
    }

    /// True if it is used for wide characters.
    pub(crate) fn is_wide(self) -> bool {
        // SAFETY: an orientation of 0 only asks the open stream for its own.
        unsafe { fwide(self, 0) > 0 }
    }

    /// Writes out what is buffered. A stream that fails keeps its error to itself.
    pub(crate) fn flush(self) {
        // SAFETY: `fflush` takes any open stream, in whatever state it is.
        let _: c_int = unsafe { libc::fflush(self.0) };
    }

    /// Does something while no other thread uses the stream.
    pub(crate) fn locked<T>(self, work: impl FnOnce() -> T) -> T {
        // SAFETY: an open stream's lock, which a thread may take more than once.
        unsafe { flockfile(self) };
        let done = work();
        // SAFETY: the lock was taken above, by this thread.
        unsafe { funlockfile(self) };
        done
    }

    /// As [`locked`](Self::locked), unless another thread uses it.
    pub(crate) fn locked_if_free(self, work: impl FnOnce()) {
        // SAFETY: an open stream's lock, which is not waited for.
        if unsafe { ftrylockfile(self) } == 0 {
            work();
            // SAFETY: the lock was taken by the question above.
            unsafe { funlockfile(self) };
        }
    }
}

/// Streams with callbacks, and what only glibc knows of them.
impl<'a> Stream<'a> {
    /// The number that stands in the stream. `fileno` would change `errno` where there is none.
    pub(crate) fn own_number(self) -> c_int {
        // SAFETY: every C library that has `fopencookie` begins an open stream like this.
        unsafe { (*self.0.cast::<Head>()).number }
    }

    /// # Safety
    ///
    /// The stream is one of [`open_cookie`] that has [got a number](Self::give_number), and nobody
    /// else uses it meanwhile: it is locked, or new, or the program lends it, as for `freopen`.
    pub(crate) unsafe fn head(self) -> &'a mut Head {
        // SAFETY: such a stream is laid out like this, and it is the caller's for now.
        unsafe { &mut *self.0.cast::<Head>() }
    }

    /// Drops what the stream holds and how it was used.
    ///
    /// # Safety
    ///
    /// As [`head`](Self::head).
    pub(crate) unsafe fn emptied(self) -> &'a mut Head {
        // SAFETY: `__fpurge` takes any open stream. It also drops what was pushed back.
        unsafe { __fpurge(self) };
        // SAFETY: `emptied` asks for a stream of ours that is the caller's, as `head` does.
        let head = unsafe { self.head() };
        head.empty();
        head
    }

    /// Gives a new stream a number; `false` when its layout is not the expected one.
    ///
    /// # Safety
    ///
    /// The stream is new, made by [`open_cookie`], and nobody uses it meanwhile.
    pub(crate) unsafe fn give_number(self, fd: c_int) -> bool {
        // SAFETY: a stream is at least this large in every C library that has `fopencookie`.
        let number = unsafe { &raw mut (*self.0.cast::<Head>()).number };
        // SAFETY: inside the stream, which is initialized.
        if unsafe { number.read() } != NO_DESCRIPTOR {
            return false;
        }
        // SAFETY: inside the stream, and it held what glibc keeps only there.
        unsafe { number.write(fd) };
        if self.number() == fd {
            return true;
        }
        // SAFETY: puts back what was there.
        unsafe { number.write(NO_DESCRIPTOR) };
        false
    }

    /// Gives a new stream what wide characters need, if this glibc keeps it as others do: words,
    /// all zero, and last the functions.
    ///
    /// # Safety
    ///
    /// As [`head`](Self::head), of a new stream.
    pub(crate) unsafe fn give_wide(self) {
        // SAFETY: a new stream of ours, which nobody else knows.
        let head = unsafe { self.head() };
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
        let last = (0..WIDE_WORDS).find(is_last).filter(|_| head.wide == NO_WIDE);
        let Some(last) = last else { return };
        // SAFETY: any length may be asked for; without memory the answer is null.
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

    /// Memory that it was given for wide characters.
    ///
    /// # Safety
    ///
    /// As [`head`](Self::head).
    pub(crate) unsafe fn wide(self) -> Wide {
        // SAFETY: `wide` asks for a stream of ours that is the caller's, as `head` does.
        let wide = unsafe { self.head() }.wide;
        Wide(if wide == NO_WIDE { ptr::null_mut() } else { wide.cast() })
    }
}

/// Memory of a stream for wide characters; freed when it is dropped, after the stream.
pub(crate) struct Wide(*mut c_void);

impl Wide {
    pub(crate) const NONE: Self = Self(ptr::null_mut());
}

impl Drop for Wide {
    fn drop(&mut self) {
        // SAFETY: null, or memory of `calloc` that nobody knows once its stream is closed.
        unsafe { libc::free(self.0) };
    }
}

/// Functions that glibc calls in place of the kernel, with the cookie first.
#[repr(C)]
pub(crate) struct Callbacks {
    pub(crate) read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    pub(crate) write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    pub(crate) seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    pub(crate) close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// Makes a stream with callbacks; null where libc has no memory.
///
/// # Safety
///
/// The callbacks take such a cookie.
pub(crate) unsafe fn open_cookie(
    cookie: *mut c_void,
    mode: &CStr,
    callbacks: Callbacks,
) -> Stream<'static> {
    // SAFETY: the mode is a C string, and the cookie goes to the callbacks alone.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), callbacks) };
    // SAFETY: null, or open until it is closed by `fclose`.
    unsafe { Stream::new(stream) }
}
