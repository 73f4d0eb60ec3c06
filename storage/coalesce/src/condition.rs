//! The condition of a multifile, from when it is opened until it is closed.
//!
//! | state | the multifile |
//! |---|---|
//! | clean | is as it was found, and closed |
//! | vain | was not there before, and nothing was changed in it: it goes with who made it |
//! | dirty | counts as unclosed, and is changed |
//! | ended | is as it was found, and no change begins any more |
//! | closing | counts as unclosed until it is closed, and no change begins any more |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | change | vain -> dirty |
//! | begin | clean -> dirty, ended -> closing |
//! | end | clean -> ended, vain -> closing, dirty -> closing |

/// The condition of a multifile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Clean,
    Vain,
    Dirty,
    Ended,
    Closing,
}

impl Condition {
    /// A change begins.
    pub(super) fn change(&mut self) {
        if let Self::Vain = self {
            *self = Self::Dirty;
        }
    }

    /// On the disk the multifile counts as unclosed: for a change that began before the end.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Clean => *self = Self::Dirty,
            Self::Ended => *self = Self::Closing,
            _ => {}
        }
    }

    /// Nothing is changed any more.
    pub(super) fn end(&mut self) {
        match self {
            Self::Clean => *self = Self::Ended,
            Self::Vain | Self::Dirty => *self = Self::Closing,
            _ => {}
        }
    }

    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Closing)
    }

    /// True if it counts as unclosed.
    pub(super) const fn is_begun(self) -> bool {
        !matches!(self, Self::Clean | Self::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_condition_and_event_leads_where_the_table_says() {
        let conditions = [
            ("clean", Condition::Clean),
            ("vain", Condition::Vain),
            ("dirty", Condition::Dirty),
            ("ended", Condition::Ended),
            ("closing", Condition::Closing),
        ];
        invariant::edges::walk(
            include_str!("condition.rs"),
            &conditions,
            &[("change", Condition::change), ("begin", Condition::begin), ("end", Condition::end)],
        );
    }
}
