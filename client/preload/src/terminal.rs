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

    fn tcgetattr(fd: c_int, settings: *mut termios) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcsetattr(fd: c_int, when: c_int, settings: *const termios) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcgetpgrp(fd: c_int) -> pid_t, next {
        of_terminal(fd, next)
    }

    fn tcsetpgrp(fd: c_int, group: pid_t) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcgetsid(fd: c_int) -> pid_t, next {
        of_terminal(fd, next)
    }

    fn tcdrain(fd: c_int) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcflush(fd: c_int, queue: c_int) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcflow(fd: c_int, action: c_int) -> c_int, next {
        of_terminal(fd, next)
    }

    fn tcsendbreak(fd: c_int, duration: c_int) -> c_int, next {
        of_terminal(fd, next)
    }
}

/// The answer of every other file.
const NONE: Outcome = Err(Errno::NOTTY);

/// Asks libc, unless the file is none that could be a terminal.
fn of_terminal(fd: c_int, ask: impl FnOnce() -> c_int) -> c_int {
    if is_placeholder(fd) { answer(NONE) } else { ask() }
}
