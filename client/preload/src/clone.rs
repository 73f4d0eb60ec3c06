//! Processes that are made by `clone`, as sandboxes and supervisors do. One that has memory of its
//! own is as the child of a fork; one that shares its parent's is as a thread.

use core::{ffi::c_void, ptr};

use libc::{c_int, c_long};

use crate::{
    interpose::{interpose, next},
    kernel::{self, Outcome},
    process::{before_fork, child_made, in_child},
};

type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What a child runs, in its copy of the parent's stack.
struct Start {
    function: Function,
    argument: *mut c_void,
}

interpose! {
    // C callers give as many of the last three as the flags ask for.
    fn clone(
        function: Function, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut c_void, storage: *mut c_void, child_id: *mut c_void,
    ) -> c_int {
        let mut start = Start { function, argument };
        let is_fork = flags & libc::CLONE_VM == 0;
        let (function, argument) = if is_fork {
            before_fork();
            (begin as Function, ptr::from_mut(&mut start).cast())
        } else {
            (function, argument)
        };
        let made = next!(
            clone(
                function => Function, stack => *mut c_void, flags => c_int,
                argument => *mut c_void, parent_id => *mut c_void, storage => *mut c_void,
                child_id => *mut c_void,
            ) -> c_int
        );
        if is_fork {
            child_made();
        }
        made
    }
}

/// Where a child with memory of its own starts.
///
/// # Safety
///
/// There is a [`Start`] at `start`.
unsafe extern "C" fn begin(start: *mut c_void) -> c_int {
    in_child();
    // SAFETY: the caller promises it.
    let Start { function, argument } = unsafe { start.cast::<Start>().read() };
    // SAFETY: the program gave both for this.
    unsafe { function(argument) }
}

/// Whether a system call makes a process with memory of its own.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn is_fork(number: c_long, args: [usize; 6]) -> bool {
    const SHARED: usize = libc::CLONE_VM.unsigned_abs() as usize;
    let [first, ..] = args;
    match number {
        libc::SYS_clone => first & SHARED == 0,
        libc::SYS_clone3 => {
            let flags = ptr::with_exposed_provenance::<u64>(first);
            // SAFETY: the caller promises the structure that the kernel reads, flags first.
            !flags.is_null() && unsafe { flags.read() } & SHARED as u64 == 0
        }
        _ => false,
    }
}

/// Makes such a process.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn fork(number: c_long, args: [usize; 6]) -> Outcome {
    before_fork();
    // SAFETY: the caller vouches for the arguments.
    let made = unsafe { kernel::call(number, args) };
    if made == Ok(0) {
        in_child();
    } else {
        child_made();
    }
    made
}
