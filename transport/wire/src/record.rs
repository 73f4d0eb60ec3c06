//! Records of a session's index log: what its client does to files without a request
//! (`docs/reference/protocol.md`, section 9).

use crate::{
    entry::Invalid,
    words::{Reader, WORD_LEN, signed, unsigned},
};

/// Longest name in a folder, bytes.
const NAME_LEN_MAX: usize = 255;

/// An action of a client. A file is called by the inode number that its client has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "described at each kind")]
pub enum Record<'a> {
    /// A file is made under a name that its client has claimed. Permission bits, the umask already
    /// taken off; seconds and nanoseconds since 1970.
    Create {
        inode: u64,
        folder: u64,
        mode: u32,
        how: CreateFlags,
        time: (i64, u32),
        name: &'a [u8],
    },
    /// The next bytes of the data log go to the end of the file.
    Data { inode: u64, len: u32 },
    /// Nothing more is done to the file here.
    Close { inode: u64 },
}

/// How a file was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateFlags(pub u16);

impl CreateFlags {
    /// It must not be there.
    pub const EXCLUSIVE: Self = Self(1);
    /// If it is there it is cut.
    pub const TRUNCATES: Self = Self(2);
    /// Its client appends: who opens it besides may have written behind what came so far.
    pub const APPENDS: Self = Self(4);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

const CREATE: u8 = 1;
const DATA: u8 = 2;
const CLOSE: u8 = 3;

impl<'a> Record<'a> {
    /// The most bytes that a record has.
    pub const LEN_MAX: usize = 5 * WORD_LEN + (NAME_LEN_MAX + 1).next_multiple_of(WORD_LEN);

    /// Bytes of the record in a log.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Create { name, .. } => 5 * WORD_LEN + name.len().next_multiple_of(WORD_LEN),
            _ => 2 * WORD_LEN,
        }
    }

    /// Writes the record to the start of `bytes`; returns its bytes. `None`: the name is too long,
    /// or there is no room.
    #[must_use]
    pub fn encode<'b>(&self, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
        let bytes = bytes.get_mut(..self.encoded_len())?;
        let words = u64::try_from(self.encoded_len() / WORD_LEN).ok()? << 8;
        let (head, inode, rest) = match *self {
            Self::Create { inode, folder, mode, how, time, name } => {
                let len = u64::try_from(name.len()).ok().filter(|_| name.len() <= NAME_LEN_MAX)?;
                let head = u64::from(CREATE) | len << 16 | u64::from(how.0) << 32;
                let third = u64::from(mode) | u64::from(time.1) << 32;
                (head, inode, Some((folder, third, unsigned(time.0), name)))
            }
            Self::Data { inode, len } => (u64::from(DATA) | u64::from(len) << 32, inode, None),
            Self::Close { inode } => (u64::from(CLOSE), inode, None),
        };
        let (fixed, behind) = bytes.split_at_mut_checked(2 * WORD_LEN)?;
        put(fixed, &[head | words, inode]);
        if let Some((folder, third, seconds, name)) = rest {
            let (fixed, padded) = behind.split_at_mut_checked(3 * WORD_LEN)?;
            put(fixed, &[folder, third, seconds]);
            padded.fill(0);
            padded.get_mut(..name.len())?.copy_from_slice(name);
        }
        Some(bytes)
    }

    /// The record that `bytes`, a copy, begin with, and how many of them are its.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when there is none.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), Invalid> {
        let mut words = Reader(bytes);
        let short = Invalid::Kind(0);
        let head = words.word().ok_or(short)?;
        let [kind, words_len, name_len, _, how @ .., _, _] = head.to_le_bytes();
        let high = u32::try_from(head >> 32).unwrap_or(u32::MAX);
        let len = usize::from(words_len) * WORD_LEN;
        let inode = words.word().ok_or(short)?;
        let record = match kind {
            CREATE => {
                let mut next = || words.word().ok_or(short);
                let (folder, third, seconds) = (next()?, next()?, next()?);
                let name = words.0.get(..usize::from(name_len)).ok_or(short)?;
                let (mode, nanos) = halves(third);
                let (how, time) = (CreateFlags(u16::from_le_bytes(how)), (signed(seconds), nanos));
                Self::Create { inode, folder, mode, how, time, name }
            }
            DATA => Self::Data { inode, len: high },
            CLOSE => Self::Close { inode },
            other => return Err(Invalid::Kind(other)),
        };
        if record.encoded_len() != len || bytes.len() < len {
            return Err(Invalid::Kind(kind));
        }
        Ok((record, len))
    }
}

fn put(bytes: &mut [u8], words: &[u64]) {
    for (to, word) in bytes.chunks_exact_mut(WORD_LEN).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let long = [b'n'; NAME_LEN_MAX];
        let how = CreateFlags::EXCLUSIVE.with(CreateFlags::TRUNCATES);
        let made = |name| Record::Create {
            inode: 1 << 40,
            folder: 7,
            mode: 0o7777,
            how,
            time: (-5, 999_999_999),
            name,
        };
        for record in [
            made(b"f"),
            made(b"exactly8"),
            made(&long),
            Record::Data { inode: 3, len: u32::MAX },
            Record::Close { inode: u64::MAX },
        ] {
            let mut space = [0xff; Record::LEN_MAX];
            let bytes = record.encode(&mut space).expect("room");
            assert_eq!(bytes.len() % WORD_LEN, 0);
            assert_eq!(Record::decode(bytes), Ok((record, bytes.len())));
            for cut in 0..bytes.len() {
                assert!(Record::decode(&bytes[..cut]).is_err(), "{record:?} cut to {cut}");
            }
        }
        assert!(made(&[b'n'; NAME_LEN_MAX + 1]).encode(&mut [0; 1024]).is_none());
    }
}
