//! `execl` and its like: arguments that follow each other instead of an array.
//!
//! Rust cannot define functions with `...`, so a few instructions make the array: they put the
//! register arguments right below those on the stack, where the caller's convention makes the two
//! one list, and pass its address on.

use core::arch::global_asm;

use libc::{c_char, c_int};

use crate::{
    errno::answer,
    process::{Strings, environ, execute, execute_found},
};

/// As `execl`, with the arguments in an array.
///
/// # Safety
///
/// `path` is null or a C string; `arguments` are C strings up to a null pointer.
unsafe extern "C" fn execl_listed(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the caller promises; `environ` is libc's.
    answer(unsafe { execute(path, arguments, environ) })
}

/// As `execlp`, with the arguments in an array.
///
/// # Safety
///
/// As [`execl_listed`].
unsafe extern "C" fn execlp_listed(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the caller promises; `environ` is libc's.
    unsafe { execute_found(file, arguments, environ) }
}

/// As `execle`, with the arguments in an array, and the variables' address behind their end.
///
/// # Safety
///
/// As [`execl_listed`]; the variables are C strings up to a null pointer.
unsafe extern "C" fn execle_listed(path: *const c_char, arguments: Strings) -> c_int {
    let mut end = arguments;
    // SAFETY: the list has not ended before `end`.
    while !unsafe { end.read() }.is_null() {
        // SAFETY: there is one more behind an element that is not the last.
        end = unsafe { end.add(1) };
    }
    // SAFETY: `execle` has one more argument behind the end of the list.
    let variables = unsafe { end.add(1).cast::<Strings>().read() };
    // SAFETY: as the caller promises.
    answer(unsafe { execute(path, arguments, variables) })
}

// On entry `rdi` is the path; `rsi`, `rdx`, `rcx`, `r8`, `r9` and then the stack above the return
// address hold the arguments. Five pushes in its place and the return address below them keep the
// stack aligned to 16 bytes at the call. It returns only when the program could not be started.
#[cfg(target_arch = "x86_64")]
macro_rules! listed {
    ($name:literal, $function:ident) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "endbr64",
            "pop r10",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push r10",
            "call {function}",
            "pop r10",
            "add rsp, 40",
            "push r10",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            function = sym $function,
        );
    };
}

// On entry `x0` is the path; `x1` to `x7` and then the stack hold the arguments. The seven go right
// below the stack's, the frame record below them.
#[cfg(target_arch = "aarch64")]
macro_rules! listed {
    ($name:literal, $function:ident) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "hint #34",
            "sub sp, sp, #80",
            "stp x29, x30, [sp]",
            "mov x29, sp",
            "str x1, [sp, #24]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "add x1, sp, #24",
            "bl {function}",
            "ldp x29, x30, [sp]",
            "add sp, sp, #80",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            function = sym $function,
        );
    };
}

listed!("execl", execl_listed);
listed!("execlp", execlp_listed);
listed!("execle", execle_listed);
