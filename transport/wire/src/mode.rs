//! Mode of a file or folder that is made: what a program asks for, and its umask.
//!
//! The two travel apart. In a folder with a default ACL the kernel does not apply the umask, and
//! only whoever makes the file knows the folder.

/// Permission bits that a program asks for, and those that its umask takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMode {
    /// Permission bits.
    pub bits: u32,
    /// The umask.
    pub umask: u32,
}

impl NewMode {
    const SHIFT: u32 = 16;
    const BITS: u32 = 0o7777;
    const UMASK: u32 = 0o777;

    /// Both in the word of a request: the umask in the upper half.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.bits & Self::BITS | (self.umask & Self::UMASK) << Self::SHIFT
    }

    /// The content of such a word.
    #[must_use]
    pub const fn decode(word: u32) -> Self {
        Self { bits: word & Self::BITS, umask: word >> Self::SHIFT & Self::UMASK }
    }

    /// The mode where there are no default ACLs.
    #[must_use]
    pub const fn masked(self) -> u32 {
        self.bits & !self.umask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_and_umask_share_a_word() {
        let mode = NewMode { bits: 0o2775, umask: 0o027 };
        assert_eq!(NewMode::decode(mode.encode()), mode);
        assert_eq!(mode.masked(), 0o2750);
        assert_eq!(NewMode::decode(0o644), NewMode { bits: 0o644, umask: 0 });
        assert_eq!(NewMode::decode(u32::MAX), NewMode { bits: 0o7777, umask: 0o777 });
    }
}
