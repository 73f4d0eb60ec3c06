//! The application's side of delegation: what a program's file calls become.
//!
//! [`Client`] speaks in descriptors and errno values, as the programs do that it serves: every
//! method does what the system call of its name would have done, for any descriptor, and delegates
//! where it can. One [`Client`] stands in a `static` per process.
//!
//! It uses no heap, no thread, and no libc, so that its methods may run inside a signal handler, a
//! forked child, or a program's last destructor.
//!
//! # Modules
//!
//! - *The process:* `client` (its state), `backing` (the large parts of it), `config`, `host`
//!   (calls that the preload library brings), `attention` (when descriptors are examined), `sight`
//!   and `mount_namespace` (what names mean to the daemon), `limit` (`ulimit -f`), `umask`,
//!   `clock`, `proc`, `text`.
//! - *Open files:* `table` (by descriptor), `file` (the record of one), `state` (who has it open),
//!   `writes` (their mode), `locked_file` (one in this thread's hands), `cursor` (its position),
//!   `owed` (errors to be told), `refused`, `unexamined`, `last_status`, `marks` (mapped, locked),
//!   `locks` (may there be any), `open`, `detach`.
//! - *Writes:* `write`, `write_kernel`, `buffers`, `eligibility` and `costs` (what is staged),
//!   `log`, `staging` (logs in use, and their lengths), `o_direct`, `block` (where no log has
//!   room), `position` (offset, size, durability).
//! - *Reads:* `read`, `window` (read ahead by the daemon), `neighbours` (small files read ahead).
//! - *The daemon:* `sessions` and `connect` (how one is got), `connection`, `socket` (numbers of
//!   the client's own descriptors), `descriptor_messages`, `job` (memory of the whole job), `slot`,
//!   `slots`, `arena`, `arena_growth`, `memory` (lent to the program), `ask`, `queue`, `patience`.
//! - *Names:* `paths`, `rooms` (memory for them), `resolve`, `rules`, `names`, `rename_errors`,
//!   `fd_names` (below `/proc/self/fd`).
//! - *Files that only a daemon or server opens:* `delegate`, `remote`, `remote_attributes`,
//!   `remote_locks`, `flags`, `by_view`, `bundle`, `at_rest`.
//! - *Records for reports and traces:* `watch` (counts), `watch_records`, `recorder`, `sampler` and
//!   `timed` (calls that are timed for the job's costs).
#![expect(missing_debug_implementations, reason = "a process has one, which is large")]
#![forbid(unsafe_code)]
#![no_std]

#[macro_use]
extern crate invariant;
#[cfg(test)]
extern crate std;

mod arena;
mod arena_growth;
mod ask;
mod at_rest;
mod attention;
mod backing;
mod block;
mod buffers;
mod bundle;
mod by_view;
mod client;
mod clock;
mod config;
mod connect;
mod connection;
mod costs;
mod cursor;
mod delegate;
mod descriptor_messages;
mod detach;
mod eligibility;
mod fd_names;
mod file;
mod flags;
mod host;
mod job;
mod last_status;
mod limit;
mod locked_file;
mod locks;
mod log;
mod marks;
mod memory;
mod mount_namespace;
mod names;
mod neighbours;
mod o_direct;
mod open;
mod owed;
mod paths;
mod patience;
mod position;
mod proc;
mod queue;
mod read;
mod recorder;
mod refused;
mod remote;
mod remote_attributes;
mod remote_locks;
mod rename_errors;
mod resolve;
mod rooms;
mod rules;
mod sampler;
mod sessions;
mod sight;
mod slot;
mod slots;
mod socket;
mod staging;
mod state;
mod table;
mod text;
mod timed;
mod umask;
mod unexamined;
mod watch;
mod watch_records;
mod window;
mod write;
mod write_kernel;
mod writes;

#[cfg(test)]
use invariant::edges;

pub use backing::Backing;
pub use client::{Client, Status};
pub use config::{Config, FENCE_TIMEOUT, LARGE_LEN, Launcher, STAGE_AFTER, Setting, SettingError};
pub use host::{Host, Peer};
pub use names::Name;
pub use proc::link_of;
pub use queue::{Queue, Transfer};
pub use remote_locks::LockRange;
pub use rooms::{Path, Room};
pub use rustix::{io::Errno, process::Pid};
pub use sampler::Timed;
pub use shm::{alone_while, section, thread};
pub use wire::{FileSystem, FoundLock, LockKind, LockOwner, Reason, Times};
