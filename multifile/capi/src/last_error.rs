//! The last error of a thread, as C asks for it (`sion_error.h`).

use std::ffi::{c_char, c_int};

use crate::{
    error::{Failure, ThreadNumber, last, number_threads},
    export::export,
};

export! {
    fn sion_group_threads(number: Option<ThreadNumber>) -> (), or (); {
        let number = number.ok_or(Failure::Argument("the function is NULL"))?;
        number_threads(number);
        Ok(())
    }

    fn sion_last_error() -> c_int, or 11; {
        Ok(last(|last| last.code))
    }

    fn sion_last_error_text() -> *const c_char, or std::ptr::null(); {
        Ok(last(|last| last.text.as_ptr()))
    }

    fn sion_last_errno() -> c_int, or 0; {
        Ok(last(|last| last.errno))
    }

    fn sion_last_error_rank() -> c_int, or -1; {
        Ok(last(|last| last.rank))
    }
}
