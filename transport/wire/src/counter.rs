//! Counters of a client, in words of the segment that outlive it.
//!
//! The daemon reads them when the session ends, however it ends, so a killed client is counted too.

named! {
    /// Why bytes or a file went past the daemon; named as in statistics.
    #[repr(u8)]
    pub enum Reason {
        /// The descriptor was opened by another program: a shell redirection.
        Inherited = "inherited",
        /// `copy_file_range`, `sendfile`, or `splice`: the kernel moves the bytes.
        KernelCopy = "kernel_copy",
        /// The file is mapped for writing.
        Mapped = "mapped",
        /// The file was open across `fork`, so its position is shared.
        Forked = "forked",
        /// The file was passed on through `exec`, `posix_spawn`, or a socket.
        PassedOn = "passed_on",
        /// A `pass` rule names the file.
        Rule = "rule",
        /// The kernel makes up the content: `/proc`, `/sys`, and their like.
        Pseudo = "pseudo",
        /// No credit for another file or for staging memory.
        Credit = "credit",
        /// No daemon could be reached, or it went away.
        DaemonLost = "daemon_lost",
        /// Written after the program's last destructor.
        Exiting = "exiting",
        /// The call or open mode is one that delegation does not serve.
        Unsupported = "unsupported",
        /// One write was so large that copying it would cost what writing it costs.
        Large = "large",
        /// The file became standard input, output, or error, which libc uses past every wrapper.
        StandardStream = "standard_stream",
        /// The first writes of a file: staging begins once it repays the hand-over.
        First = "first",
        /// Each write of the file waits until the file system has it: `O_SYNC`, a lock, another
        /// opener.
        Synchronous = "synchronous",
    }
}

/// A count kept by the client. Byte counters count bytes, the others count calls or files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Regular files opened under a policy other than `pass`.
    Files,
    /// Bytes the program wrote to them.
    BytesWritten,
    /// Bytes the program read from them.
    BytesRead,
    /// Bytes accepted into staging.
    BytesStaged,
    /// Calls on files of a server that failed because their folder has no view.
    Unviewed,
    /// Errors of staged writes that could not be reported to the program.
    ErrorsUnreported,
    /// Bytes written past the daemon, by reason.
    BytesUndelegated(Reason),
    /// Files that left delegation, by reason.
    Fallbacks(Reason),
    /// Files opened that a rule names, by its index; there are words for the first
    /// [`RULES_COUNTED`], and later ones count as the last of them.
    OfRule(usize),
}

const FIRST_REASON: usize = 7;

/// Rules whose files are counted.
pub const RULES_COUNTED: usize = 16;

/// Words a counter table has.
pub const COUNTER_COUNT: usize = 64;

const FIRST_RULE: usize = COUNTER_COUNT - RULES_COUNTED;
const _: () = assert!(FIRST_REASON + 2 * Reason::ALL.len() <= FIRST_RULE);

impl Counter {
    /// The counter's word in the table.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Files => 0,
            Self::BytesWritten => 1,
            Self::BytesRead => 2,
            Self::BytesStaged => 3,
            // Word 4 is retired.
            Self::Unviewed => 5,
            Self::ErrorsUnreported => 6,
            Self::BytesUndelegated(reason) => FIRST_REASON + reason as usize,
            Self::Fallbacks(reason) => FIRST_REASON + Reason::ALL.len() + reason as usize,
            Self::OfRule(rule) if rule < RULES_COUNTED => FIRST_RULE + rule,
            Self::OfRule(_) => COUNTER_COUNT - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_own_words() {
        let mut seen = [false; COUNTER_COUNT];
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            for counter in [Counter::BytesUndelegated(reason), Counter::Fallbacks(reason)] {
                assert!(!core::mem::replace(&mut seen[counter.index()], true));
            }
        }
        for rule in 0..RULES_COUNTED {
            assert!(!core::mem::replace(&mut seen[Counter::OfRule(rule).index()], true));
        }
        assert!(seen[..FIRST_REASON].iter().all(|used| !used));
        assert_eq!(Counter::OfRule(usize::MAX).index(), COUNTER_COUNT - 1);
    }
}
