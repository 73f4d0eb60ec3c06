//! Terminal calls on delegated files. A placeholder stands for a regular file, which is not a
//! terminal; libc would ask the kernel, to which a placeholder is not a file at all.

use core::{mem::MaybeUninit, ptr};

use client::Errno;
use libc::{c_char, c_int, pid_t, size_t, termios};

use crate::{
    errno::{answer, code, set},
    interpose::interpose,
    kernel::Outcome,
    sync::is_placeholder,
};

interpose! {
    fn isatty(fd: c_int) -> c_int {
        let mut terminal = MaybeUninit::<termios>::uninit();
        c_int::from(libc::ioctl(fd, libc::TCGETS, terminal.as_mut_ptr()) == 0)
    }

    fn ttyname(fd: c_int) -> *mut c_char, next {
        if is_placeholder(fd) {
            set(Errno::NOTTY);
            return ptr::null_mut();
        }
        next()
    }

    fn ttyname_r(fd: c_int, name: *mut c_char, len: size_t) -> c_int, next {
        if is_placeholder(fd) {
            return code(NONE);
        }
        next()
    }

    fn __ttyname_r_chk(fd: c_int, name: *mut c_char, len: size_t, room: size_t) -> c_int, next {
        if is_placeholder(fd) {
            return code(NONE);
        }
        next()
    }
}

/// Defines libc's functions that are about a terminal.
macro_rules! of_terminals {
    ($(fn $name:ident(fd: c_int $(, $arg:ident: $type:ty)*) -> $return:ty;)+) => {
        interpose! {
            $(
                fn $name(fd: c_int $(, $arg: $type)*) -> $return, next {
                    of_terminal(fd, next)
                }
            )+
        }
    };
}

of_terminals! {
    fn tcgetattr(fd: c_int, settings: *mut termios) -> c_int;
    fn tcsetattr(fd: c_int, when: c_int, settings: *const termios) -> c_int;
    fn tcgetpgrp(fd: c_int) -> pid_t;
    fn tcsetpgrp(fd: c_int, group: pid_t) -> c_int;
    fn tcgetsid(fd: c_int) -> pid_t;
    fn tcdrain(fd: c_int) -> c_int;
    fn tcflush(fd: c_int, queue: c_int) -> c_int;
    fn tcflow(fd: c_int, action: c_int) -> c_int;
    fn tcsendbreak(fd: c_int, duration: c_int) -> c_int;
}

/// The answer of every other file.
const NONE: Outcome = Err(Errno::NOTTY);

/// Asks libc, unless the file is none that could be a terminal.
fn of_terminal(fd: c_int, ask: impl FnOnce() -> c_int) -> c_int {
    if is_placeholder(fd) { answer(NONE) } else { ask() }
}
