//! `libkakehi_preload.so`: stands between an unmodified program and libc's file functions.
//!
//! Each function does what libc's does, and asks the [`Client`](client::Client) first where a file
//! of ours may be meant. Where nothing is delegated (no `KAKEHI_SOCKET`, or `KAKEHI_DISABLE=1`),
//! each is a plain system call.
//!
//! # Rules
//!
//! No heap, no thread, no `std`: a wrapper may run inside a signal handler. Everything that libc
//! would ask of the kernel is asked by [`kernel`], so no wrapper is entered from another one by way
//! of libc. libc itself is called where a function has state of its own there (stdio, `fork`).
//!
//! # Modules
//!
//! - *The library:* `start` (makes the client), `process_client` (which calls go to it),
//!   `interpose`, `symbols` and `elf` (which functions are replaced), `kernel` (system calls past
//!   libc), `by_number` (`syscall`), `pointers`, `argument`, `bits`, `errno`.
//! - *Open files:* `open`, `data`, `vector`, `position`, `sync` (size, too), `descriptor`, `stat`,
//!   `attributes`, `map`, `copy`, `lock`, `ioctl`, `terminal`, `poll`, `message`, `asynchronous`,
//!   `ring`, `temporary`, `queue` (for libkakehi), `other_descriptors` (sockets and the like).
//! - *Names:* `names`, `path_attributes`, `extended`, `folders`, `walks`, `name_handles`, `settle`.
//! - *Streams:* `stdio`, `cookie` (those of the client), `plain_streams` (those of libc), `fread`,
//!   `print`, `glibc`, `inside_libc`.
//! - *Processes:* `process`, `vfork`, `clone`, `execl`, `environment`, `handlers` and
//!   `signals`, `limit`, `confine` (sandboxes).
#![no_std]

mod argument;
mod asynchronous;
mod attributes;
mod bits;
mod by_number;
mod clone;
mod confine;
mod cookie;
mod copy;
mod data;
mod descriptor;
mod elf;
mod environment;
mod errno;
mod execl;
mod extended;
mod folders;
mod fread;
mod glibc;
mod handlers;
mod inside_libc;
mod interpose;
mod ioctl;
mod kernel;
mod limit;
mod lock;
mod map;
mod message;
mod name_handles;
mod names;
mod open;
mod other_descriptors;
mod path_attributes;
mod plain_streams;
mod pointers;
mod poll;
mod position;
mod print;
mod process;
mod process_client;
mod queue;
mod ring;
mod settle;
mod signals;
mod start;
mod stat;
mod stdio;
mod symbols;
mod sync;
mod temporary;
mod terminal;
mod vector;
mod vfork;
mod walks;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes no arguments and may be called in any state.
    unsafe { libc::abort() }
}
