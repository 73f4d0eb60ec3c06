//! Processes that are made by `clone`, as sandboxes and supervisors do. One that has memory and
//! descriptors of its own is as the child of a fork. One that shares memory and whose parent waits
//! for it is as the child of a `vfork`; if it shares descriptors, too, as a call of its parent.
//!
//! A process that shares anything else with its child is not served from then on. One that shares
//! memory runs beside a thread that libc knows nothing of: libc still says that the process has one
//! thread, and the two may have one thread pointer, so no lock here keeps them apart. One that
//! shares memory or descriptors alone closes, and moves on, what the other knows nothing of. Nor is
//! a process served one of whose threads gets a descriptor table by `unshare` or `close_range`.

use core::{ffi::c_void, ptr};

use libc::{c_int, c_long};

use crate::{
    interpose::{interpose, next},
    kernel::{self, Outcome},
    process::{before_fork, in_child},
    process_client::{resume, retire},
    vfork,
};

type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Function of a child, which runs in its copy of the parent's stack.
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
        let kind = Kind::of(flags);
        let (function, argument) = match kind {
            Kind::Fork => {
                before_fork();
                (begin as Function, ptr::from_mut(&mut start).cast())
            }
            _ => (function, argument),
        };
        let is_awaited = kind == Kind::Vfork && vfork::begin();
        let is_retired = !matches!(kind, Kind::Fork | Kind::Call) && !is_awaited && retire();
        let made = next!(
            clone(
                function => Function, stack => *mut c_void, flags => c_int,
                argument => *mut c_void, parent_id => *mut c_void, storage => *mut c_void,
                child_id => *mut c_void,
            ) -> c_int
        );
        if is_awaited {
            vfork::end();
        }
        if is_retired && made < 0 {
            resume();
        }
        made
    }
}

/// Resources that a child shares with its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Neither memory nor descriptors.
    Fork,
    /// Memory, descriptors, and thread pointer; the parent waits.
    Call,
    /// Memory and thread pointer; the parent waits.
    Vfork,
    /// Memory or descriptors, and both run.
    Other,
}

impl Kind {
    fn of(flags: c_int) -> Self {
        let has = |flag| flags & flag != 0;
        let is_awaited = has(libc::CLONE_VFORK) && !has(libc::CLONE_SETTLS);
        match (has(libc::CLONE_VM), has(libc::CLONE_FILES)) {
            (false, false) => Self::Fork,
            (true, true) if is_awaited => Self::Call,
            (true, false) if is_awaited => Self::Vfork,
            _ => Self::Other,
        }
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

/// True if a system call makes a process with memory of its own.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn is_fork(number: c_long, args: [usize; 6]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { flags(number, args) }.is_some_and(|flags| flags & libc::CLONE_VM as u64 == 0)
}

/// Flags of a system call that makes a process.
///
/// # Safety
///
/// The arguments are right for the system call.
unsafe fn flags(number: c_long, args: [usize; 6]) -> Option<u64> {
    let [first, ..] = args;
    match number {
        libc::SYS_clone => Some(first as u64),
        libc::SYS_clone3 => {
            let flags = ptr::with_exposed_provenance::<u64>(first);
            // SAFETY: the caller promises the structure that the kernel reads, flags first.
            (!flags.is_null()).then(|| unsafe { flags.read() })
        }
        _ => None,
    }
}

/// Makes such a process.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn fork(number: c_long, args: [usize; 6]) -> Outcome {
    // SAFETY: the caller's promise.
    let flags = unsafe { flags(number, args) };
    let shares = flags.is_some_and(|flags| flags & libc::CLONE_FILES as u64 != 0);
    let is_retired = shares && retire();
    before_fork();
    // SAFETY: the caller vouches for the arguments.
    let made = unsafe { kernel::call(number, args) };
    match made {
        Ok(0) => in_child(),
        Err(_) if is_retired => resume(),
        _ => {}
    }
    made
}
