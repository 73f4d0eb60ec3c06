//! Packets of one connection that lie one after the other in the file, to be written as one.
//!
//! A write costs more CPU time than several small packets do to receive, and a device more by
//! itself than as a part of a longer one. No packet waits for another to come: a chain ends where
//! the next packet lies elsewhere, when it is long, and when nothing more can be had at once.

use executor::Credit;
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers};

/// A longer chain would leave the cache, and the device without work, before it is written.
const LEN_MAX: usize = 128 << 10;
/// A longer packet is worth a write of its own: in pairs, those of 64 KiB were no faster.
pub(super) const SHORT_LEN_MAX: usize = 16 << 10;

/// Packets in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Chain {
    at: u64,
    len: usize,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    body: Buffer,
    /// Of the client's turn, until the part is written.
    _share: Option<Credit>,
}

impl Chain {
    /// Whether a packet at `at` continues the chain, or begins it.
    pub(super) fn ends_at(&self, at: u64) -> bool {
        self.parts.is_empty() || at == self.at + self.len as u64
    }

    /// Adds a packet that continues it.
    pub(super) fn add(&mut self, at: u64, body: Buffer, share: Option<Credit>) {
        if self.parts.is_empty() {
            self.at = at;
        }
        self.len += body.len();
        self.parts.push(Part { body, _share: share });
    }

    /// Whether a packet of `len` bytes more would be too much.
    pub(super) fn is_full_for(&self, len: usize) -> bool {
        len > SHORT_LEN_MAX || self.len + len > LEN_MAX || self.parts.len() == BUFFER_COUNT_MAX
    }

    /// Bytes of all packets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where in the file it begins, and what is to be written there; `None` when nothing is.
    pub(super) fn rest(&self) -> Option<(u64, Buffers)> {
        let buffers = match &*self.parts {
            [one] => one.body.clone().into(),
            several => Buffers::new(several.iter().map(|part| part.body.clone()).collect())?,
        };
        Some((self.at, buffers))
    }

    /// Forgets the first `len` bytes, which are written.
    pub(super) fn cut(&mut self, len: usize) {
        (self.at, self.len) = (self.at + len as u64, self.len - len);
        let mut left = len;
        self.parts.retain_mut(|part| {
            let cut = left.min(part.body.len());
            left -= cut;
            part.body = part.body.suffix(cut);
            !part.body.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use uring::Heap;

    use super::*;

    fn lens(chain: &Chain) -> (u64, Vec<usize>) {
        let (at, buffers) = chain.rest().expect("something is left");
        (at, buffers.as_slice().iter().map(Buffer::len).collect())
    }

    #[test]
    fn a_packet_elsewhere_does_not_continue_a_chain() {
        let mut chain = Chain::default();
        assert!(chain.ends_at(8192));
        chain.add(8192, Heap::buffer(4096), None);
        assert!(chain.ends_at(12_288));
        assert!(!chain.ends_at(8192) && !chain.ends_at(16_384));
    }

    #[test]
    fn a_chain_takes_no_more_than_one_write_does() {
        for (len, count) in [(1, BUFFER_COUNT_MAX), (4 << 10, 32), (16 << 10, 8), (64 << 10, 1)] {
            let mut chain = Chain::default();
            let mut at = 0;
            for _ in 0..count {
                assert!(chain.ends_at(at) && (at == 0 || !chain.is_full_for(len)));
                chain.add(at, Heap::buffer(len), None);
                at += len as u64;
            }
            assert!(chain.is_full_for(len), "{count} of {len}");
        }
    }

    #[test]
    fn a_short_write_leaves_the_rest_in_its_place() {
        let mut chain = Chain::default();
        (0..3).for_each(|index| chain.add(index * 10, Heap::buffer(10), None));
        for (cut, left) in [(4, (4, vec![6, 10, 10])), (11, (15, vec![5, 10])), (5, (20, vec![10]))]
        {
            chain.cut(cut);
            assert_eq!(lens(&chain), left);
        }
        chain.cut(10);
        assert!(chain.rest().is_none());
        assert_eq!(chain.len(), 0);
    }
}
