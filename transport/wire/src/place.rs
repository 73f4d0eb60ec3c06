//! A file in the table of places (`docs/reference/protocol.md`, section 10).

use crate::{
    answer::Status,
    words::{narrow, signed, unsigned},
};

/// Physical files that a table leads to.
pub const SOURCES_MAX: usize = 32;
/// Words of an entry behind its sequence.
const WORDS: usize = 21;
/// Those before the name.
const HEAD: usize = 11;
/// Bits of the number of a physical file, above which the rights are.
const SOURCE_BITS: u32 = SOURCES_MAX.ilog2();
/// Block of `stat(2)`, and bytes that are best read at a time, of coalesced files.
const BLOCK_LEN: u64 = 512;
const READ_LEN: u64 = 4096;

/// A file at rest: nobody has it open to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// As clients know it.
    pub device: u64,
    /// The folder that it is in.
    pub folder: u64,
    /// Its own number.
    pub inode: u64,
    /// Kind and permissions.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// The permissions of the daemon's user, in the bits of `access(2)`.
    pub rights: u8,
    /// Number of the physical file that has its bytes.
    pub source: u8,
    /// Where they begin there.
    pub at: u64,
    /// How many there are.
    pub size: u64,
    /// When it was read, written, and changed last.
    pub times: [(i64, u32); 3],
    /// Its name in the folder.
    pub name: PlaceName,
}

/// The name of a file in the table, which is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceName {
    len: u8,
    words: [u64; WORDS - HEAD],
}

impl PlaceName {
    /// Longest name, bytes.
    pub const MAX: usize = (WORDS - HEAD) * 8;

    /// A name; `None`: it is too long.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let len = u8::try_from(name.len()).ok().filter(|_| name.len() <= Self::MAX)?;
        Some(Self { len, words: name_words(name) })
    }

    /// Its bytes, in `space`.
    pub fn bytes<'a>(&self, space: &'a mut [u8; Self::MAX]) -> &'a [u8] {
        for (bytes, word) in space.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        space.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Place {
    /// Its words.
    #[must_use]
    pub fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, name) = words.split_at_mut(HEAD);
        let [accessed, modified, changed] = self.times;
        let [mode_low, mode_high] = self.mode.to_le_bytes();
        let rest = self.rights << SOURCE_BITS | self.source;
        let [a, b, c, d] = accessed.1.to_le_bytes();
        head.copy_from_slice(&[
            self.device,
            self.folder,
            u64::from_le_bytes([mode_low, mode_high, self.name.len, rest, a, b, c, d]),
            self.inode,
            u64::from(self.user) | u64::from(self.group) << 32,
            self.at,
            self.size,
            unsigned(accessed.0),
            unsigned(modified.0),
            unsigned(changed.0),
            u64::from(modified.1) | u64::from(changed.1) << 32,
        ]);
        name.copy_from_slice(&self.name.words);
        words
    }

    /// The place that words are.
    #[must_use]
    pub fn decode(words: &[u64; WORDS]) -> Self {
        let [device, folder, mixed, inode, owner, at, size, accessed, modified, changed, ns, ..] =
            *words;
        let [mode_low, mode_high, name_len, rest, a, b, c, d] = mixed.to_le_bytes();
        let halves = |word: u64| (narrow(word & 0xffff_ffff), narrow(word >> 32));
        let ((user, group), (modified_ns, changed_ns)) = (halves(owner), halves(ns));
        Self {
            device,
            folder,
            inode,
            mode: u16::from_le_bytes([mode_low, mode_high]),
            user,
            group,
            rights: rest >> SOURCE_BITS,
            source: rest & ((1 << SOURCE_BITS) - 1),
            at,
            size,
            times: [
                (signed(accessed), u32::from_le_bytes([a, b, c, d])),
                (signed(modified), modified_ns),
                (signed(changed), changed_ns),
            ],
            name: PlaceName {
                len: name_len,
                words: words.last_chunk().copied().unwrap_or_default(),
            },
        }
    }

    /// True if words are about the file of this name, without decoding them.
    #[must_use]
    pub fn is_of(words: &[u64; WORDS], device: u64, folder: u64, name: &[u8]) -> bool {
        let [its_device, its_folder, mixed, ..] = *words;
        let its_name = words.iter().skip(HEAD);
        // Words behind a name of this length are zero in both.
        (its_device, its_folder) == (device, folder)
            && mixed >> 16 & 0xff == name.len() as u64
            && its_name.zip(name.chunks(8)).all(|(word, bytes)| *word == name_word(bytes))
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> Status {
        let [accessed, modified, changed] = self.times;
        Status {
            device: self.device,
            inode: self.inode,
            mode: self.mode.into(),
            link_count: 1,
            user: self.user,
            group: self.group,
            special_device: 0,
            size: self.size,
            block_size: READ_LEN,
            block_count: self.size.div_ceil(BLOCK_LEN),
            accessed,
            modified,
            changed,
            born: 0,
        }
    }
}

fn name_words(name: &[u8]) -> [u64; WORDS - HEAD] {
    let mut words = [0; WORDS - HEAD];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        *word = name_word(bytes);
    }
    words
}

/// Up to eight bytes, the first one lowest.
#[inline]
fn name_word(bytes: &[u8]) -> u64 {
    match <[u8; 8]>::try_from(bytes) {
        Ok(bytes) => u64::from_le_bytes(bytes),
        Err(_) => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_what_its_words_say() {
        let place = Place {
            device: 9,
            folder: 2,
            inode: u64::MAX,
            mode: 0o100_640,
            user: 1000,
            group: u32::MAX,
            rights: 6,
            source: 31,
            at: 1 << 50,
            size: 4097,
            times: [(-1, 999_999_999), (7, 1), (i64::MIN, 2)],
            name: PlaceName::new(b"").expect("short"),
        };
        for name in [&b"a"[..], b"eight888", &[b'x'; PlaceName::MAX]] {
            let place = Place { name: PlaceName::new(name).expect("short"), ..place };
            let words = place.encode();
            assert_eq!(Place::decode(&words), place);
            assert_eq!(place.name.bytes(&mut [0; PlaceName::MAX]), name);
            assert!(Place::is_of(&words, place.device, 2, name));
            assert!(!Place::is_of(&words, place.device, 2, b"another"));
            assert!(!Place::is_of(&words, place.device, 3, name));
        }
        assert_eq!(PlaceName::new(&[b'x'; PlaceName::MAX + 1]), None);
        let status = place.status();
        assert_eq!((status.block_count, status.changed), (9, (i64::MIN, 2)));
    }
}
