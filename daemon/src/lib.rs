//! The daemon: executes the file I/O that client processes delegate to it.
//!
//! One executor per core, each with its own sessions; the first one also accepts connections. The
//! way of a request: a client raises a bit of its executor's board, `lanes` takes the entries,
//! `requests` checks and acknowledges them and runs them over trait `storage::Storage` (`mounts`),
//! and `session` answers. The way of a staged write: a dirty mark, `pace` decides when its log is
//! written, `drain` writes it and releases the space.
//!
//! The way of a program that no client serves: the kernel asks `view`, which runs the same calls.
//!
//! A session, its files, and everything that happens to them stay on one executor. What executors
//! share is in `node`, and so are the messages between them.
//!
//! # Trust
//!
//! A client may be wrong or hostile. Entries and messages are copies before they are looked at,
//! every slot, length, and range in them is checked against the session's own record, and payload
//! is only ever handed to the kernel. The worst a client can do is lose its session.
//!
//! # Modules
//!
//! - *Start and end:* `assembly`, `config`, `error`, `standby`, `starter`, `life`, `signals`,
//!   `node` and `mail` (what executors share), `core` (one executor's part), `seats` (how many
//!   there are), `affinity`, `machine_memory`.
//! - *Who comes:* `socket_folder`, `socket`, `listener`, `admission`, `arrivals` (at an executor),
//!   `peer`, `session`, `reap` (its end); `caller` is the other end, for those that only ask.
//! - *Requests:* `lanes`, `requests`, `name_requests`, `readahead`, `locks`, `settle`, `mounts`,
//!   `session_storage`.
//! - *Files:* `registration`, `registry` (inodes, whoever has them open), `file`, `pace`,
//!   `drain_queues`, `drain`.
//! - *Folders:* `view`, `view_nodes` (names there), `hidden_folder` (what a mapping hides).
//! - *Figures:* `statistics`, `samples` (counters over time), `trace`, `status`, `remote_status`,
//!   `file_systems` (their costs), `mount_table`.
#![forbid(unsafe_code)]

#[macro_use]
extern crate invariant;

mod admission;
mod affinity;
mod arrivals;
mod assembly;
pub mod caller;
mod config;
mod core;
mod drain;
mod drain_queues;
mod error;
mod file;
mod file_systems;
mod hidden_folder;
mod lanes;
mod life;
mod listener;
mod locks;
mod machine_memory;
mod mail;
mod mount_table;
mod mounts;
mod name_requests;
mod node;
mod pace;
mod peer;
mod readahead;
mod reap;
mod registration;
mod registry;
mod remote_status;
mod requests;
mod samples;
mod seats;
mod session;
mod session_storage;
mod settle;
mod signals;
#[cfg(test)]
mod simulation;
mod socket;
pub mod socket_folder;
mod standby;
mod starter;
mod statistics;
mod status;
mod trace;
mod view;
mod view_nodes;

pub use admission::STAGING_MIN;
pub use assembly::serve;
pub use coalesce::Coalesce;
pub use config::{CORES_MAX, Config, LINGER, Remote, STAGING, Serving, Viewing};
pub use error::{Error, Given};
pub use executor::{Idle, QUIET};
pub use file_systems::FileSystem;
pub use hidden_folder::HiddenFolder;
pub use machine_memory::Memory;
pub use mounts::Mount;
pub use remote::{Address, Spread, published};
pub use standby::{Counts, Standby};
pub use statistics::{Sample, Summary, Traced, TracedWork};
pub use uring::{Choice, fork, hold_real_time, ignore_signal, leave_closed, send_signal};
pub use view::apart::OwnMounts;
pub use view::mount::{
    clear as clear_view, is_barred, is_mounted as has_view, take_away_unused as take_view_away,
};

/// The names in [`Summary::bytes_undelegated`] and [`Summary::fallbacks`].
pub fn reasons() -> impl Iterator<Item = &'static str> {
    wire::Reason::ALL.into_iter().map(wire::Reason::name)
}
