//! `dlsym`: functions that a program looks up in libc itself.
//!
//! ctypes, P/Invoke, and Ruby's Fiddle ask for `write` by a handle of libc, and would pass by this
//! library: what they write would be overtaken by what is staged. They get this library's function.
//!
//! A library that interposes the same function looks up the one behind it. With `RTLD_NEXT` the
//! linker counts from the caller. By a handle of libc one that stands behind this library gets
//! libc's function; it is known by its own definition of the name.

use core::{
    arch::global_asm,
    ffi::{CStr, c_char, c_void},
    ptr::{self, NonNull},
};

use crate::{
    elf,
    interpose::{interpose, next},
    pointers::Text,
};

/// Names of libc's libraries, also of its parts before glibc 2.34, and of liburing.
const LIBC: [&[u8]; 7] =
    [b"libc.so", b"libc-", b"libpthread", b"librt", b"libc.musl", b"ld-musl", b"liburing"];

interpose! {
    // These are a jump: libc takes its caller's address from the stack.
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

// A search (RTLD_DEFAULT, RTLD_NEXT) is a jump to libc's function. Else the caller's address comes
// to the arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.kakehi_symbols, \"ax\", @progbits",
    ".globl kakehi_dlsym",
    ".hidden kakehi_dlsym",
    ".type kakehi_dlsym, @function",
    "kakehi_dlsym:",
    "lea rax, [rdi + 1]",
    "cmp rax, 1",
    "ja 2f",
    "push rdi",
    "push rsi",
    "sub rsp, 8",
    "call {real}",
    "add rsp, 8",
    "pop rsi",
    "pop rdi",
    "test rax, rax",
    "jz {search}",
    "jmp rax",
    "2:",
    "mov rdx, [rsp]",
    "jmp {find}",
    ".globl kakehi_dlvsym",
    ".hidden kakehi_dlvsym",
    ".type kakehi_dlvsym, @function",
    "kakehi_dlvsym:",
    "lea rax, [rdi + 1]",
    "cmp rax, 1",
    "ja 2f",
    "push rdi",
    "push rsi",
    "push rdx",
    "call {real_version}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "test rax, rax",
    "jz {search}",
    "jmp rax",
    "2:",
    "mov rcx, [rsp]",
    "jmp {find_version}",
    ".popsection",
    real = sym real,
    real_version = sym real_version,
    search = sym search,
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
    "add x9, x0, 1",
    "cmp x9, 1",
    "b.hi 2f",
    "stp x29, x30, [sp, -32]!",
    "stp x0, x1, [sp, 16]",
    "bl {real}",
    "mov x9, x0",
    "ldp x0, x1, [sp, 16]",
    "ldp x29, x30, [sp], 32",
    "cbnz x9, 3f",
    "b {search}",
    "3:",
    "br x9",
    "2:",
    "mov x2, x30",
    "b {find}",
    ".globl kakehi_dlvsym",
    ".hidden kakehi_dlvsym",
    ".type kakehi_dlvsym, @function",
    "kakehi_dlvsym:",
    "add x9, x0, 1",
    "cmp x9, 1",
    "b.hi 2f",
    "stp x29, x30, [sp, -48]!",
    "stp x0, x1, [sp, 16]",
    "str x2, [sp, 32]",
    "bl {real_version}",
    "mov x9, x0",
    "ldp x0, x1, [sp, 16]",
    "ldr x2, [sp, 32]",
    "ldp x29, x30, [sp], 48",
    "cbnz x9, 3f",
    "b {search}",
    "3:",
    "br x9",
    "2:",
    "mov x3, x30",
    "b {find_version}",
    ".popsection",
    real = sym real,
    real_version = sym real_version,
    search = sym search,
    find = sym find,
    find_version = sym find_version,
);

/// libc's `dlsym`; null where there is none.
extern "C" fn real() -> *mut c_void {
    let (place, name) = next!(@place dlsym);
    place.look(name).map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// libc's `dlvsym`; null where there is none.
extern "C" fn real_version() -> *mut c_void {
    let (place, name) = next!(@place dlvsym);
    place.look(name).map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// A search in a program of glibc before 2.34 that does not link `libdl`: nobody but this library
/// itself asks, for what a younger libc has.
unsafe extern "C" fn search(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: whoever searches gives a name.
    let name = unsafe { Text::new(name) };
    name.get().and_then(elf::first).map_or(ptr::null_mut(), NonNull::as_ptr)
}

unsafe extern "C" fn find(handle: *mut c_void, name: *const c_char, caller: usize) -> *mut c_void {
    // SAFETY: the program's handle and name, which are libc's `dlsym`'s to judge.
    let found =
        unsafe { next!(dlsym(handle => *mut c_void, name => *const c_char) -> *mut c_void) };
    // SAFETY: a C string, or libc would not have returned.
    instead_of(found, unsafe { Text::new(name) }.get(), caller)
}

unsafe extern "C" fn find_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the program's handle, name and version, which are libc's `dlvsym`'s to judge.
    let found = unsafe {
        next!(
            dlvsym(
                handle => *mut c_void, name => *const c_char, version => *const c_char,
            ) -> *mut c_void
        )
    };
    // SAFETY: a C string, or libc would not have returned.
    instead_of(found, unsafe { Text::new(name) }.get(), caller)
}

/// This library's function for one of libc's; else what was found.
fn instead_of(found: *mut c_void, name: Option<&CStr>, caller: usize) -> *mut c_void {
    let ours = || {
        let name = name.filter(|_| !found.is_null())?;
        let ours = elf::own(name)?;
        let is_libc = LIBC.iter().any(|part| {
            elf::holding(found.addr()).is_some_and(|object| object.file_name().starts_with(part))
        });
        // What it looks up it may be called for by this library: it must not come back here.
        let interposes = || {
            elf::is_behind(caller)
                && elf::holding(caller).is_some_and(|object| object.find(name).is_some())
        };
        (is_libc && !interposes()).then_some(ours.as_ptr())
    };
    ours().unwrap_or(found)
}
