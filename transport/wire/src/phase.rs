//! The two replies to a request, as one word of a completion (`docs/reference/protocol.md`, section
//! 4).

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Received and valid; the I/O has not started.
    Acknowledged,
    /// Done: the value is final.
    Completed,
}

/// The state word of a completion: the entry's number and the phase it has reached.
///
/// A slot that still shows an older number has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of the entry that is answered.
    pub seq: u32,
    /// Phase reached.
    pub phase: Phase,
}

const ACKNOWLEDGED: u64 = 1;
const COMPLETED: u64 = 2;

impl Reply {
    /// The state word.
    #[must_use]
    pub const fn encode(self) -> u64 {
        let phase = match self.phase {
            Phase::Acknowledged => ACKNOWLEDGED,
            Phase::Completed => COMPLETED,
        };
        (self.seq as u64) << 32 | phase
    }

    /// The phase that `state` says entry `seq` has reached, or `None` when it says nothing of it.
    #[must_use]
    pub const fn phase_of(state: u64, seq: u32) -> Option<Phase> {
        if state >> 32 != seq as u64 {
            return None;
        }
        match state & 0xffff_ffff {
            ACKNOWLEDGED => Some(Phase::Acknowledged),
            COMPLETED => Some(Phase::Completed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_answers_its_own_entry_only() {
        for phase in [Phase::Acknowledged, Phase::Completed] {
            for seq in [1, 7, u32::MAX] {
                let state = Reply { seq, phase }.encode();
                assert_eq!(Reply::phase_of(state, seq), Some(phase));
                assert_eq!(Reply::phase_of(state, seq.wrapping_add(1)), None);
            }
        }
        assert_eq!(Reply::phase_of(0, 0), None);
    }
}
