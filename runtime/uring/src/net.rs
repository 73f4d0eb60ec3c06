//! TCP and Unix stream sockets of an executor: plain non-blocking calls on sockets that are ready.
//!
//! Works wherever sockets do, io_uring or not. A call is made while its future is polled, so a
//! dropped future has nothing in flight: a receive that is given up has taken no byte. The buffers
//! of a call belong to its future.
//!
//! # Why not through io_uring
//!
//! A prototype gained nothing: on a 2-core guest with Linux 6.18 the CPU time per 64 KiB received
//! on the loopback overlapped for epoll, receives through a ring, and multishot receives (11-27
//! us), and the last ones' bytes must be copied once more to where O_DIRECT can write them from. A
//! ring saves a system call per receive, and a receive brings 64 KiB or more.
//!
//! # Fairness
//!
//! Each side of a stream has a share between two visits to the sources: 16 calls, and none after
//! [`SOCKET_LEN_MAX`] bytes. A peer that always sends therefore takes one bounded poll a turn from
//! everybody else, and streams that are always ready take turns.

mod address;
mod call;
mod frames;
mod halves;
mod options;
mod peer;
mod readiness;
mod sockets;
mod stages;
mod stream;
mod turns;

pub use address::{Address, InvalidAddress};
pub use call::SOCKET_LEN_MAX;
pub use frames::{Frame, FrameError, Frames, Inlet};
pub use halves::Halves;
pub use options::set_window_min;
pub use peer::{Peer, peer_process};
pub use sockets::{Listener, Sockets};
pub use stages::Stages;
pub use stream::{Receiver, Sender, Stream};
