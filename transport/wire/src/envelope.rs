//! Header of a UCX message (`docs/reference/protocol.md`, section 8): its sender, and its part of
//! the stream of frames.

use crate::frame::TAG_LEN;

const LEN: usize = TAG_LEN + size_of::<u64>();

/// The header of a message between two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Secret of the two ends of this connection, another one in each direction.
    pub secret: [u8; TAG_LEN],
    /// Counts the messages of a direction from 0.
    pub number: u64,
}

impl Envelope {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let (secret, number) = bytes.split_at_mut(TAG_LEN);
        secret.copy_from_slice(&self.secret);
        number.copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// The header of these bytes; `None` when they have another length.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (secret, number) = bytes.split_first_chunk()?;
        Some(Self { secret: *secret, number: u64::from_le_bytes(number.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_survives_the_way_and_no_other_length_is_one() {
        let envelope = Envelope { secret: [7; TAG_LEN], number: 1 << 40 };
        let bytes = envelope.encode();
        assert_eq!(Envelope::decode(&bytes), Some(envelope));
        for len in 0..bytes.len() {
            assert_eq!(Envelope::decode(&bytes[..len]), None);
        }
        assert_eq!(Envelope::decode(&[&bytes[..], b"x"].concat()), None);
    }
}
