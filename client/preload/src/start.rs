//! The one client of the process: how it starts, and how it ends.
//!
//! Start reads the environment and nothing else; the daemon is looked for at the first delegated
//! call.

use core::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use client::{Client, Config, Errno, Host, Peer, Pid, Setting};
use libc::c_int;
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::{
    cookie, elf,
    environment::{self, lines},
    interpose::next,
    kernel::{alone, blocking, ignore, kernel},
    open::number,
    process::{environ, exiting, watch_forks},
    signals, vfork,
};

static CLIENT: Client = Client::new(&Program);

/// [`SERVED`] while calls go to the client, plus [`IN_VFORK`] for each thread in `vfork`.
static STATE: AtomicUsize = AtomicUsize::new(IDLE);
const IDLE: usize = 0;
const SERVED: usize = 1;
const IN_VFORK: usize = 2;

/// The client, if anything is delegated in this process.
#[inline]
pub(crate) fn client() -> Option<&'static Client> {
    match STATE.load(Ordering::Relaxed) {
        SERVED => Some(&CLIENT),
        IDLE => None,
        state => beside_vfork(state),
    }
}

/// The client, if a name may mean something else to it than to the kernel.
#[inline]
pub(crate) fn ruled() -> Option<&'static Client> {
    client().filter(|client| client.is_ruled())
}

/// The child of a `vfork` runs in this process's memory, and its numbers are not this process's.
#[cold]
fn beside_vfork(state: usize) -> Option<&'static Client> {
    (state & SERVED != 0 && !vfork::is_child()).then_some(&CLIENT)
}

/// A thread enters `vfork`.
pub(crate) fn enter_vfork() {
    STATE.fetch_add(IN_VFORK, Ordering::AcqRel);
}

/// A thread is back from `vfork`.
pub(crate) fn leave_vfork() {
    STATE.fetch_sub(IN_VFORK, Ordering::AcqRel);
}

/// Gives every open file to the kernel, and makes plain system calls from now on.
pub(crate) fn retire() {
    if let Some(client) = client() {
        client.detach();
        STATE.fetch_and(!SERVED, Ordering::AcqRel);
    }
}

/// Takes [`retire`] back, for files that are opened from now on.
pub(crate) fn resume() {
    STATE.fetch_or(SERVED, Ordering::AcqRel);
}

/// The C string of an argument; `None` for a null pointer, which the kernel refuses by itself.
///
/// # Safety
///
/// A pointer that is not null points to a C string that stays as it is for `'a`.
#[inline]
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller promises a C string.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

/// Prints one line on standard error.
pub(crate) fn say(parts: [&str; 3]) {
    let part = |text: &str| libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: text.len(),
    };
    let [first, second, third] = parts;
    let line = [part("kakehi: "), part(first), part(second), part(third), part("\n")];
    // SAFETY: `line` holds five pieces of text. Nobody is left to tell if it cannot be printed.
    ignore(unsafe { kernel!(SYS_writev, libc::STDERR_FILENO, line.as_ptr(), 5_usize) });
}

/// The process around the client.
struct Program;

impl Host for Program {
    fn borrow(&self, fd: RawFd) -> BorrowedFd<'static> {
        // -1 is no descriptor, and the one value that `BorrowedFd` may not hold.
        let fd = if fd == -1 { RawFd::MIN } else { fd };
        // SAFETY: not -1; the number is the program's, and so is the care that it stays open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn replace(&self, fd: RawFd, with: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: no pointers.
        let flags = unsafe { kernel!(SYS_fcntl, fd, libc::F_GETFD) }?;
        let inherit = if flags & libc::FD_CLOEXEC as isize == 0 { 0 } else { libc::O_CLOEXEC };
        // SAFETY: no pointers; the client owns what both numbers refer to.
        unsafe { kernel!(SYS_dup3, with.as_raw_fd(), fd, inherit) }.map(drop)
    }

    fn open(&self, dir: RawFd, path: &CStr, flags: u32, mode: u32) -> Result<RawFd, Errno> {
        // SAFETY: a C string. The client has locked nothing.
        number(unsafe { blocking!(SYS_openat, dir, path.as_ptr(), flags, mode) }?)
    }

    fn hold_signals(&self) -> u64 {
        signals::hold_all()
    }

    fn release_signals(&self, before: u64) {
        signals::restore(before);
    }

    fn peer(&self, socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        // SAFETY: both are ours; the kernel writes at most `len` bytes to `found`, and any bytes
        // are a `ucred`.
        unsafe {
            kernel!(
                SYS_getsockopt,
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                &raw mut found,
                &raw mut len,
            )
        }?;
        Ok(Peer { user: found.uid, process: Pid::from_raw(found.pid) })
    }

    fn notice(&self, text: &str) {
        say([text, "", ""]);
    }
}

/// Takes the settings from the environment.
extern "C" fn start() {
    let mut config = Config::new();
    for setting in Setting::ALL {
        let Some(value) = variable(setting.name()) else { continue };
        if config.set(setting, value).is_err() {
            say([setting.name(), ": too long or malformed; running undelegated; ", "unset it"]);
            return;
        }
    }
    // What this library knows of streams, forks, and exits is glibc's.
    if config.delegates() && elf::next(c"gnu_get_libc_version").is_some() {
        environment::keep();
        watch_forks();
        end_at_exit();
        alone().inspect(|flag| client::alone_while(flag));
        CLIENT.start(&config);
        STATE.store(SERVED, Ordering::Relaxed);
    }
}

/// Has libc call what ends the client, as the last function that it calls at an exit: it begins
/// with the youngest, and the destructors of all libraries are younger. The end of no library, not
/// even this one, takes these functions away.
fn end_at_exit() {
    type End = unsafe extern "C" fn(*mut c_void);
    unsafe extern "C" {
        fn __cxa_atexit(end: End, argument: *mut c_void, library: *mut c_void) -> c_int;
    }
    // There is room for these, as for the first ones.
    // SAFETY: the function takes any argument.
    let _: c_int = unsafe { __cxa_atexit(end, ptr::null_mut(), ptr::null_mut()) };
    let quickly: End = end_quickly;
    // SAFETY: as above.
    let _: Option<c_int> = unsafe {
        next!(
            @younger __cxa_at_quick_exit(
                quickly => End, ptr::null_mut() => *mut c_void,
            ) -> c_int
        )
    };
}

/// Writes out what is buffered and what is staged.
unsafe extern "C" fn end(_: *mut c_void) {
    cookie::flush_all();
    exiting();
}

/// As [`end`], where C leaves what is buffered alone.
unsafe extern "C" fn end_quickly(_: *mut c_void) {
    exiting();
}

/// A variable's value.
fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: libc's; read before the program runs, so nobody changes it meanwhile.
    let mut lines = unsafe { lines(environ) }.map(CStr::to_bytes);
    lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
