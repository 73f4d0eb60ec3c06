//! Calls that make descriptors of what is no regular file, or of files that are never delegated.
//!
//! The client may still know the number, from a file that was closed where nobody saw it.

use libc::{c_char, c_int, c_uint, c_void, pid_t, sockaddr, socklen_t};

use crate::{
    bits::number,
    descriptor::{appeared, forget, let_go},
    errno::answer,
    glibc::Stream,
    interpose::interpose,
    kernel::{Outcome, ask, blocking, ignore, kernel},
    plain_streams::made_plain,
    pointers::Text,
    process_client::client,
    settle::settle_path,
};

interpose! { safe:
    fn socket|__socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int =>
        made(ask!(SYS_socket, domain, kind, protocol));
    fn eventfd(value: c_uint, flags: c_int) -> c_int => made(ask!(SYS_eventfd2, value, flags));

    fn epoll_create(size: c_int) -> c_int {
        if size > 0 {
            answer(made(ask!(SYS_epoll_create1, 0_i32)))
        } else {
            crate::descriptor::refuse(client::Errno::INVAL)
        }
    }

    fn epoll_create1(flags: c_int) -> c_int => made(ask!(SYS_epoll_create1, flags));
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int =>
        made(ask!(SYS_timerfd_create, clock, flags));
    fn inotify_init() -> c_int => made(ask!(SYS_inotify_init1, 0_i32));
    fn inotify_init1(flags: c_int) -> c_int => made(ask!(SYS_inotify_init1, flags));
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int =>
        made(ask!(SYS_fanotify_init, flags, event_flags));
    fn pidfd_open(process: pid_t, flags: c_uint) -> c_int =>
        made(ask!(SYS_pidfd_open, process, flags));
    fn memfd_create(name: Text<'_>, flags: c_uint) -> c_int =>
        made(ask!(SYS_memfd_create, name, flags));

    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        if flags & libc::O_TRUNC != 0 {
            settle_handle(mount, handle);
        }
        let opened = ask!(SYS_open_by_handle_at, mount, handle, flags).and_then(number);
        answer(opened.inspect(|fd| appeared(*fd)))
    }

    fn open_tree(dir: c_int, path: Text<'_>, flags: c_uint) -> c_int =>
        made(ask!(SYS_open_tree, dir, path, flags));
}

interpose! {
    fn pipe|__pipe(ends: *mut c_int) -> c_int => made_two(ends, kernel!(SYS_pipe2, ends, 0_i32));
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int =>
        made_two(ends, kernel!(SYS_pipe2, ends, flags));
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int =>
        made_two(ends, kernel!(SYS_socketpair, domain, kind, protocol, ends));
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =>
        made(blocking!(SYS_accept4, fd, address, len, 0_i32));
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int =>
        made(blocking!(SYS_accept4, fd, address, len, flags));

    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int, next {
        let made = next();
        forget(made);
        made
    }

    fn shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int, next {
        let made = next();
        forget(made);
        made
    }

    fn posix_openpt(flags: c_int) -> c_int, next {
        let made = next();
        forget(made);
        made
    }

    fn openpty(
        main: *mut c_int, other: *mut c_int, name: *mut c_char, settings: *const c_void,
        size: *const c_void,
    ) -> c_int, next {
        let outcome = next();
        if outcome == 0 {
            forget(*main);
            forget(*other);
        }
        outcome
    }

    fn forkpty(
        main: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void,
    ) -> pid_t, next {
        let child = next();
        match child {
            0 => [0, 1, 2].into_iter().for_each(forget),
            1.. => forget(*main),
            _ => {}
        }
        child
    }

    fn closedir(dir: *mut c_void) -> c_int, next {
        let_go(libc::dirfd(dir.cast()));
        next()
    }

    fn tmpfile|tmpfile64() -> Stream<'static>, next {
        let stream = next();
        if !stream.is_null() {
            forget(stream.number());
        }
        made_plain(stream)
    }
}

/// Before a file is truncated by opening it by its handle: what is staged for it goes first, or it
/// would come back.
fn settle_handle(mount: c_int, handle: *mut c_void) {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let opened = ask!(SYS_open_by_handle_at, mount, handle, flags);
    if let (Some(client), Ok(fd)) = (client(), opened.and_then(number)) {
        settle_path(client, fd, Text::of(c""), libc::AT_EMPTY_PATH);
        // Nobody else knows the number.
        ignore(ask!(SYS_close, fd));
    }
}

/// The number that a call has made, which the client knows nothing of.
pub(crate) fn made(outcome: Outcome) -> Outcome<c_int> {
    outcome.and_then(number).inspect(|fd| forget(*fd))
}

/// # Safety
///
/// After success there are two numbers at `ends`.
unsafe fn made_two(ends: *const c_int, outcome: Outcome) -> Outcome {
    if outcome.is_ok() {
        // SAFETY: the kernel has filled them in.
        unsafe { ends.cast::<[c_int; 2]>().read() }.into_iter().for_each(forget);
    }
    outcome
}
