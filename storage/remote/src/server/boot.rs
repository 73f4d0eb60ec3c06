//! Which boot of its machine a server runs in.
//!
//! A server that was killed has left what it wrote in the kernel, which has it for the next one. A
//! machine that goes down takes that with it, and an `fsync` asked of the next server would say
//! that all is well.

use std::{fs, io};

use wire::BOOT_LEN;

use crate::line::key::from_hex;

/// A boot, as no other machine and no other boot is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot(pub(crate) [u8; BOOT_LEN]);

impl Boot {
    /// This machine's.
    ///
    /// # Errors
    ///
    /// Those of reading `/proc`; `InvalidData` when it does not say.
    pub fn here() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let found = from_hex(&text.trim_end().replace('-', ""));
        found.map(Self).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_the_same_whoever_asks() {
        assert_eq!(Boot::here().expect("Linux says"), Boot::here().expect("Linux says"));
        assert_ne!(Boot::here().expect("Linux says"), Boot([0; BOOT_LEN]));
    }
}
