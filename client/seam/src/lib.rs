//! The table of C functions by which libkakehi finds the preload library's client, by a symbol's
//! name.
//!
//! A process has one client, the preload library's. libkakehi may be of another release, so the
//! name carries the table's version: what changes the table or what a function of it promises
//! changes the name, and who finds none of the name does without a client. A library may offer
//! several.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};

/// Name of a function without arguments that returns a `*const Calls`, which is null when nothing
/// is delegated in this process.
pub const NAME: &CStr = c"kakehi_client_1";

/// The function of that [`NAME`].
pub type Find = unsafe extern "C" fn() -> *const Calls;

/// The functions, valid for the life of the process. None may be called in a signal handler.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Calls {
    /// Gives at least so many bytes of memory that the daemon shares, at the start of a page; null
    /// when there is none left, or no daemon.
    pub allocate: extern "C" fn(len: usize) -> *mut c_void,
    /// Takes such memory back; returns 1, or 0 when this is none.
    pub free: extern "C" fn(memory: *mut c_void) -> c_int,
    /// 1 if the file is delegated, else 0.
    pub is_delegated: extern "C" fn(fd: c_int) -> c_int,
    /// Has what was accepted for the file in it; returns 0 or a negated errno.
    pub flush: extern "C" fn(fd: c_int) -> c_int,
    /// A queue for up to 64 transfers; null when there is no memory for it.
    pub queue: extern "C" fn() -> *mut c_void,
    /// Has the daemon do a transfer; returns 1, or 0 when nothing was done, and the caller has to.
    pub start: unsafe extern "C" fn(queue: *mut c_void, transfer: *const Transfer) -> c_int,
    /// 1 if the oldest transfer can be finished without waiting, else 0.
    pub is_finished: unsafe extern "C" fn(queue: *mut c_void) -> c_int,
    /// Waits for the oldest transfer; returns the bytes moved, or a negated errno.
    pub finish: unsafe extern "C" fn(queue: *mut c_void) -> i64,
    /// Waits for what is in flight, and ends the queue.
    pub end: unsafe extern "C" fn(queue: *mut c_void),
}

/// Bytes to be moved between a file and memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Transfer {
    /// Where the bytes are in this process, until the transfer is finished.
    pub memory: *mut c_void,
    /// How many.
    pub len: usize,
    /// Where they are in the file, from its start.
    pub at: u64,
    /// The open file.
    pub fd: c_int,
    /// 1 to write to the file, 0 to read.
    pub is_write: c_int,
}
