//! How a function becomes part of the C interface.

/// Defines C functions under two names each, `sion_x` and `lsion_x`, because SIONlib is built in
/// two flavours and programs link either.
///
/// The body returns a [`Result`]; an error is remembered for `sion_last_error`, and the caller gets
/// the value behind `or`. Nothing unwinds into C. A second name that is not an `l` before the first
/// stands behind a bar.
macro_rules! export {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(| $flavour:literal)? ($($arg:ident: $ty:ty),* $(,)?)
            -> $ret:ty, or $failed:expr; $body:block
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        $vis unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::error::guarded($failed, || $body)
        }

        const _: () = {
            #[unsafe(export_name = $crate::export::flavour!($name $($flavour)?))]
            unsafe extern "C" fn flavour($($arg: $ty),*) -> $ret {
                // SAFETY: the same function with the same promises of the caller.
                unsafe { $name($($arg),*) }
            }
        };
    )*};
}

/// The name of a function in the other flavour.
macro_rules! flavour {
    ($name:ident) => {
        concat!("l", stringify!($name))
    };
    ($name:ident $flavour:literal) => {
        $flavour
    };
}

pub(crate) use {export, flavour};
