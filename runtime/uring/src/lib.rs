//! File operations and stream sockets for an executor.
//!
//! Files: io_uring where it runs without a kernel worker, plain system calls on the spot where they
//! are faster, engine threads for the rest. [`Engines`] chooses by file and operation. An
//! operation owns its buffers and its descriptor until its completion is reaped: dropping a
//! future detaches the operation and frees nothing. io_uring absent or forbidden is normal;
//! everything then runs on threads.
//!
//! Devices whose reads and writes are messages: [`read_message`], [`write_message`].
//!
//! Sockets: [`Sockets`] listens and connects, a [`Stream`] moves bytes; see there for what keeps a
//! peer that always sends from starving the rest.
//!
//! # Modules
//!
//! - *Choice:* `engines`, `slow` (devices), `ways` (through the page cache or past it), `long` and
//!   `long_write` (streams that go past it).
//! - *Engines:* `engine` (their interface), `ring`, `threads`, `inline`, `plain` (system calls).
//! - *Within a ring:* `set_up`, `batch` (when the kernel is entered), `run` (operations merged into
//!   one), `span` (which may be merged), `entry`, `vectors`.
//! - *Operations:* `operation`, `transfer` (its future), `waiting`, `memory`, `pool`, `file`,
//!   `foreign_fd`, `lock`, `message`, `mounts`, `umask`.
//! - *The executor's thread:* `parker`, `reactor`, `crowd`, `slice`.
//! - *Sockets:* `net`. *The process:* `fork`, `standard`, `signal`, `allocator`.
#![expect(missing_debug_implementations, reason = "what tasks share leads round in circles")]

mod allocator;
mod batch;
mod crowd;
mod engine;
mod engines;
mod entry;
mod file;
mod foreign_fd;
mod fork;
mod inline;
mod lock;
mod long;
mod long_write;
mod memory;
mod message;
mod mounts;
mod net;
mod operation;
mod parker;
mod plain;
mod pool;
mod reactor;
mod ring;
mod run;
mod set_up;
mod signal;
mod slice;
mod slow;
mod span;
mod standard;
mod threads;
mod transfer;
mod umask;
mod vectors;
mod waiting;
mod ways;

pub use allocator::allocate_by_mebibytes;
pub use engines::{Choice, Counters, Engines};
pub use file::{File, is_local, note_elsewhere};
pub use foreign_fd::ForeignFd;
pub use fork::{fork, statfs_within};
pub use inline::INLINE_LEN_MAX;
pub use lock::{LockKind, RecordLock};
pub use memory::{BUFFER_COUNT_MAX, Buffer, Buffers, Heap, Memory};
pub use message::{read_message, write_message};
pub use mounts::own_mounts;
pub use net::{
    Address, Frame, FrameError, Frames, Halves, Inlet, InvalidAddress, Listener, Peer, Receiver,
    SOCKET_LEN_MAX, Sender, Sockets, Stages, Stream, peer_process, set_window_min,
};
pub use operation::FETCH_LEN_MAX;
pub use parker::{EpollParker, Events, SystemClock};
pub use pool::Pool;
pub use reactor::{Heeded, Reactor, Watch};
pub use signal::{hold_real_time, ignore_signal, send_signal};
pub use slice::prefer_short_turns;
pub use standard::leave_closed;
pub use umask::with_umask;
