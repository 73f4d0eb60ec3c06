//! `dlsym`: functions that a program looks up in libc itself.
//!
//! ctypes, P/Invoke, and Ruby's Fiddle ask for `write` by a handle of libc, and would pass by this
//! library: what they write would be overtaken by what is staged. They get this library's function.
//!
//! A library that interposes the same function looks up the one behind it, and gets that one:
//! with `RTLD_NEXT` the linker counts from the caller, and by a handle of libc the caller is known
//! for what it is by its own definition of the name.

use core::{
    arch::global_asm,
    ffi::{CStr, c_char, c_void},
    mem,
    ptr::{self, NonNull},
};

use crate::{
    elf,
    interpose::{interpose, next},
    start::text,
};

/// What a library is called that is libc, or a part of it before glibc 2.34.
const LIBC: [&[u8]; 6] = [b"libc.so", b"libc-", b"libpthread", b"librt", b"libc.musl", b"ld-musl"];

interpose! {
    // These end in a jump: libc takes its caller's address from the stack.
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
        kakehi_dlsym(handle, name)
    }

    fn dlvsym(
        handle: *mut c_void, name: *const c_char, version: *const c_char,
    ) -> *mut c_void {
        kakehi_dlvsym(handle, name, version)
    }
}

unsafe extern "C" {
    fn kakehi_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn kakehi_dlvsym(
        handle: *mut c_void,
        name: *const c_char,
        version: *const c_char,
    ) -> *mut c_void;
}

// Both add the address of their caller to the arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.kakehi_symbols, \"ax\", @progbits",
    ".globl kakehi_dlsym",
    ".hidden kakehi_dlsym",
    ".type kakehi_dlsym, @function",
    "kakehi_dlsym:",
    "mov rdx, [rsp]",
    "jmp {find}",
    ".globl kakehi_dlvsym",
    ".hidden kakehi_dlvsym",
    ".type kakehi_dlvsym, @function",
    "kakehi_dlvsym:",
    "mov rcx, [rsp]",
    "jmp {find_version}",
    ".popsection",
    find = sym find,
    find_version = sym find_version,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.kakehi_symbols, \"ax\", @progbits",
    ".globl kakehi_dlsym",
    ".hidden kakehi_dlsym",
    ".type kakehi_dlsym, @function",
    "kakehi_dlsym:",
    "mov x2, x30",
    "b {find}",
    ".globl kakehi_dlvsym",
    ".hidden kakehi_dlvsym",
    ".type kakehi_dlvsym, @function",
    "kakehi_dlvsym:",
    "mov x3, x30",
    "b {find_version}",
    ".popsection",
    find = sym find,
    find_version = sym find_version,
);

unsafe extern "C" fn find(handle: *mut c_void, name: *const c_char, caller: usize) -> *mut c_void {
    let (place, real) = next!(@place dlsym);
    let Some(real) = place.look(real) else {
        // SAFETY: as the program promises.
        return unsafe { find_without(handle, name) };
    };
    // SAFETY: libc's function.
    let real = unsafe {
        mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>(
            real.as_ptr(),
        )
    };
    if is_search(handle) {
        // SAFETY: the program's own call.
        return unsafe { real(handle, name) };
    }
    // SAFETY: as above.
    let found = unsafe { real(handle, name) };
    // SAFETY: a C string, or libc would not have returned.
    instead_of(found, unsafe { text(name) }, caller)
}

unsafe extern "C" fn find_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> *mut c_void {
    let (place, real) = next!(@place dlvsym);
    let Some(real) = place.look(real) else {
        // SAFETY: as the program promises.
        return unsafe { find_without(handle, name) };
    };
    // SAFETY: libc's function.
    let real = unsafe {
        mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void,
        >(real.as_ptr())
    };
    if is_search(handle) {
        // SAFETY: the program's own call.
        return unsafe { real(handle, name, version) };
    }
    // SAFETY: as above.
    let found = unsafe { real(handle, name, version) };
    // SAFETY: a C string, or libc would not have returned.
    instead_of(found, unsafe { text(name) }, caller)
}

/// As `dlsym` in a program of glibc before 2.34 that does not link `libdl`: nobody but this library
/// itself asks, for what a younger libc has.
///
/// # Safety
///
/// `name` is a C string.
unsafe fn find_without(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: as the caller promises.
    let name = unsafe { text(name) }.filter(|_| ptr::eq(handle, libc::RTLD_DEFAULT));
    name.and_then(elf::first).map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// True if the handle stands for a search that counts from the caller.
fn is_search(handle: *mut c_void) -> bool {
    ptr::eq(handle, libc::RTLD_DEFAULT) || ptr::eq(handle, libc::RTLD_NEXT)
}

/// This library's function for one of libc's; else what was found.
fn instead_of(found: *mut c_void, name: Option<&CStr>, caller: usize) -> *mut c_void {
    let ours = || {
        let name = name.filter(|_| !found.is_null())?;
        let ours = elf::own(name)?;
        let is_libc = LIBC.iter().any(|part| {
            elf::holding(found.addr()).is_some_and(|object| object.file_name().starts_with(part))
        });
        let interposes = || elf::holding(caller).is_some_and(|object| object.find(name).is_some());
        (is_libc && !interposes()).then_some(ours.as_ptr())
    };
    ours().unwrap_or(found)
}
