//! How the writes of an open file are executed.
//!
//! | mode | small ones | large ones | the log's length |
//! |---|---|---|---|
//! | behind | staged | by the kernel | `OWN_LEN`; `DAEMONS_LEN` if the daemon drains it |
//! | large | staged | staged | half of what is free of the arena; the daemon drains it |
//! | through | wait until they are in the file | as small ones | of a placeholder as in behind |
//!
//! `staging.rs` chooses the length; the log's [`Drains`](crate::log::Drains) says who drains it.
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | large ones fit | behind -> large |
//! | large ones do not fit | large -> behind |
//! | synchronize | behind -> through, large -> through |
//!
//! The daemon demotes a file by its slot, at any time: its writes then go through, whatever stands
//! here ([`Writes::on`]).

use crate::slot::Link;

/// Mode of an open file's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Each waits until it is in the file: by `O_SYNC` or settings, because others have the file
    /// open, or the process exits. First, so that a short write has a zero to test for.
    Through,
    /// The program goes on once they are staged.
    Behind,
    /// As [`Behind`](Self::Behind), and so are large ones: the file system is slow.
    Large,
}

impl Writes {
    /// Large writes are staged from now on, if a log is long enough for them, or can be.
    pub(crate) fn stage_large(&mut self, fits: bool) {
        *self = match (*self, fits) {
            (Self::Through, _) => Self::Through,
            (_, true) => Self::Large,
            (_, false) => Self::Behind,
        };
    }

    /// The mode of a file that the daemon has open, which may have demoted it.
    #[inline]
    pub(crate) fn on(self, link: Link) -> Self {
        if link.shared.is_synchronous() { Self::Through } else { self }
    }

    /// Each write waits from now on.
    pub(crate) const fn synchronize(&mut self) {
        *self = Self::Through;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_mode_and_event_leads_where_the_table_says() {
        let modes =
            [("behind", Writes::Behind), ("large", Writes::Large), ("through", Writes::Through)];
        crate::edges::walk(
            include_str!("writes.rs"),
            &modes,
            &[
                ("large ones fit", |writes| writes.stage_large(true)),
                ("large ones do not fit", |writes| writes.stage_large(false)),
                ("synchronize", Writes::synchronize),
            ],
        );
    }
}
