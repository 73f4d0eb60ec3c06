//! Rings of io_uring. Requests stand in memory, and liburing makes its system calls by instruction:
//! nobody sees which files a ring works on. So from its first ring on a process has its remote
//! files as real descriptors of their folders' views; a ring of liburing's, or one that a thread of
//! the kernel's looks at, has the files of this node left to the kernel, too.

use core::ffi::{c_int, c_uint, c_void};

use crate::{
    interpose::{interpose, next},
    kernel::{Outcome, kernel},
    process_client::client,
};

/// `IORING_SETUP_SQPOLL`.
const IS_POLLED: u32 = 2;
/// Answer where there is no liburing: a program may look for one by a weak symbol.
const MISSING: c_int = -libc::ENOSYS;

interpose! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        begun(next!(
            @unkept io_uring_queue_init(
                entries => c_uint, ring => *mut c_void, flags => c_uint,
            ) -> c_int
        ))
    }

    fn io_uring_queue_init_params(
        entries: c_uint, ring: *mut c_void, settings: *mut c_void,
    ) -> c_int {
        begun(next!(
            @unkept io_uring_queue_init_params(
                entries => c_uint, ring => *mut c_void, settings => *mut c_void,
            ) -> c_int
        ))
    }

    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, settings: *mut c_void, place: *mut c_void, len: usize,
    ) -> c_int {
        begun(next!(
            @unkept io_uring_queue_init_mem(
                entries => c_uint, ring => *mut c_void, settings => *mut c_void,
                place => *mut c_void, len => usize,
            ) -> c_int
        ))
    }

    // liburing's, which returns the error.
    fn io_uring_setup(entries: c_uint, settings: *mut c_void) -> c_int {
        begun(next!(@unkept io_uring_setup(entries => c_uint, settings => *mut c_void) -> c_int))
    }
}

/// Leaves everything to the kernel once there is a ring.
fn begun(ring: Option<c_int>) -> c_int {
    let ring = ring.unwrap_or(MISSING);
    if let Some(client) = client().filter(|_| ring >= 0) {
        client.detach_all();
        client.detach_remote();
    }
    ring
}

/// As `io_uring_setup(2)`. Of a ring that a thread of the kernel's looks at there will be no call.
///
/// # Safety
///
/// `settings` are null or a ring's.
pub(crate) unsafe fn set_up(entries: usize, settings: *const [u32; 3]) -> Outcome {
    // SAFETY: the program's own call.
    let ring = unsafe { kernel!(SYS_io_uring_setup, entries, settings) }?;
    let Some(client) = client() else { return Ok(ring) };
    // SAFETY: the kernel has read them, and written what else there is.
    let [_, _, flags] = unsafe { settings.read() };
    if flags & IS_POLLED != 0 {
        client.detach_all();
    }
    client.detach_remote();
    Ok(ring)
}
