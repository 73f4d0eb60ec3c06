//! Parts of the old interface that have nothing left to do: programs call them, and go on.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use libc::FILE;

use crate::{error::Failure, export::export};

type ThreadNumber = unsafe extern "C" fn() -> c_int;

type Lock = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Locks were registered. They are never called: handles are behind locks of our own, and a lock
/// of the program may already be held where it calls us.
static REGISTERED: AtomicBool = AtomicBool::new(false);

export! {
    fn sion_lock_register_lock_callbacks(
        lock: Option<Lock>,
        unlock: Option<Lock>,
        _data: *mut c_void,
    ) -> c_int, or 0; {
        if lock.is_none() || unlock.is_none() || REGISTERED.swap(true, Relaxed) {
            return Err(Failure::Argument("a callback is NULL or registered twice"));
        }
        Ok(1)
    }

    fn sion_lock_user_callbacks_defined() -> c_int, or 0; {
        Ok(c_int::from(REGISTERED.load(Relaxed)))
    }

    fn sion_isdebug() -> c_int, or 0; {
        Ok(0)
    }

    fn sion_debug_on(_mask: c_int, _filename: *const c_char) -> (), or (); {
        Ok(())
    }

    fn sion_debug_off() -> (), or (); {
        Ok(())
    }

    fn sion_get_dfile() -> *mut FILE, or null_mut(); {
        Ok(null_mut())
    }

    fn sion_dclose() -> (), or (); {
        Ok(())
    }

    // C declares the next two with further arguments, which on Linux are the caller's to put away.
    fn sion_dprintf(_mask: c_int, _format: *const c_char) -> (), or (); {
        Ok(())
    }

    fn sion_dprintfp(
        _mask: c_int,
        _function: *const c_char,
        _rank: c_int,
        _format: *const c_char,
    ) -> (), or (); {
        Ok(())
    }

    fn _sion_debug_init | "_lsion_debug_init"() -> (), or (); {
        Ok(())
    }

    fn _sion_debug_set_lock_cb | "_lsion_debug_set_lock_cb"() -> (), or (); {
        Ok(())
    }

    fn _sion_debug_set_query_thread_num_function
        | "_lsion_debug_set_query_thread_num_function"(_query: Option<ThreadNumber>) -> (), or ();
    {
        Ok(())
    }
}
