//! Errors of staged writes that the program has yet to be told.
//!
//! | state | meaning |
//! |---|---|
//! | nothing | everything staged is in the file, or on its way |
//! | refused | the kernel refuses staged bytes; unless they are in the file before, as untold |
//! | untold | bytes are lost, and the next write, sync, or close says so |
//! | told | the program knows; nothing more is accepted before they are in the file |
//!
//! The transitions, as a test walks them. Every other pair changes nothing: the first error counts.
//!
//! | event | transitions |
//! |---|---|
//! | owe | nothing -> untold, refused -> untold, told -> untold |
//! | hold | nothing -> refused, told -> refused |
//! | tell | refused -> told, untold -> told |
//! | refuse | nothing -> told |
//! | drain | refused -> nothing, told -> nothing |
//!
//! Told once, a program may wait for room and write again: what is accepted meanwhile would be lost
//! with the rest at close.

use rustix::io::Errno;

/// Errors of an open file's staged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    Refused(Errno),
    Untold(Errno),
    Told,
}

impl Owed {
    /// Keeps an error, if there is one, until the program is told.
    pub(crate) fn owe(&mut self, errno: impl Into<Option<Errno>>) {
        if let (Self::Nothing | Self::Refused(_) | Self::Told, Some(errno)) = (*self, errno.into())
        {
            *self = Self::Untold(errno);
        }
    }

    /// Keeps the error of bytes that stay staged until the program is told, or they are in the
    /// file.
    pub(crate) fn hold(&mut self, errno: Errno) {
        if matches!(self, Self::Nothing | Self::Told) {
            *self = Self::Refused(errno);
        }
    }

    /// The error that the caller tells the program now.
    pub(crate) const fn tell(&mut self) -> Option<Errno> {
        let untold = self.untold();
        if untold.is_some() {
            *self = Self::Told;
        }
        untold
    }

    /// The program is told of an error that was the slot's.
    pub(crate) fn refuse(&mut self) {
        if *self == Self::Nothing {
            *self = Self::Told;
        }
    }

    /// Everything refused before is in the file.
    pub(crate) fn drain(&mut self) {
        if matches!(self, Self::Refused(_) | Self::Told) {
            *self = Self::Nothing;
        }
    }

    /// True if the next write, sync, or close fails.
    pub(crate) const fn is_untold(self) -> bool {
        self.untold().is_some()
    }

    /// The error that these fail with.
    pub(crate) const fn untold(self) -> Option<Errno> {
        let (Self::Refused(errno) | Self::Untold(errno)) = self else { return None };
        Some(errno)
    }

    /// True if the next one does so unless what was refused is in the file by then.
    pub(crate) const fn is_refused(self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        let why = Errno::NOSPC;
        let states = [
            ("nothing", Owed::Nothing),
            ("refused", Owed::Refused(why)),
            ("untold", Owed::Untold(why)),
            ("told", Owed::Told),
        ];
        crate::edges::walk(
            include_str!("owed.rs"),
            &states,
            &[
                ("owe", |owed| owed.owe(Errno::NOSPC)),
                ("hold", |owed| owed.hold(Errno::NOSPC)),
                ("tell", |owed| {
                    owed.tell();
                }),
                ("refuse", Owed::refuse),
                ("drain", Owed::drain),
            ],
        );
    }

    #[test]
    fn first_error_counts() {
        let mut owed = Owed::Nothing;
        owed.owe(None);
        assert_eq!(owed, Owed::Nothing);
        owed.owe(Errno::NOSPC);
        owed.owe(Errno::IO);
        assert!(owed.is_untold());
        assert_eq!((owed.tell(), owed.tell()), (Some(Errno::NOSPC), None));
    }
}
