//! libkakehi: what POSIX lacks, for programs that link it. `include/kakehi.h` says what each call
//! does.
//!
//! A process has one client, and the preload library owns it; POSIX calls are delegated there. So
//! this library has no client: it asks for the preload library's ([`client`]), and does what is
//! not for that by plain calls of libc, as everything where there is none. A program gives the same
//! results either way.
//!
//! # Rules
//!
//! Nothing here is undefined for any file or number; memory and queues are the caller's to vouch
//! for. None of the calls may be made in a signal handler.

mod client;
mod error;
mod files;
mod memory;
mod queue;
