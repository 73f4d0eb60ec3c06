//! How a C function is replaced, and how the one that was replaced is found.

use core::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

/// Defines C functions that stand before libc's; names joined by `|` share one body.
///
/// After `safe:` come functions that no argument can make touch memory.
///
/// Functions that C declares with `...` are defined with a fixed number of arguments: on x86-64 and
/// AArch64 Linux both kinds are passed alike, in registers.
macro_rules! interpose {
    (safe: $(fn $($name:ident)|+ ($($args:tt)*) $(-> $return:ty)? $body:block)+) => {
        $(interpose! { @each @safe [$($name)+] ($($args)*) [$($return)?] $body })+
    };
    ($(fn $($name:ident)|+ ($($args:tt)*) $(-> $return:ty)? $body:block)+) => {
        $(interpose! { @each @trusting [$($name)+] ($($args)*) [$($return)?] $body })+
    };
    (@each @$kind:ident [$($name:ident)+] $args:tt $return:tt $body:block) => {
        $(interpose! { @$kind $name $args $return $body })+
    };
    (@safe $name:ident ($($arg:ident: $type:ty),* $(,)?) [$($return:ty)?] $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) $(-> $return)? $body
    };
    (@trusting $name:ident ($($arg:ident: $type:ty),* $(,)?) [$($return:ty)?] $body:block) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) $(-> $return)? {
            // SAFETY: the C caller vouches for its arguments, as the function of this name asks;
            // they go to the kernel, to libc's function of this name, or to the client.
            unsafe { $body }
        }
    };
}

/// Calls the function that ours stands before: libc's, or another preloaded library's. With
/// `@variadic`, one that C declares with `...` behind the arguments before the semicolon.
macro_rules! next {
    (@variadic $name:ident($($arg:expr => $type:ty),+; $($more:expr),+) -> $return:ty) => {
        core::mem::transmute::<
            *mut core::ffi::c_void,
            unsafe extern "C" fn($($type,)+ ...) -> $return,
        >($crate::interpose::next!(@find $name))($($arg,)+ $($more),+)
    };
    (@find $name:ident) => {{
        static NEXT: $crate::interpose::Next = $crate::interpose::Next::new();
        const TEXT: &str = concat!(stringify!($name), "\0");
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(TEXT.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("one NUL, at the end"),
            };
        NEXT.find(NAME).as_ptr()
    }};
    ($name:ident($($arg:expr => $type:ty),* $(,)?) -> $return:ty) => {
        core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($type),*) -> $return>(
            $crate::interpose::next!(@find $name),
        )($($arg),*)
    };
}

pub(crate) use {interpose, next};

/// A function that ours stands before, looked up at its first use.
pub(crate) struct Next(AtomicPtr<c_void>);

impl Next {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The function's address. Ends the program when there is none: it was linked against one.
    pub(crate) fn find(&self, name: &CStr) -> NonNull<c_void> {
        if let Some(known) = NonNull::new(self.0.load(Ordering::Relaxed)) {
            return known;
        }
        // SAFETY: `name` is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        NonNull::new(found).unwrap_or_else(|| {
            // SAFETY: `abort` takes no arguments and may be called in any state.
            unsafe { libc::abort() }
        })
    }
}
