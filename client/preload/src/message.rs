//! Messages that carry descriptors. A file that another process gets is left to the kernel.

use client::Reason;
use libc::{c_int, c_uint, c_void, mmsghdr, msghdr, ssize_t, timespec};

use crate::{
    descriptor::forget,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, Word as _, blocking, ignore},
    process_client::client,
};

interpose! {
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        let passed = each_passed(message, pass_on);
        answer(passed.and_then(|()| blocking!(SYS_sendmsg, fd, message, flags)))
    }

    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let passed = each_message(messages, count, pass_on);
        answer(passed.and_then(|()| blocking!(SYS_sendmmsg, fd, messages, count, flags)))
    }

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let outcome = blocking!(SYS_recvmsg, fd, message, flags);
        if outcome.is_ok() {
            ignore(each_passed(message, received));
        }
        answer(outcome)
    }

    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec,
    ) -> c_int {
        let outcome = blocking!(SYS_recvmmsg, fd, messages, count, flags, timeout);
        if let Ok(got) = outcome {
            let got = c_uint::try_from(got).unwrap_or(0);
            ignore(each_message(messages, got, received));
        }
        answer(outcome)
    }
}

/// # Errors
///
/// `EOPNOTSUPP`: it is of a remote file that has to stay one, which nobody else could use.
fn pass_on(fd: c_int) -> Outcome<()> {
    client().map_or(Ok(()), |client| client.passable(fd, Reason::PassedOn))
}

fn received(fd: c_int) -> Outcome<()> {
    forget(fd);
    Ok(())
}

/// Calls `then` with each descriptor in the messages.
///
/// # Safety
///
/// There are `count` messages, each as [`each_passed`] asks.
unsafe fn each_message(
    messages: *const mmsghdr,
    count: c_uint,
    then: fn(c_int) -> Outcome<()>,
) -> Outcome<()> {
    if client().is_none() || messages.is_null() {
        return Ok(());
    }
    for index in 0..count as usize {
        // SAFETY: the caller promises that many.
        let message = unsafe { messages.add(index) };
        // SAFETY: one of them.
        let header = unsafe { &raw const (*message).msg_hdr };
        // SAFETY: the header of one of the messages that the caller promises.
        unsafe { each_passed(header, then) }?;
    }
    Ok(())
}

/// Calls `then` with each descriptor in the message. A part that says that it goes on behind the
/// control part, which the kernel refuses, has those before its end.
///
/// # Safety
///
/// `message` is null or a message whose control part is null or as long as it says.
unsafe fn each_passed(message: *const msghdr, then: fn(c_int) -> Outcome<()>) -> Outcome<()> {
    if client().is_none() || message.is_null() {
        return Ok(());
    }
    // SAFETY: a message, as the caller promises.
    let msghdr { msg_control, msg_controllen, .. } = unsafe { message.read() };
    let end = msg_control.word().saturating_add(msg_controllen);
    // SAFETY: a message whose control part is null, or as long as it says.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !part.is_null() {
        // SAFETY: inside the control part, or null, which the loop has excluded.
        let head = unsafe { part.read_unaligned() };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: the part has a head.
            let data = unsafe { libc::CMSG_DATA(part) }.cast::<c_void>().cast::<c_int>();
            // SAFETY: arithmetic only.
            let head_len = unsafe { libc::CMSG_LEN(0) } as usize;
            let len = head.cmsg_len.min(end.saturating_sub(part.word()));
            let count = len.saturating_sub(head_len) / size_of::<c_int>();
            for index in 0..count {
                // SAFETY: so many lie in the control part.
                let place = unsafe { data.add(index) };
                // SAFETY: inside the part.
                then(unsafe { place.read_unaligned() })?;
            }
        }
        // SAFETY: both are what the last calls gave.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
    Ok(())
}
