//! Parts of the old interface that have nothing left to do: programs call them, and go on.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use libc::FILE;

use crate::{error::Failure, export::export};

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
}
