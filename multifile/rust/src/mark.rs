//! The mark in `flag2` of the header, a field that SIONlib writes as zero and never reads (format
//! section 7).

/// Meaning of a `flag2` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Not a value of ours: zero, or someone else's.
    None,
    /// The file is being written; its journal entries carry this number.
    Open(u64),
    /// The file is closed.
    Closed {
        /// All chunks have the same size, so one chunk's place follows without the others.
        uniform: bool,
        /// Where the table of checksums stands.
        checksums_at: Option<u64>,
    },
}

const TAG_SHIFT: u32 = 56;
const OPEN_TAG: u64 = 0x6b;
const CLOSED_TAG: u64 = 0x4b;
const UNIFORM: u64 = 1 << 55;
/// The bits of an instance number.
pub(crate) const INSTANCE: u64 = (1 << TAG_SHIFT) - 1;

impl Mark {
    /// Reads a `flag2` value.
    #[must_use]
    pub(crate) const fn decode(flag2: u64) -> Self {
        let checksums_at = flag2 & (UNIFORM - 1);
        match flag2 >> TAG_SHIFT {
            OPEN_TAG => Self::Open(flag2 & INSTANCE),
            CLOSED_TAG => Self::Closed {
                uniform: flag2 & UNIFORM != 0,
                checksums_at: if checksums_at == 0 { None } else { Some(checksums_at) },
            },
            _ => Self::None,
        }
    }

    /// The `flag2` value. A closed file with neither hint has zero, as SIONlib writes it.
    #[must_use]
    pub(crate) const fn encode(self) -> u64 {
        match self {
            Self::None | Self::Closed { uniform: false, checksums_at: None } => 0,
            Self::Open(instance) => OPEN_TAG << TAG_SHIFT | instance & INSTANCE,
            Self::Closed { uniform, checksums_at } => {
                let at = match checksums_at {
                    Some(at) if at < UNIFORM => at,
                    _ => 0,
                };
                CLOSED_TAG << TAG_SHIFT | if uniform { UNIFORM } else { 0 } | at
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format rule 7.1.
    #[test]
    fn every_mark_reads_back() {
        for mark in [
            Mark::None,
            Mark::Open(INSTANCE),
            Mark::Closed { uniform: true, checksums_at: None },
            Mark::Closed { uniform: false, checksums_at: Some(1 << 40) },
        ] {
            assert_eq!(Mark::decode(mark.encode()), mark);
        }
        assert_eq!(Mark::Closed { uniform: false, checksums_at: None }.encode(), 0);
        assert_eq!(Mark::decode(214_748_364_800), Mark::None);
    }
}
