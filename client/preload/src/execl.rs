//! `execl` and its like: arguments that follow each other instead of an array.
//!
//! Rust cannot define functions with `...`, but a fixed number of arguments is passed in the same
//! places (see `interpose`). So these take as many as any program lists, and look at no more than
//! the program gave: the list ends with a null pointer. What lies behind that is never used, which
//! is why its type is [`MaybeUninit`].

use core::mem::MaybeUninit;

use client::Errno;
use libc::{c_char, c_int};

use crate::{
    descriptor::refuse,
    environment::{Strings, environ},
    errno::answer,
    process::{execute, execute_found},
};

/// An argument that the program may have given.
type Perhaps = MaybeUninit<*const c_char>;

/// Arguments that can be listed. More are refused: half a KiB of the caller's stack is certain to
/// be there.
const LISTED: usize = 64;

/// Defines functions of a path and a list, which is handed to the body as an array that has an end.
macro_rules! listing {
    ($(fn $name:ident($path:ident, $list:ident) $body:block)+) => {
        $(listing! {
            @one $name $path $list $body
                p00, p01, p02, p03, p04, p05, p06, p07, p08, p09, p10, p11, p12, p13, p14, p15,
                p16, p17, p18, p19, p20, p21, p22, p23, p24, p25, p26, p27, p28, p29, p30, p31,
                p32, p33, p34, p35, p36, p37, p38, p39, p40, p41, p42, p43, p44, p45, p46, p47,
                p48, p49, p50, p51, p52, p53, p54, p55, p56, p57, p58, p59, p60, p61, p62, p63,
        })+
    };
    (@one $name:ident $path:ident $list:ident $body:block $($argument:ident),+ $(,)?) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($path: *const c_char, $($argument: Perhaps),+) -> c_int {
            let $list: [Perhaps; LISTED] = [$($argument),+];
            $body
        }
    };
}

listing! {
    fn execl(path, list) {
        // SAFETY: the C caller promises a list.
        match unsafe { end_of(&list) } {
            // SAFETY: the list has an end; `environ` is libc's.
            Some(_) => answer(unsafe { execute(path, list.as_ptr().cast(), environ) }),
            None => refuse(Errno::TOOBIG),
        }
    }

    fn execlp(file, list) {
        // SAFETY: the C caller promises a list.
        match unsafe { end_of(&list) } {
            // SAFETY: the list has an end; `environ` is libc's.
            Some(_) => unsafe { execute_found(file, list.as_ptr().cast(), environ) },
            None => refuse(Errno::TOOBIG),
        }
    }

    fn execle(path, list) {
        // SAFETY: the C caller promises a list, and the variables behind its end.
        match unsafe { end_of(&list) }.and_then(|end| list.get(end + 1)) {
            Some(variables) => {
                // SAFETY: the caller gave it.
                let variables: Strings = unsafe { variables.assume_init() }.cast();
                // SAFETY: the list has an end.
                answer(unsafe { execute(path, list.as_ptr().cast(), variables) })
            }
            None => refuse(Errno::TOOBIG),
        }
    }
}

/// Where the list ends; `None` when it is longer than can be seen.
///
/// # Safety
///
/// All up to the first null pointer was given by the program.
unsafe fn end_of(list: &[Perhaps; LISTED]) -> Option<usize> {
    // SAFETY: the search ends at the null pointer.
    list.iter().position(|argument| unsafe { argument.assume_init() }.is_null())
}
