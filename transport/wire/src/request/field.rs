//! Fields of requests, and where they lie in an entry.

use super::PathPair;
use crate::{
    entry::{Entry, join, split},
    lease::Uses,
    words::{narrow, signed, unsigned},
};

/// EntryPart of a field in an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryPart {
    File,
    Len,
    A,
    B,
    /// All of `a`, as two halves.
    Pair,
    /// The low half of `a`.
    First,
    /// The high half of `a`.
    Second,
}

/// A type that fits into a word.
pub(super) trait Field: Sized {
    fn word(self) -> u64;

    fn of(word: u64) -> Self;
}

impl Field for u32 {
    fn word(self) -> u64 {
        self.into()
    }

    fn of(word: u64) -> Self {
        narrow(word)
    }
}

impl Field for u64 {
    fn word(self) -> u64 {
        self
    }

    fn of(word: u64) -> Self {
        word
    }
}

impl Field for i64 {
    fn word(self) -> u64 {
        unsigned(self)
    }

    fn of(word: u64) -> Self {
        signed(word)
    }
}

impl Field for bool {
    fn word(self) -> u64 {
        self.into()
    }

    fn of(word: u64) -> Self {
        word != 0
    }
}

impl Field for Uses {
    fn word(self) -> u64 {
        self.encode()
    }

    fn of(word: u64) -> Self {
        Self::decode(word)
    }
}

impl Field for PathPair {
    fn word(self) -> u64 {
        join(self.from_len, self.to_len)
    }

    fn of(word: u64) -> Self {
        let (from_len, to_len) = split(word);
        Self { from_len, to_len }
    }
}

impl Entry {
    /// Sets a field that is zero.
    pub(super) const fn put(&mut self, place: EntryPart, word: u64) {
        let (shift, mask) = place.bits();
        debug_assert!(word & !mask == 0, "a half has 32 bits");
        let [_, lens, a, b, ..] = &mut self.0;
        *place.of(lens, a, b) |= word << shift;
    }

    pub(super) const fn get(&self, place: EntryPart) -> u64 {
        let (shift, mask) = place.bits();
        let [_, mut lens, mut a, mut b, ..] = self.0;
        *place.of(&mut lens, &mut a, &mut b) >> shift & mask
    }
}

impl EntryPart {
    /// The lowest bit in its word, and the bits that it has.
    const fn bits(self) -> (u32, u64) {
        const HALF: u64 = u32::MAX as u64;
        match self {
            Self::File | Self::First => (0, HALF),
            Self::Len | Self::Second => (32, HALF),
            Self::A | Self::B | Self::Pair => (0, u64::MAX),
        }
    }

    /// Its word.
    const fn of<'a>(self, lens: &'a mut u64, a: &'a mut u64, b: &'a mut u64) -> &'a mut u64 {
        match self {
            Self::File | Self::Len => lens,
            Self::A | Self::Pair | Self::First | Self::Second => a,
            Self::B => b,
        }
    }
}
