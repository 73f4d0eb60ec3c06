//! Turns to change a file: one task alone, or several writes together.
//!
//! Writes that a client has in flight together go to places of their own, and nobody promises them
//! an order, so they share the turn. Who wants it alone waits until those have left, and no other
//! joins them meanwhile.

use std::cell::Cell;

/// The turn of one file, as a count of who has it. Waiting is the caller's affair.
#[derive(Debug, Default)]
pub struct Turns {
    holders: Cell<Holders>,
    /// Tasks that wait to have the turn alone.
    claims: Cell<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holders {
    #[default]
    Nobody,
    One,
    Together(usize),
}

/// Keeps others from joining those who share the turn.
#[derive(Debug)]
pub struct Claim<'a>(&'a Turns);

impl Turns {
    /// True if nobody has the turn.
    pub fn is_free(&self) -> bool {
        self.holders.get() == Holders::Nobody
    }

    /// Takes the turn alone; whether nobody had it.
    pub fn take(&self) -> bool {
        let is_free = self.is_free();
        if is_free {
            self.holders.set(Holders::One);
        }
        is_free
    }

    /// Takes the turn, or a share of it; whether nobody has it alone, or waits to.
    pub fn join(&self) -> bool {
        let count = match self.holders.get() {
            _ if self.claims.get() > 0 => return false,
            Holders::One => return false,
            Holders::Nobody => 0,
            Holders::Together(count) => count,
        };
        self.holders.set(Holders::Together(count + 1));
        true
    }

    /// Gives back the turn, or a share of it; whether it is free now.
    pub fn leave(&self) -> bool {
        debug_assert!(!self.is_free(), "a turn that is left was taken");
        self.holders.set(match self.holders.get() {
            Holders::Together(count @ 2..) => Holders::Together(count - 1),
            _ => Holders::Nobody,
        });
        self.is_free()
    }

    /// Says that a task waits to have the turn alone, until the result is dropped.
    pub fn claim(&self) -> Claim<'_> {
        self.claims.set(self.claims.get() + 1);
        Claim(self)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        debug_assert!(self.0.claims.get() > 0, "a claim is counted once");
        self.0.claims.set(self.0.claims.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_share_the_turn_and_whoever_wants_it_alone_waits_for_the_last() {
        let turns = Turns::default();
        assert!(turns.join() && turns.join());
        assert!(!turns.take());
        assert!(!turns.leave());
        assert!(!turns.take());
        assert!(turns.leave());
        assert!(turns.take());
    }

    #[test]
    fn nobody_joins_one_who_is_alone() {
        let turns = Turns::default();
        assert!(turns.take());
        assert!(!turns.join() && !turns.take());
        assert!(turns.leave());
        assert!(turns.join());
    }

    #[test]
    fn writes_that_keep_coming_do_not_keep_others_from_their_turn() {
        let turns = Turns::default();
        assert!(turns.join());
        let claim = turns.claim();
        assert!(!turns.join(), "somebody waits");
        assert!(turns.leave() && turns.take());
        drop(claim);
        assert!(!turns.join());
        assert!(turns.leave() && turns.join());
    }
}
