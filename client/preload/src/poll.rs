//! Waiting until something is ready: poll, select, epoll. A regular file always is.
//!
//! Of a placeholder the kernel says otherwise. In `poll` it is no open number, and ends the call at
//! once: that is mended afterwards, so that a call without placeholders costs nothing. In `select`
//! it is ready in every way, and before Linux 5.17 never: there it is taken out of the sets first.

use core::{ptr, ptr::with_exposed_provenance_mut as pointer, slice};

use client::Errno;
use libc::{
    c_int, c_long, c_short, c_uint, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t,
    timespec, timeval,
};

use crate::{
    data::check,
    errno::answer,
    interpose::interpose,
    kernel::{self, Outcome, Word as _, ask, descriptor_flags},
    pointers::Given,
    process_client::client,
};

/// Events a regular file is ready for.
const READY: c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// A number with this bit is none, which `poll` passes by. Those of files have sixteen bits.
const HIDDEN: c_int = c_int::MIN;
const NUMBERS: c_int = 1 << 16;
/// Words of a set. Programs that make larger ones find files of ours in the first part alone.
const WORDS: usize = libc::FD_SETSIZE / BITS;
const BITS: usize = u64::BITS as usize;
/// Bytes of a set of signals as the kernel has it.
const SIGNALS_LEN: usize = size_of::<u64>();

interpose! {
    fn poll|__poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int =>
        poll_for(fds, count, timeout);

    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        check(count.word(), room / size_of::<pollfd>());
        answer(poll_for(fds, count, timeout))
    }

    fn ppoll(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int =>
        poll_until(fds, count, timeout, mask);

    fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t,
    ) -> c_int {
        check(count.word(), room / size_of::<pollfd>());
        answer(poll_until(fds, count, timeout, mask))
    }

    fn select|__select(
        count: c_int, reading: *mut fd_set, writing: *mut fd_set, urgent: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        let mut left = timeout.as_ref().map(|time| timespec {
            tv_sec: time.tv_sec.saturating_add(time.tv_usec / 1_000_000),
            tv_nsec: time.tv_usec % 1_000_000 * 1000,
        });
        let time = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let [reading, writing, urgent] = [reading, writing, urgent].map(|set| set.word());
        let args = [count.word(), reading, writing, urgent, time.word(), 0];
        let found = selected(libc::SYS_pselect6, args);
        if let Some(left) = left {
            timeout.write(timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 });
        }
        answer(found)
    }

    fn pselect(
        count: c_int, reading: *mut fd_set, writing: *mut fd_set, urgent: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        // The kernel writes what is left of the time; libc hides that.
        let mut left = timeout.as_ref().copied();
        let time = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let [reading, writing, urgent] = [reading, writing, urgent].map(|set| set.word());
        let mask = [mask.word(), SIGNALS_LEN];
        let args = [count.word(), reading, writing, urgent, time.word(), mask.as_ptr().word()];
        answer(selected(libc::SYS_pselect6, args))
    }
}

interpose! { safe:
    fn epoll_ctl(poll: c_int, operation: c_int, fd: c_int, event: Given<'_, epoll_event>) -> c_int {
        let done = ask!(SYS_epoll_ctl, poll, operation, fd, event);
        answer(done.map_err(|errno| match errno {
            // What the kernel says of a regular file.
            Errno::BADF if is_open(poll) && client().is_some_and(|c| c.is_file(fd)) => Errno::PERM,
            _ => errno,
        }))
    }
}

