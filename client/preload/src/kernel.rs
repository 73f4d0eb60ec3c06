//! System calls that pass by libc, and so by everything that libc or this library interposes.
//!
//! Pointers are handed to the kernel as the program gave them, so that a bad one ends in `EFAULT`
//! as it would have without us.

use core::{
    arch::asm,
    ptr,
    sync::atomic::{AtomicU8, Ordering},
};

use client::Errno;
use libc::{c_int, c_long};

use crate::interpose::next;

/// Result of a system call.
pub(crate) type Outcome<T = isize> = Result<T, Errno>;

/// Makes the system call `libc::$name`.
macro_rules! kernel {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        $crate::kernel::call(libc::$name, [$($crate::kernel::Word::word($arg)),*])
    };
}

/// As [`kernel`], and a point where `pthread_cancel` ends the thread, even while it waits.
macro_rules! blocking {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        $crate::kernel::wait(libc::$name, [$($crate::kernel::Word::word($arg)),*])
    };
}

pub(crate) use {blocking, kernel};

/// An argument of a system call, widened as C does.
pub(crate) trait Word: Copy {
    fn word(self) -> usize;
}

impl Word for i32 {
    #[inline]
    fn word(self) -> usize {
        (self as isize).word()
    }
}

impl Word for u32 {
    #[inline]
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for u64 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for i64 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
    fn word(self) -> usize {
        (self as isize).word()
    }
}

impl Word for isize {
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "a register holds the bits")]
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for usize {
    #[inline]
    fn word(self) -> usize {
        self
    }
}

impl<T> Word for *const T {
    #[inline]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    #[inline]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// Drops an outcome that the program cannot be told of; the caller says why.
pub(crate) fn ignore<T>(_outcome: Outcome<T>) {}

/// Makes a system call.
///
/// # Safety
///
/// The arguments are right for the call: what it reads and writes is the caller's to give.
#[inline]
pub(crate) unsafe fn call<const N: usize>(number: c_long, args: [usize; N]) -> Outcome {
    let mut six = [0; 6];
    six.iter_mut().zip(args).for_each(|(register, arg)| *register = arg);
    // SAFETY: the caller vouches for the arguments.
    outcome(unsafe { trap(number, six) })
}

/// Decodes the kernel's return register.
pub(crate) fn outcome(value: isize) -> Outcome {
    match i32::try_from(value) {
        Ok(code @ -4095..=-1) => Err(Errno::from_raw_os_error(-code)),
        _ => Ok(value),
    }
}

/// A point where `pthread_cancel` ends the thread, before a call that the client serves.
pub(crate) fn cancellation_point() {
    // Before glibc 2.34 only programs with threads have it.
    // SAFETY: no arguments. Nothing between the program's call and this one needs a destructor.
    let _: Option<()> = unsafe { next!(@younger pthread_testcancel() -> ()) };
}

/// True if libc knows of no other thread. Before glibc 2.32 it does not say so.
#[inline]
pub(crate) fn is_alone() -> bool {
    alone().is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
}

/// Libc's byte that is not 0 while it knows of no other thread.
#[inline]
pub(crate) fn alone() -> Option<&'static AtomicU8> {
    let (place, name) = next!(@place __libc_single_threaded);
    // SAFETY: a byte of libc's, which stays where it is as long as the process.
    place.look(name).map(|flag| unsafe { flag.cast::<AtomicU8>().as_ref() })
}

/// Makes a system call during which the thread can be cancelled.
///
/// # Safety
///
/// As [`call`]. Nothing between the program's call and this one needs a destructor to run.
#[inline]
pub(crate) unsafe fn wait<const N: usize>(number: c_long, args: [usize; N]) -> Outcome {
    if is_alone() {
        // Nobody else can cancel it meanwhile. What it asked of itself is done before, as in libc.
        cancellation_point();
        // SAFETY: the caller vouches for the arguments.
        return unsafe { call(number, args) };
    }
    // SAFETY: as the caller promises.
    unsafe { wait_among_threads(number, args) }
}

/// As [`wait`], where another thread may cancel this one.
///
/// # Safety
///
/// As [`wait`].
#[inline(never)]
unsafe fn wait_among_threads<const N: usize>(number: c_long, args: [usize; N]) -> Outcome {
    const ASYNCHRONOUS: c_int = 1;
    unsafe extern "C" {
        fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    }
    let mut old = 0;
    // SAFETY: `old` is ours. Until the next call nothing runs that cancelling could leave undone.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut old) };
    // SAFETY: the caller vouches for the arguments.
    let outcome = unsafe { call(number, args) };
    // SAFETY: puts back what the first call found.
    unsafe { pthread_setcanceltype(old, ptr::null_mut()) };
    outcome
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn trap(number: c_long, args: [usize; 6]) -> isize {
    let value;
    // SAFETY: the convention of x86-64 Linux; the caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => value,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    value
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn trap(number: c_long, args: [usize; 6]) -> isize {
    let value;
    // SAFETY: the convention of AArch64 Linux; the caller vouches for the arguments.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number, inlateout("x0") args[0] => value, in("x1") args[1],
            in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    value
}
