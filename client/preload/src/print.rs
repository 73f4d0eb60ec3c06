//! `dprintf` and its like: text for a descriptor, which libc would write where nobody sees it.
//!
//! Rust cannot define functions with `...`, but a fixed number of arguments is passed in the same
//! places (see `interpose`), and it can call them. So these take as many as any program gives, and
//! hand them on to a function of libc's that has as many arguments before the `...`: then each one
//! is found where the program left it, on the stack too. What the program did not give is never
//! looked at, which is why its type is [`MaybeUninit`].

use core::{ffi::c_void, mem::MaybeUninit, ptr};

use client::Client;
use libc::{c_char, c_int};

use crate::{
    bits::counted,
    data::write_from,
    errno::answer,
    interpose::{interpose, next},
    kernel::Outcome,
    pointers::Data,
    process_client::client,
};

/// An argument that the program may have given: in a register or on the stack.
type Perhaps = MaybeUninit<*const c_void>;
/// One in a register for floating-point numbers.
type Number = MaybeUninit<f64>;
/// Where libc leaves a text that it makes.
type Text = *mut *mut c_char;

/// Defines a function with `...` over its brothers: libc's of the same name, for descriptors that
/// are not delegated, and one that makes the text.
macro_rules! printing {
    ($(fn $name:ident($fd:ident $(, $fixed:ident: $type:ty)+) by $maker:ident;)+) => {
        $(printing! {
            @one $name $maker $fd [$($fixed: $type),+]
                p00, p01, p02, p03, p04, p05, p06, p07, p08, p09, p10, p11, p12, p13, p14, p15,
                p16, p17, p18, p19, p20, p21, p22, p23, p24, p25, p26, p27, p28, p29, p30, p31,
                p32, p33, p34, p35, p36, p37, p38, p39, p40, p41, p42, p43, p44, p45, p46, p47,
                p48, p49, p50, p51, p52, p53, p54, p55, p56, p57, p58, p59, p60, p61, p62, p63;
                f0, f1, f2, f3, f4, f5, f6, f7
        })+
    };
    (@one $name:ident $maker:ident $fd:ident [$($fixed:ident: $type:ty),+]
        $($word:ident),+; $($number:ident),+) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $fd: c_int, $($fixed: $type,)+ $($word: Perhaps,)+ $($number: Number),+
        ) -> c_int {
            match delegating($fd) {
                // SAFETY: the C caller vouches for format and arguments.
                Some(_) => printed($fd, |text| unsafe {
                    next!(@variadic $maker(
                        text => Text, $($fixed => $type),+; $($word,)+ $($number),+
                    ) -> c_int)
                }),
                // SAFETY: the C caller vouches for both, as above.
                None => unsafe {
                    next!(@variadic $name(
                        $fd => c_int, $($fixed => $type),+; $($word,)+ $($number),+
                    ) -> c_int)
                },
            }
        }
    };
}

printing! {
    fn dprintf(fd, format: *const c_char) by asprintf;
    fn __dprintf_chk(fd, flag: c_int, format: *const c_char) by __asprintf_chk;
}

// A `va_list` is passed by its address.
interpose! {
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, next {
        match delegating(fd) {
            Some(_) => printed(fd, |text| {
                next!(
                    vasprintf(
                        text => Text, format => *const c_char, arguments => *mut c_void,
                    ) -> c_int
                )
            }),
            None => next(),
        }
    }

    fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void,
    ) -> c_int, next {
        match delegating(fd) {
            Some(_) => printed(fd, |text| {
                next!(
                    __vasprintf_chk(
                        text => Text, flag => c_int, format => *const c_char,
                        arguments => *mut c_void,
                    ) -> c_int
                )
            }),
            None => next(),
        }
    }
}

/// The client, when it has to see what is written to `fd`.
fn delegating(fd: c_int) -> Option<&'static Client> {
    client().filter(|client| client.is_delegated(fd) || client.is_remote_file(fd))
}

/// Writes the text that `make` leaves in memory of libc's.
fn printed(fd: c_int, make: impl FnOnce(Text) -> c_int) -> c_int {
    let mut text = ptr::null_mut();
    let len = make(&raw mut text);
    if len < 0 {
        return len;
    }
    // SAFETY: libc made a text of that length.
    let outcome = write_whole(fd, unsafe { Data::new(text.cast(), counted(len as isize)) });
    // SAFETY: libc's, and nobody else knows of it.
    unsafe { libc::free(text.cast()) };
    answer(outcome.map(|()| len))
}

/// Writes everything or fails, as libc's own does.
fn write_whole(fd: c_int, mut text: Data<'_>) -> Outcome<()> {
    while text.len() > 0 {
        text = text.behind(counted(write_from(fd, text)?));
    }
    Ok(())
}
