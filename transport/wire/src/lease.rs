//! Uses for which a client has a lease of a folder.

const READS: u64 = 1;
const MAKES: u64 = 2;

/// Uses of the files of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// Those that are there are read.
    pub reads: bool,
    /// New ones are made.
    pub makes: bool,
}

impl Uses {
    pub(crate) const fn encode(self) -> u64 {
        (self.reads as u64 * READS) | (self.makes as u64 * MAKES)
    }

    pub(crate) const fn decode(bits: u64) -> Self {
        Self { reads: bits & READS != 0, makes: bits & MAKES != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_survive_their_bits() {
        for (reads, makes) in [(false, false), (true, false), (false, true), (true, true)] {
            let uses = Uses { reads, makes };
            assert_eq!(Uses::decode(uses.encode()), uses);
        }
    }
}
