//! Wire format between client and server, in every program compared.
//!
//! A packet is an offset in the file, 8 bytes, and as many bytes as the run says. The answer is a
//! number of credits, 8 bytes: at first what may be on the way, then one for every packet served.
//! All numbers are little-endian.

use serde::{Deserialize, Serialize};
use ucx::PIECE_LEN;
use uring::SOCKET_LEN_MAX;

/// Length of an offset, and of an answer.
pub(crate) const NUMBER_LEN: usize = 8;

/// One run: who serves what.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    /// Bytes of data in a packet.
    pub(crate) size: usize,
    /// Packets in all.
    pub(crate) count: u64,
    /// Packets on the way or being served, in all.
    pub(crate) depth: u32,
    /// Connections, each of which may have its share on the way.
    pub(crate) clients: u32,
    /// Length of the file, over and over again written from its start.
    pub(crate) span: u64,
    pub(crate) transport: Transport,
    /// Packets are written from where UCX, or the kernel, has received them.
    pub(crate) lends: bool,
}

/// Transport of the packets.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    Tcp,
    Ucx,
}

/// Packets that a client may send at least, however many clients there are.
const SHARE_MIN: u32 = 128;

impl Run {
    /// Packets that one client may have on the way, once there is place for them.
    pub(crate) fn share(&self) -> u32 {
        self.depth.min(SHARE_MIN).max(self.depth / self.clients)
    }

    /// Bytes that are received at a time: a longer packet is out of the fast caches when its end is
    /// here, or in no one piece.
    pub(crate) fn part_len(&self) -> usize {
        let is_lent_by_ucx = self.lends && self.transport == Transport::Ucx;
        self.size.min(if is_lent_by_ucx { PIECE_LEN } else { SOCKET_LEN_MAX })
    }

    /// Returns the window of a connection: the bytes a client may have in flight. Whom the window
    /// stops goes on when it opens: on the server's core, or in small steps.
    pub(crate) fn window_len(&self) -> usize {
        self.share() as usize * (NUMBER_LEN + self.size)
    }

    /// Parts of a packet.
    pub(crate) fn parts(&self) -> usize {
        self.size.div_ceil(self.part_len())
    }

    /// Where packet `number` goes.
    pub(crate) fn offset(&self, number: u64) -> u64 {
        (number * self.size as u64) % self.span
    }
}
