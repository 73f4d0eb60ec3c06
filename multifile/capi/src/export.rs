//! How a function becomes part of the C interface.

/// Defines C functions under two names each, `sion_x` and `lsion_x`, because SIONlib is built in
/// two flavours and programs link either.
///
/// The body returns a [`Result`]; an error is remembered for `sion_last_error`, and the caller gets
/// the value behind `or`. Nothing unwinds into C.
macro_rules! export {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, or $failed:expr; $body:block
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::error::guarded($failed, || $body)
        }

        const _: () = {
            #[unsafe(export_name = concat!("l", stringify!($name)))]
            unsafe extern "C" fn flavour($($arg: $ty),*) -> $ret {
                // SAFETY: the same function with the same promises of the caller.
                unsafe { $name($($arg),*) }
            }
        };
    )*};
}

pub(crate) use export;
