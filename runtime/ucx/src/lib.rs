//! A UCX worker for an executor: active messages between processes over whatever connects them,
//! shared memory, RDMA or TCP.
//!
//! libucp is opened when a [`Worker`] is made, never linked: a program runs without it until then,
//! and [`Error::Missing`] says what to install. [`Settings`] are handed to UCX explicitly.
//!
//! # Bounds
//!
//! Every message received is held by a [`Buffer`], the credit of a pool sized at start. A peer that
//! goes on sending when no buffer is free is served late for a few messages and then cut off;
//! agreeing with it on how much it may send is the business of the level above. Sends in flight
//! are bounded too, and a visit of the executor is at most 2 progress calls.
//!
//! # Trust
//!
//! UCX believes its peers. The TCP port that every worker has turns away who does not know UCX;
//! who does can make UCX 1.13 abort the process. So use it on networks where every host is trusted.
//! Exchange an [`Address`] over a connection that has proven who is there, and keep that connection
//! as the sign of life. UCX's own listeners are left out: at the port of one any byte of a stranger
//! makes UCX 1.13 abort.
//!
//! What is checked here is what arrives *through* UCX: a message too long for a buffer, or one
//! without credit, ends its connection and touches nothing else.
//!
//! One-sided put and get are left out: over TCP and shared memory UCX emulates them with messages
//! to a target that must make progress, at a fraction of the speed of messages.

mod abi;
mod address;
mod config;
mod endpoint;
mod error;
mod library;
mod operation;
mod payload;
mod peer;
mod pool;
mod state;
mod worker;

pub use address::Address;
pub use config::{Config, Settings};
pub use endpoint::Endpoint;
pub use error::{Error, Status};
pub use payload::{NoPayload, payload};
pub use peer::{HEADER_LEN_MAX, Message};
pub use pool::{Buffer, Memory};
pub use worker::{Held, Worker};
