//! Replay: the meaning of a request that is sent again (`docs/reference/protocol.md`, rules 12 and
//! 13).

use crate::request::{Replay, Request};

/// Bits of `fallocate(2)`: bytes are taken out, or put in.
const COLLAPSE_RANGE: u32 = 0x08;
const INSERT_RANGE: u32 = 0x20;

impl Request {
    /// True if a server of remote files is asked for it, too.
    #[must_use]
    pub const fn leaves_node(&self) -> bool {
        !matches!(self.replay(), Replay::Here)
    }

    /// True if it moves bytes of a file, which it would do twice.
    #[must_use]
    pub const fn shifts(&self) -> bool {
        matches!(self, Self::Allocate { mode, .. } if *mode & (COLLAPSE_RANGE | INSERT_RANGE) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_bytes_out_or_puts_them_in_moves_bytes() {
        let shifts = |mode| Request::Allocate { file: 0, mode, at: 0, len: 1 }.shifts();
        // KEEP_SIZE, PUNCH_HOLE with it, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE, UNSHARE_RANGE.
        let found = [0, 0x01, 0x03, 0x08, 0x10, 0x20, 0x40].map(shifts);
        assert_eq!(found, [false, false, false, true, false, true, false]);
        assert!(!Request::MakeDir { path_len: 1, mode: 0x28 }.shifts());
    }
}
