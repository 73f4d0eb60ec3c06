//! System calls that pass by libc, and so by everything that libc or this library interposes.
//!
//! Pointers are handed to the kernel as the program gave them, so that a bad one ends in `EFAULT`
//! as it would have without us.
//!
//! # Depth
//!
//! Each `ret` to a frame from before a system call costs 4 to 14 ns, measured on an AMD EPYC whose
//! kernel guards its returns against speculation: the processor seems to have forgotten where they
//! lead. So the common ways of short calls are inlined into the C function itself, and the others
//! are functions of their own.

use core::{
    arch::asm,
    mem::MaybeUninit,
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

/// As [`kernel`], of a call that is safe whatever its arguments are: another does not compile.
macro_rules! ask {
    ($name:ident $(, $arg:expr)* $(,)?) => {{
        const CALL: $crate::kernel::Harmless = $crate::kernel::Harmless::new(libc::$name);
        $crate::kernel::call_harmless(CALL, [$($crate::kernel::Word::word($arg)),*])
    }};
}

/// As [`ask`], and a point where `pthread_cancel` ends the thread, even while it waits. What is
/// locked above it would stay so.
macro_rules! ask_blocking {
    ($name:ident $(, $arg:expr)* $(,)?) => {{
        const CALL: $crate::kernel::Harmless = $crate::kernel::Harmless::new(libc::$name);
        $crate::kernel::wait_harmless(CALL, [$($crate::kernel::Word::word($arg)),*])
    }};
}

pub(crate) use {ask, ask_blocking, blocking, kernel};

/// The number of a system call that writes to no memory of the process, and maps none. What it
/// reads there the kernel copies, and a bad address is `EFAULT`.
#[derive(Clone, Copy)]
pub(crate) struct Harmless(c_long);

impl Harmless {
    pub(crate) const fn new(number: c_long) -> Self {
        assert!(Self::is_harmless(number), "the call may write to memory");
        Self(number)
    }

    const fn is_harmless(number: c_long) -> bool {
        Self::is_of_numbers(number) || Self::is_of_names(number) || Self::is_of_bytes(number)
    }

    /// Calls that take numbers alone.
    const fn is_of_numbers(number: c_long) -> bool {
        matches!(
            number,
            libc::SYS_close
                | libc::SYS_close_range
                | libc::SYS_dup
                | libc::SYS_dup3
                | libc::SYS_epoll_create1
                | libc::SYS_eventfd2
                | libc::SYS_fadvise64
                | libc::SYS_fallocate
                | libc::SYS_fanotify_init
                | libc::SYS_fchmod
                | libc::SYS_fchown
                | libc::SYS_fdatasync
                | libc::SYS_flock
                | libc::SYS_fsync
                | libc::SYS_ftruncate
                | libc::SYS_getpid
                | libc::SYS_gettid
                | libc::SYS_inotify_init1
                | libc::SYS_kcmp
                | libc::SYS_lseek
                | libc::SYS_pidfd_getfd
                | libc::SYS_pidfd_open
                | libc::SYS_readahead
                | libc::SYS_setns
                | libc::SYS_socket
                | libc::SYS_sync
                | libc::SYS_sync_file_range
                | libc::SYS_syncfs
                | libc::SYS_tee
                | libc::SYS_timerfd_create
                | libc::SYS_unshare
        )
    }

    /// Calls that read names, and small structures beside them.
    const fn is_of_names(number: c_long) -> bool {
        matches!(
            number,
            libc::SYS_bind
                | libc::SYS_chdir
                | libc::SYS_chroot
                | libc::SYS_epoll_ctl
                | libc::SYS_faccessat
                | libc::SYS_faccessat2
                | libc::SYS_fchmodat
                | libc::SYS_fchownat
                | libc::SYS_fremovexattr
                | libc::SYS_inotify_add_watch
                | libc::SYS_linkat
                | libc::SYS_lremovexattr
                | libc::SYS_memfd_create
                | libc::SYS_mkdirat
                | libc::SYS_mknodat
                | libc::SYS_open_by_handle_at
                | libc::SYS_open_tree
                | libc::SYS_openat
                | libc::SYS_openat2
                | libc::SYS_removexattr
                | libc::SYS_renameat2
                | libc::SYS_symlinkat
                | libc::SYS_truncate
                | libc::SYS_unlinkat
                | libc::SYS_utimensat
        ) || number == SYS_fchmodat2
    }

    /// Calls that read bytes.
    const fn is_of_bytes(number: c_long) -> bool {
        matches!(
            number,
            libc::SYS_fsetxattr
                | libc::SYS_lsetxattr
                | libc::SYS_pwrite64
                | libc::SYS_pwritev
                | libc::SYS_pwritev2
                | libc::SYS_setxattr
                | libc::SYS_write
                | libc::SYS_writev
        )
    }
}

/// One of the younger calls, which have one number everywhere.
#[expect(non_upper_case_globals, reason = "as libc names those that it knows")]
pub(crate) const SYS_fchmodat2: c_long = 452;

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
    // SAFETY: the registers hold what `call` was promised, and zeros.
    outcome(unsafe { trap(number, six) })
}

/// Makes a system call that is safe whatever its arguments are.
#[inline]
pub(crate) fn call_harmless<const N: usize>(number: Harmless, args: [usize; N]) -> Outcome {
    // SAFETY: the call writes nowhere, and the kernel checks where it reads: see `Harmless`.
    unsafe { call(number.0, args) }
}

/// As [`call_harmless`]; the thread can be cancelled meanwhile.
#[inline]
pub(crate) fn wait_harmless<const N: usize>(number: Harmless, args: [usize; N]) -> Outcome {
    // SAFETY: a harmless call, as above; who is cancelled here leaves no memory half written.
    unsafe { wait(number.0, args) }
}

/// The flags of a descriptor itself, `FD_*`.
pub(crate) fn descriptor_flags(fd: c_int) -> Outcome {
    // SAFETY: the command takes no argument, and its answer is the value.
    unsafe { kernel!(SYS_fcntl, fd, libc::F_GETFD) }
}

/// The flags of an open file, `O_*`.
pub(crate) fn file_flags(fd: c_int) -> Outcome {
    // SAFETY: the command takes no argument, and its answer is the value.
    unsafe { kernel!(SYS_fcntl, fd, libc::F_GETFL) }
}

/// Descriptors of this process have numbers below this.
pub(crate) fn descriptor_limit() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_NOFILE;
    // SAFETY: the limit is this frame's to be written, and none is set.
    let asked = unsafe { kernel!(SYS_prlimit64, 0, resource, ptr::null::<u8>(), &raw mut limit) };
    asked.ok().and_then(|_| c_int::try_from(limit.rlim_cur).ok()).unwrap_or(c_int::MAX)
}

/// Has the kernel ask whoever knows what a file is like by now.
pub(crate) fn refresh(fd: c_int) {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the status is this frame's to be written.
    ignore(unsafe { kernel!(SYS_fstat, fd, status.as_mut_ptr()) });
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
        // SAFETY: `wait` was promised what `call` asks for.
        return unsafe { call(number, args) };
    }
    // SAFETY: this is another half of `wait`, with the same arguments.
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
    // SAFETY: `wait` was promised what `call` asks for, and that nothing here needs a destructor.
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
