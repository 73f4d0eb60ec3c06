//! The scheduler's slice of this thread: how long it may run when others want its core, and so how
//! soon it gets the core when it wakes.

use std::{io, mem::size_of, time::Duration};

/// The shortest slice that the kernel gives.
const SLICE: Duration = Duration::from_micros(100);

/// Asks the scheduler for short and early turns for the calling thread, rather than few and long.
///
/// Under EEVDF the shorter slice has the earlier deadline: a thread that wakes for a little work
/// does not wait until the programs on its core have used up theirs. Its share of the core stays
/// the same, and no privilege is needed.
///
/// # Errors
///
/// The kernel has no such call. One before Linux 6.12 has it, but does not look at the slice.
pub fn prefer_short_turns() -> io::Result<()> {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: any bytes are a valid `sched_attr`.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attr` has room for `size` bytes.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    attr.sched_runtime = u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: `attr` is initialised and says its size itself.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_may_ask_for_short_turns() {
        std::thread::spawn(|| prefer_short_turns().expect("Linux 3.14")).join().expect("no panic");
    }
}
