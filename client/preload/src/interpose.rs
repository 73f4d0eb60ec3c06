//! How a C function is replaced, and how the one that was replaced is found.

use core::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::elf;

/// Defines C functions that stand before libc's; names joined by `|` are one function's. Behind
/// `=>` stands an outcome, which `errno::answer` turns into what C answers. A name behind the
/// return type is that of a closure, which calls the function that this one stands before with the
/// same arguments.
///
/// After `safe:` come functions whose arguments' types say all that C promises of them: see
/// [`pointers`](crate::pointers).
///
/// Functions that C declares with `...` are defined with a fixed number of arguments: on x86-64 and
/// AArch64 Linux both kinds are passed alike, in registers.
///
/// In this crate a function is called by its first name, and that call ends here: C's name may
/// stand for a function of the program's own, or of another preloaded library, and those often are
/// nothing but a `syscall()`.
macro_rules! interpose {
    (@ours [$($unsafe:ident)?] $name:ident
        ($($arg:ident: $type:ty),* $(,)?) [$($return:ty)?] $body:block) => {
        #[inline]
        pub(crate) $($unsafe)? extern "C" fn $name($($arg: $type),*) $(-> $return)? $body
    };
    (@symbols $name:ident [$($symbol:ident)+] $args:tt $return:tt) => {
        $(interpose! { @symbol $symbol of $name $args $return })+
    };
    (@symbol $symbol:ident of $name:ident
        ($($arg:ident: $type:ty),* $(,)?) [$($return:ty)?]) => {
        const _: () = {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($arg: $type),*) $(-> $return)? {
                let ours: unsafe extern "C" fn($($type),*) $(-> $return)? = self::$name;
                // SAFETY: the C caller vouches for its arguments.
                unsafe { ours($($arg),*) }
            }
        };
    };
    (@each $kind:tt) => {};
    (@each $kind:tt fn $name:ident $(|$alias:ident)* ($($args:tt)*) -> $return:ty =>
        $outcome:expr; $($more:tt)*) => {
        interpose! { @one $kind $name [$name $($alias)*] ($($args)*) [$return] {
            answer($outcome)
        } }
        interpose! { @each $kind $($more)* }
    };
    (@each $kind:tt fn $name:ident $(|$alias:ident)* ($($args:tt)*) -> $return:ty, $next:ident
        $body:block $($more:tt)*) => {
        interpose! { @before $next $name [$name $($alias)*] ($($args)*) [$return] $body }
        interpose! { @each $kind $($more)* }
    };
    (@each $kind:tt fn $name:ident $(|$alias:ident)* ($($args:tt)*) $(-> $return:ty)?
        $body:block $($more:tt)*) => {
        interpose! { @one $kind $name [$name $($alias)*] ($($args)*) [$($return)?] $body }
        interpose! { @each $kind $($more)* }
    };
    (@before $next:ident $name:ident $symbols:tt ($($arg:ident: $type:ty),* $(,)?)
        [$return:ty] $body:block) => {
        interpose! { @one [] $name $symbols ($($arg: $type),*) [$return] {
            let $next = move || $crate::interpose::next!($name($($arg => $type),*) -> $return);
            $body
        } }
    };
    (@one [safe] $name:ident $symbols:tt $args:tt $return:tt $body:block) => {
        interpose! { @ours [] $name $args $return $body }
        interpose! { @symbols $name $symbols $args $return }
    };
    (@one [] $name:ident $symbols:tt $args:tt $return:tt $body:block) => {
        interpose! { @ours [unsafe] $name $args $return {
            // SAFETY: the C caller vouches for its arguments, as the function of this name
            // asks; they go to the kernel, to libc's function of this name, or to the client.
            unsafe { $body }
        } }
        interpose! { @symbols $name $symbols $args $return }
    };
    (safe: $($functions:tt)+) => { interpose! { @each [safe] $($functions)+ } };
    ($($functions:tt)+) => { interpose! { @each [] $($functions)+ } };
}

/// Calls the function that ours stands before: libc's, or another preloaded library's. With
/// `@variadic`, one that C declares with `...` behind the arguments before the semicolon; with
/// `@younger`, one that only younger C libraries have, and the answer is an [`Option`]; with
/// `@unkept`, one of a library that may come and go, looked up each time.
macro_rules! next {
    (@variadic $name:ident($($arg:expr => $type:ty),+; $($more:expr),+) -> $return:ty) => {
        core::mem::transmute::<
            *mut core::ffi::c_void,
            unsafe extern "C" fn($($type,)+ ...) -> $return,
        >($crate::interpose::next!(@find $name))($($arg,)+ $($more),+)
    };
    (@younger $name:ident($($arg:expr => $type:ty),* $(,)?) -> $return:ty) => {{
        let (place, name) = $crate::interpose::next!(@place $name);
        place.look(name).map(|found| {
            core::mem::transmute::<
                *mut core::ffi::c_void,
                unsafe extern "C" fn($($type),*) -> $return,
            >(found.as_ptr())($($arg),*)
        })
    }};
    (@unkept $name:ident($($arg:expr => $type:ty),* $(,)?) -> $return:ty) => {{
        let (_, name) = $crate::interpose::next!(@place $name);
        $crate::elf::next(name).map(|found| {
            core::mem::transmute::<
                *mut core::ffi::c_void,
                unsafe extern "C" fn($($type),*) -> $return,
            >(found.as_ptr())($($arg),*)
        })
    }};
    (@find $name:ident) => {{
        let (place, name) = $crate::interpose::next!(@place $name);
        place.find(name).as_ptr()
    }};
    (@place $name:ident) => {{
        static NEXT: $crate::interpose::Next = $crate::interpose::Next::new();
        const TEXT: &str = concat!(stringify!($name), "\0");
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(TEXT.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("one NUL, at the end"),
            };
        (&NEXT, NAME)
    }};
    ($name:ident($($arg:expr => $type:ty),* $(,)?) -> $return:ty) => {
        core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($type),*) -> $return>(
            $crate::interpose::next!(@find $name),
        )($($arg),*)
    };
}

pub(crate) use {interpose, next};

/// Stands for a function that is not there.
const MISSING: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// A function that ours stands before, looked up at its first use.
pub(crate) struct Next(AtomicPtr<c_void>);

impl Next {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The function's address. Ends the program when there is none: it was linked against one.
    pub(crate) fn find(&self, name: &CStr) -> NonNull<c_void> {
        self.look(name).unwrap_or_else(|| {
            // SAFETY: `abort` takes no arguments and may be called in any state.
            unsafe { libc::abort() }
        })
    }

    /// The function's address, if there is one.
    pub(crate) fn look(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let known = self.0.load(Ordering::Relaxed);
        if known == MISSING {
            return None;
        }
        NonNull::new(known).or_else(|| self.look_first(name))
    }

    /// Apart: a caller whose own frame is passed on cannot end in a jump.
    #[cold]
    #[inline(never)]
    fn look_first(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let found = elf::next(name);
        self.0.store(found.map_or(MISSING, NonNull::as_ptr), Ordering::Relaxed);
        found
    }
}
