//! TCP and Unix stream sockets of an executor: plain non-blocking calls on sockets that are ready.
//!
//! Works wherever sockets do, io_uring or not. A call is made while its future is polled, so a
//! dropped future has nothing in flight: a receive that is given up has taken no byte. The buffers
//! of a call belong to its future.
//!
//! # Fairness
//!
//! A side of a stream moves at most [`SOCKET_LEN_MAX`] bytes between two visits to the sources, by
//! one call; a second call waits for the next visit. A peer that always sends therefore takes one
//! poll a turn from everybody else, and streams that are always ready take turns.

mod address;
mod call;
mod options;
mod readiness;
mod sockets;
mod stream;

pub use address::{Address, InvalidAddress};
pub use call::SOCKET_LEN_MAX;
pub use sockets::{Listener, Sockets};
pub use stream::{Receiver, Sender, Stream};