/// As `poll(2)`; the time is in milliseconds.
///
/// # Safety
///
/// There are `count` entries.
unsafe fn poll_for(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> Outcome {
    let (seconds, rest) = (timeout / 1000, timeout % 1000);
    let limit = timespec { tv_sec: seconds.into(), tv_nsec: i64::from(rest) * 1_000_000 };
    let limit = if timeout < 0 { ptr::null() } else { &raw const limit };
    // SAFETY: `count` entries, a time or null, and no set.
    unsafe { poll_until(fds, count, limit, ptr::null()) }
}

/// As `ppoll(2)`.
///
/// # Safety
///
/// There are `count` entries; the others are null or what they are called.
unsafe fn poll_until(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Outcome {
    // The kernel writes what is left of the time; libc hides that.
    // SAFETY: null, or a time that the program lends.
    let mut left = unsafe { timeout.as_ref() }.copied();
    let time = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let args = [fds.word(), count.word(), time.word(), mask.word(), SIGNALS_LEN, 0];
    // SAFETY: the entries and the set as they were given, and a time of this function's.
    unsafe { polled(libc::SYS_ppoll, args) }
}

/// As `poll(2)` or `ppoll(2)`, by its number.
///
/// # Safety
///
/// The arguments are right for the system call.
#[expect(clippy::cast_possible_truncation, reason = "as the kernel takes a count")]
pub(crate) unsafe fn polled(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: the system call's own arguments; what is above it needs no destructor.
    let found = unsafe { kernel::wait(number, args) }?;
    let Some(client) = client().filter(|_| found > 0) else { return Ok(found) };
    let [fds, count, ..] = args;
    let (fds, count) = (pointer::<pollfd>(fds), count as c_uint as usize);
    // SAFETY: so many the kernel has read and written there; it is the call's own.
    let all = || unsafe { slice::from_raw_parts_mut(fds, count) };
    let is_ours = |one: &pollfd| one.revents & libc::POLLNVAL != 0 && client.is_file(one.fd);
    if !all().iter().any(is_ours) {
        return Ok(found);
    }
    let is_idle = |one: &&pollfd| is_ours(one) && one.events & READY == 0;
    let others = found.saturating_sub_unsigned(all().iter().filter(is_idle).count());
    let ours = all().iter_mut().filter(|one| is_ours(one));
    if others > 0 {
        ours.for_each(|one| one.revents = one.events & READY);
        return Ok(others);
    }
    // Asked for nothing that a file can be ready for: it is the others that are waited for.
    ours.for_each(|one| one.fd ^= HIDDEN);
    // SAFETY: the same call once more, with some of its entries hidden.
    let outcome = unsafe { kernel::wait(number, args) };
    for one in all().iter_mut().filter(|one| one.fd < HIDDEN + NUMBERS) {
        one.fd ^= HIDDEN;
    }
    outcome
}

/// As `select(2)` or `pselect6(2)`, by its number.
///
/// # Safety
///
/// The arguments are right for the system call.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "as the kernel")]
pub(crate) unsafe fn selected(number: c_long, args: [usize; 6]) -> Outcome {
    let [count, reading, writing, urgent, ..] = args;
    let count = u32::try_from(count as c_int).unwrap_or(0).min(libc::FD_SETSIZE as u32);
    let mut sets = [reading, writing, urgent].map(Set::new);
    if let Some(client) = client() {
        // Only numbers that are open, as in the kernel: a set may be shorter than it is said to be.
        for fd in client.files_below(count) {
            // SAFETY: the number is open and among those that the sets are for.
            let has = |set: &Set| unsafe { set.has(fd) };
            if sets.iter().any(has) && client.is_placeholder(fd) {
                // SAFETY: a number that the sets were just asked about.
                sets.iter_mut().for_each(|set| unsafe { set.take(fd) });
            }
        }
    }
    let ready = sets.iter().take(2).map(Set::taken_count).sum();
    let outcome = if ready == 0 {
        // SAFETY: the system call's own arguments; what is above it needs no destructor.
        unsafe { kernel::wait(number, args) }
    } else {
        // SAFETY: the system call's own arguments, of which the sets have lost some numbers.
        unsafe { select_at_once(number, args) }
    };
    let put_back = if outcome.is_ok() { 2 } else { sets.len() };
    for set in sets.iter().take(put_back) {
        // SAFETY: the call is over, and the sets are where it found them.
        unsafe { set.put_back() };
    }
    outcome.map(|found| found.saturating_add_unsigned(ready))
}

/// Looks who else is ready.
///
/// # Safety
///
/// As [`selected`].
unsafe fn select_at_once(number: c_long, args: [usize; 6]) -> Outcome {
    let mut at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    let [count, reading, writing, urgent, ..] = args;
    // Without the set of signals: none comes in a call that does not wait.
    let args = [count, reading, writing, urgent, (&raw mut at_once).word(), 0];
    loop {
        // SAFETY: the call's sets, and no time but this one: both kinds are two words.
        match unsafe { kernel::call(number, args) } {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// One of the sets of `select`, without what was taken out of it.
struct Set {
    words: *mut u64,
    taken: [u64; WORDS],
}

impl Set {
    fn new(address: usize) -> Self {
        Self { words: pointer(address), taken: [0; WORDS] }
    }

    /// # Safety
    ///
    /// The set is null, or has a bit for the number.
    unsafe fn has(&self, fd: c_int) -> bool {
        let (word, bit) = place(fd);
        // SAFETY: not null, so it has the word of a number that it has a bit for.
        !self.words.is_null() && unsafe { self.word(word).read() } & bit != 0
    }

    /// # Safety
    ///
    /// As [`has`](Self::has).
    unsafe fn take(&mut self, fd: c_int) {
        // SAFETY: `has` asks for what this does.
        let has = unsafe { self.has(fd) };
        let (word, bit) = place(fd);
        if let Some(taken) = self.taken.get_mut(word).filter(|_| has) {
            *taken |= bit;
            // SAFETY: the bit was read there.
            unsafe { *self.word(word) &= !bit };
        }
    }

    /// # Safety
    ///
    /// The set is still what it was when something was taken out of it.
    unsafe fn put_back(&self) {
        for (word, taken) in self.taken.iter().enumerate().filter(|(_, taken)| **taken != 0) {
            // SAFETY: something was taken there.
            unsafe { *self.word(word) |= taken };
        }
    }

    fn word(&self, index: usize) -> *mut u64 {
        self.words.wrapping_add(index)
    }

    fn taken_count(&self) -> usize {
        self.taken.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// The word of a set that has a number's bit, and the bit.
fn place(fd: c_int) -> (usize, u64) {
    let number = usize::try_from(fd).unwrap_or(0);
    (number / BITS, 1 << (number % BITS))
}

fn is_open(fd: c_int) -> bool {
    descriptor_flags(fd).is_ok()
}
