//! The one client of the process: how it starts, and how it ends.
//!
//! Start reads the environment and nothing else; the daemon is looked for at the first delegated
//! call.

use core::{
    ffi::{CStr, c_void},
    mem, ptr,
};

use client::{Backing, Config, Errno, Host, Peer, Pid, Room, Setting};
use libc::c_int;
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::{
    bits::number,
    cookie, elf,
    environment::{self, environ, lines},
    handlers,
    interpose::next,
    kernel::{alone, ask, ask_blocking, descriptor_flags, ignore, kernel},
    process::{exiting, watch_forks},
    process_client::{BACKING, CLIENT, Program, resume},
};

/// Prints one line on standard error.
pub(crate) fn say(parts: [&str; 3]) {
    let part = |text: &str| libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: text.len(),
    };
    let [first, second, third] = parts;
    let line = [part("kakehi: "), part(first), part(second), part(third), part("\n")];
    // Nobody is left to tell if it cannot be printed.
    ignore(ask!(SYS_writev, libc::STDERR_FILENO, line.as_ptr(), line.len()));
}

impl Host for Program {
    fn borrow(&self, fd: RawFd) -> BorrowedFd<'static> {
        // -1 is no descriptor, and the one value that `BorrowedFd` may not hold.
        let fd = if fd == -1 { RawFd::MIN } else { fd };
        // SAFETY: not -1; the number is the program's, and so is the care that it stays open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn replace(&self, fd: RawFd, with: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = descriptor_flags(fd)?;
        let inherit = if flags & libc::FD_CLOEXEC as isize == 0 { 0 } else { libc::O_CLOEXEC };
        ask!(SYS_dup3, with.as_raw_fd(), fd, inherit).map(drop)
    }

    fn open(&self, dir: RawFd, path: &CStr, flags: u32, mode: u32) -> Result<RawFd, Errno> {
        // The client has locked nothing.
        number(ask_blocking!(SYS_openat, dir, path.as_ptr(), flags, mode)?)
    }

    /// A tenth of what the link in `/proc` costs.
    fn current_folder(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: the kernel writes at most as many bytes as there is room for.
        let len = unsafe { kernel!(SYS_getcwd, into.as_mut_ptr(), into.len()) }.ok()?;
        let len = usize::try_from(len).ok()?.checked_sub(1)?; // Behind it is a NUL.
        // That of a folder out of reach begins with a word.
        into.starts_with(b"/").then_some(len)
    }

    fn node_in_view(&self, dir: RawFd) -> Option<u64> {
        /// A handle that is not meant to be opened (Linux 6.5): before 6.8 every FUSE has others.
        const FOR_IDENTITY: c_int = 0x200;
        const WORDS_LEN: u32 = 12;
        /// FUSE's: both halves of the node's number, and its generation.
        const KIND: u32 = 0x81;
        let ask = |flags: c_int| {
            let (mut handle, mut mount) = ([WORDS_LEN, 0, 0, 0, 0], 0);
            // SAFETY: both are ours; the kernel writes a head of two words to `handle`, and no more
            // bytes behind it than that says.
            let asked = unsafe {
                kernel!(
                    SYS_name_to_handle_at,
                    dir,
                    c"".as_ptr(),
                    handle.as_mut_ptr(),
                    &raw mut mount as *mut c_int,
                    flags | libc::AT_EMPTY_PATH,
                )
            };
            asked.map(|_| handle)
        };
        let handle = match ask(FOR_IDENTITY) {
            Err(Errno::INVAL) => ask(0),
            handle => handle,
        };
        match handle {
            Ok([_, KIND, high, low, _]) => Some(u64::from(high) << 32 | u64::from(low)),
            _ => None,
        }
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
    handlers::start();
    let mut config = Config::new();
    for (setting, value) in settings() {
        if config.set(setting, value).is_err() {
            say([setting.name(), ": too long or malformed; running undelegated; ", "unset it"]);
            return;
        }
    }
    // What this library knows of streams, forks, and exits is glibc's.
    if config.delegates() && elf::in_glibc(c"gnu_get_libc_version").is_some() && !is_watched() {
        watch_forks();
        end_at_exit();
        alone().inspect(|flag| client::alone_while(flag));
        CLIENT.start(&config);
        if CLIENT.has_remote() {
            environment::keep();
        }
        resume();
        leave_out_of_dumps();
    }
}

/// True if a sanitizer watches each access to memory. It takes what the client does for a race, or
/// for a use of what nobody has written: it sees the client's calls of `memcpy`, but not its locks.
fn is_watched() -> bool {
    [c"__tsan_init", c"__msan_init"].into_iter().any(|name| elf::first(name).is_some())
}

/// Has a core dump leave out the client's memory, which is ten times as long as a small program's:
/// what lies between two parts of it is the library's, too.
fn leave_out_of_dumps() {
    /// The longest of a page.
    const PAGE: usize = 1 << 16;
    let (tables, rooms) = ((&raw const BACKING).addr(), Room::memory());
    let (start, end) = (tables.min(rooms.start), rooms.end.max(tables + size_of::<Backing>()));
    let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    // SAFETY: what is dumped changes no contents. An old kernel dumps it.
    ignore(unsafe { kernel!(SYS_madvise, start, end.saturating_sub(start), libc::MADV_DONTDUMP) });
}

/// Has libc call what ends the client, as the last function that it calls at an exit: it begins
/// with the youngest, and the destructors of all libraries are younger. The end of no library, not
/// even this one, takes these functions away.
fn end_at_exit() {
    type End = unsafe extern "C" fn(*mut c_void);
    type AtExit = unsafe extern "C" fn(End, *mut c_void, *mut c_void) -> c_int;
    // A sanitizer's dies before that has started.
    if let Some(found) = elf::in_glibc(c"__cxa_atexit") {
        // SAFETY: the function of that name.
        let at_exit = unsafe { mem::transmute::<*mut c_void, AtExit>(found.as_ptr()) };
        // There is room for these, as for the first ones.
        // SAFETY: the function takes any argument.
        let _: c_int = unsafe { at_exit(end, ptr::null_mut(), ptr::null_mut()) };
    }
    let quickly: End = end_quickly;
    // SAFETY: the function takes any argument, and libc has the same room for it.
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

/// The settings that the environment has, in their order; of a variable that it has twice the
/// first value counts.
fn settings() -> impl Iterator<Item = (Setting, &'static [u8])> {
    let mut values = [None; Setting::COUNT];
    // One look at each variable: there are many more of them.
    // SAFETY: libc's; read before the program runs, so nobody changes it meanwhile.
    for line in unsafe { lines(environ) }.map(CStr::to_bytes) {
        for (value, setting) in values.iter_mut().zip(Setting::all()) {
            let is_value = |line: &&'static [u8]| line.first() == Some(&b'=');
            let rest = line.strip_prefix(setting.name().as_bytes()).filter(is_value);
            if let (Some(rest), None) = (rest, &value) {
                *value = rest.get(1..);
            }
        }
    }
    Setting::all().zip(values).filter_map(|(setting, value)| Some((setting, value?)))
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
