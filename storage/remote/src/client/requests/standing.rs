//! How far a session is, from its first connection to its end.
//!
//! | state | meaning |
//! |---|---|
//! | apart | there is no connection, and one is sought |
//! | connected | requests are sent and answered |
//! | leaving | so they are, and a goodbye follows the last one |
//! | abandoned | there is no connection, and the next one is for a goodbye |
//! | left | the session has ended, and nothing is asked any more |
//! | dead | everything fails |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | connect | apart -> connected, abandoned -> leaving |
//! | abandon | apart -> abandoned, connected -> leaving |
//! | break | connected -> apart, leaving -> left, abandoned -> left |
//! | die | apart -> dead, abandoned -> dead |

/// The standing of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Apart,
    Connected,
    Leaving,
    Abandoned,
    Left,
    /// Why.
    Dead(String),
}

impl Standing {
    /// A connection is there.
    pub(super) fn connect(&mut self) {
        match self {
            Self::Apart => *self = Self::Connected,
            Self::Abandoned => *self = Self::Leaving,
            _ => {}
        }
    }

    /// The session is to end.
    pub(super) fn abandon(&mut self) {
        match self {
            Self::Apart => *self = Self::Abandoned,
            Self::Connected => *self = Self::Leaving,
            _ => {}
        }
    }

    /// The connection broke, or could not be made.
    pub(super) fn break_off(&mut self) {
        match self {
            Self::Connected => *self = Self::Apart,
            Self::Leaving | Self::Abandoned => *self = Self::Left,
            _ => {}
        }
    }

    /// The session is given up.
    pub(super) fn die(&mut self, why: String) {
        if let Self::Apart | Self::Abandoned = self {
            *self = Self::Dead(why);
        }
    }

    pub(super) const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected | Self::Leaving)
    }

    pub(super) const fn is_dead(&self) -> bool {
        matches!(self, Self::Dead(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_standing_and_event_leads_where_the_table_says() {
        let standings = [
            ("apart", Standing::Apart),
            ("connected", Standing::Connected),
            ("leaving", Standing::Leaving),
            ("abandoned", Standing::Abandoned),
            ("left", Standing::Left),
            ("dead", Standing::Dead("refused".to_owned())),
        ];
        invariant::edges::walk(
            include_str!("standing.rs"),
            &standings,
            &[
                ("connect", Standing::connect),
                ("abandon", Standing::abandon),
                ("break", Standing::break_off),
                ("die", |standing| standing.die("refused".to_owned())),
            ],
        );
    }
}
