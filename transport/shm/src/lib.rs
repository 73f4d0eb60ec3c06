//! Memory shared by one client process and the daemon, and the protocols that live in it.
//!
//! The daemon creates every segment as a sealed memfd, so a peer can change bytes but never the
//! size of what is mapped. Entries and payload cross as words and bytes this crate does not read:
//! what they mean is `wire`'s affair. Where everything lies: `docs/reference/protocol.md`, section
//! 1.
//!
//! # Trust
//!
//! The peer may be wrong or hostile and may change any byte at any time. Nothing here hands out
//! `&u8` or `&mut u8` to shared bytes: protocol state is atomics, payload is `&[AtomicU8]` moved by
//! [`copy`], and every index read from the segment is checked against what this side knows.
#![no_std]

#[cfg(any(test, loom))]
extern crate std;

mod board;
pub mod bundle;
pub mod copy;
mod costs;
pub mod doorbell;
mod inodes;
pub mod lane;
mod lock;
#[cfg(not(loom))]
mod mapping;
mod names;
mod once;
pub mod places;
pub mod section;
#[cfg(not(loom))]
mod segment;
pub mod staging;
mod sync;

pub use board::{Board, Ready, SESSIONS_MAX};
pub use costs::{CallKind, Cost, Costs, Sample};
pub use inodes::{Inodes, Linked};
pub use lock::{Guard, Lock, Reentered, alone_while, is_alone, thread};
#[cfg(not(loom))]
pub use mapping::{Mapping, ReadOnly};
pub use names::{Epochs, NAME_SLOTS, NameHash, Names};
pub use once::Once;
#[cfg(not(loom))]
pub use segment::{
    COUNTERS, EXECUTORS_MAX, FILES, Job, JobShared, LANE_BUFFER_LEN, LANES, Places, PlacesView,
    Session, SessionShared,
};
