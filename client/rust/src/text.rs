//! Short texts without an allocator.

use core::fmt;

/// A short text in place.
#[derive(Clone, Copy)]
pub(crate) struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Text<MAX> {
    /// An empty one.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }

    /// `None`, and nothing: it is too long.
    pub(crate) fn set(&mut self, value: &[u8]) -> Option<()> {
        self.bytes.get_mut(..value.len())?.copy_from_slice(value);
        self.len = value.len();
        Some(())
    }

    /// Its bytes.
    pub(crate) fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<const MAX: usize> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get().escape_ascii(), f)
    }
}
