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
//! A message that UCX has received whole in memory of its own stays there until its buffer is
//! dropped, on whatever thread, and is not copied ([`Config::lent_len_min`]): over shared memory
//! messages of up to [`PIECE_LEN`]. Who shares that memory can change it meanwhile.
//!
//! # Trust
//!
//! UCX believes its peers. The TCP port that every worker has turns away who does not know UCX;
//! who does can make UCX 1.13 abort the process. So use it on networks where every host is trusted.
//! Exchange an [`Address`] over a connection that has proven who is there, and keep that connection
//! as the sign of life. UCX's own listeners are left out: at the port of one any byte of a stranger
//! makes UCX 1.13 abort.
//!
//! Messages that arrive *through* UCX are checked here: a message too long for a buffer, or one
//! without credit, ends its connection and touches nothing else.
//!
//! # Put and get
//!
//! There are no calls for them: over TCP and shared memory UCX emulates them with messages to a
//! target that must make progress, at a fraction of the speed of messages. Where a transport has
//! them in hardware, UCX itself fetches long messages by get ([`Settings`] ask for that scheme).
//! No test has seen such hardware.
//!
//! # Deaf workers
//!
//! Over shared memory all senders share one queue of the receiver. One that is killed, or stopped,
//! within a message leaves the queue standing at it: the receiver then notices that peer's death,
//! but hears nobody else any more. (UCX 1.13, System V memory: after 4 of 80 kills of a process
//! that sent all the time; over TCP after none of 120.) So who serves several peers makes a new
//! worker for those that come after one has died, and has the others come again that are not heard.
#![expect(missing_debug_implementations, reason = "what tasks share leads round in circles")]

mod abi;
mod address;
mod config;
mod endpoint;
mod error;
mod library;
mod loans;
mod operation;
mod payload;
mod peer;
mod pool;
mod state;
mod worker;

pub use address::Address;
pub use config::{Config, PIECE_LEN, Settings};
pub use endpoint::Endpoint;
pub use error::{Error, Status};
pub use payload::{NoPayload, payload};
pub use peer::{HEADER_LEN_MAX, Message};
pub use pool::{Buffer, Memory};
pub use worker::{Held, Worker};
