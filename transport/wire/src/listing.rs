//! Part of a folder's names, as the answer to a request for them (`docs/reference/protocol.md`,
//! section 3): where the next request goes on, then names. Nothing at all after the last name.

use crate::words::{Reader, WORD_LEN};

/// Kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NameKind {
    /// A regular file.
    File = b'f',
    /// A folder.
    Folder = b'd',
    /// A symbolic link.
    Link = b'l',
    /// Anything else.
    Other = b'o',
}

impl NameKind {
    const fn encode(self) -> u8 {
        self as u8
    }

    const fn decode(letter: u8) -> Self {
        match letter {
            b'f' => Self::File,
            b'd' => Self::Folder,
            b'l' => Self::Link,
            _ => Self::Other,
        }
    }
}

/// A part that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing<'a> {
    /// Where the next request is to go on.
    pub next: u64,
    /// Bytes for [`names`]; parts in sequence make up the whole listing.
    pub names: &'a [u8],
}

impl<'a> Listing<'a> {
    /// The part that these bytes are; `None` after the last name.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let next = bytes.word()?;
        Some(Self { next, names: bytes.0 })
    }
}

/// A name in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed<'a> {
    /// What it stands for.
    pub kind: NameKind,
    /// The inode's number, as the folder's file system lists it.
    pub inode: u64,
    /// Anything but empty, and without a NUL.
    pub name: &'a [u8],
}

impl<'a> Listed<'a> {
    const fn len(&self) -> usize {
        1 + WORD_LEN + self.name.len() + 1
    }

    /// The first of these bytes, and the others.
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (letter, bytes) = bytes.split_first()?;
        let (inode, bytes) = bytes.split_first_chunk()?;
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (name, rest) = bytes.split_at(len);
        let (kind, inode) = (NameKind::decode(*letter), u64::from_le_bytes(*inode));
        Some((Self { kind, inode, name }, rest.get(1..).unwrap_or_default()))
    }
}

/// The names of a listing, in their order.
pub fn names(mut bytes: &[u8]) -> impl Iterator<Item = Listed<'_>> {
    let next = move || {
        let (name, rest) = Listed::take(bytes)?;
        bytes = rest;
        Some(name)
    };
    core::iter::from_fn(next).filter(|listed| !listed.name.is_empty())
}

/// A part that is being written.
#[derive(Debug)]
pub struct ListingWriter<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> ListingWriter<'a> {
    /// Without names.
    #[must_use]
    pub const fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    /// Adds names, none of them with a NUL, behind which a request may go on at `next`; false:
    /// there is no room for all of them, and none was added.
    pub fn push<'n>(
        &mut self,
        next: u64,
        names: impl IntoIterator<Item = Listed<'n>> + Clone,
    ) -> bool {
        let len: usize = names.clone().into_iter().map(|listed| listed.len()).sum();
        let Some((head, rest)) = self.room.split_first_chunk_mut::<WORD_LEN>() else {
            return false;
        };
        let at = self.len.saturating_sub(WORD_LEN);
        let Some(mut rest) = rest.get_mut(at..).filter(|rest| len <= rest.len()) else {
            return false;
        };
        *head = next.to_le_bytes();
        for listed in names {
            let head = core::iter::once(listed.kind.encode()).chain(listed.inode.to_le_bytes());
            let bytes = head.chain(listed.name.iter().copied()).chain([0]);
            rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            rest = rest.get_mut(listed.len()..).unwrap_or_default();
        }
        self.len = WORD_LEN + at + len;
        true
    }

    /// How much of the room that is by now, bytes.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const KINDS: [NameKind; 4] =
        [NameKind::File, NameKind::Folder, NameKind::Link, NameKind::Other];

    fn listed(kind: NameKind, inode: u64, name: &[u8]) -> Listed<'_> {
        Listed { kind, inode, name }
    }

    #[test]
    fn a_listing_has_what_was_written_and_no_part_of_what_has_no_room() {
        let mut room = [0xff; 48];
        let mut writer = ListingWriter::new(&mut room);
        assert_eq!(writer.written(), 0);
        let expected = [
            listed(NameKind::Folder, 2, b"."),
            listed(NameKind::File, u64::MAX, b"a"),
            listed(NameKind::Link, 0x6100, b"bc"),
        ];
        assert!(writer.push(7, [expected[0]]));
        assert!(writer.push(8, []));
        assert!(writer.push(u64::MAX, [expected[1], expected[2]]));
        let long = listed(NameKind::Other, 1, b"efgh");
        assert!(!writer.push(9, [listed(NameKind::Other, 1, b"d"), long]));
        let len = writer.written();
        assert_eq!(room[WORD_LEN..][..11], *b"d\x02\0\0\0\0\0\0\0.\0");
        let listing = Listing::decode(&room[..len]).expect("there are names");
        let found: Vec<_> = names(listing.names).collect();
        assert_eq!((listing.next, &found[..]), (u64::MAX, &expected[..]));
        for kind in KINDS {
            assert_eq!(NameKind::decode(kind.encode()), kind);
        }
    }

    #[test]
    fn no_bytes_are_after_the_last_name_and_names_of_no_length_are_none() {
        assert_eq!(Listing::decode(b""), None);
        assert_eq!(Listing::decode(&[0; WORD_LEN - 1]), None);
        assert_eq!(names(b"").next(), None);
        assert_eq!(names(b"f1234567").next(), None);
        let bytes = b"f\x01\0\0\0\0\0\0\0\0x\x02\0\0\0\0\0\0\0name";
        let found: Vec<_> = names(bytes).collect();
        assert_eq!(found, [listed(NameKind::Other, 2, b"name")]);
        let one = listed(NameKind::File, 1, b"");
        for len in 0..WORD_LEN {
            assert!(!ListingWriter::new(&mut [0; WORD_LEN][..len]).push(1, []));
        }
        let mut room = [0; WORD_LEN];
        assert!(!ListingWriter::new(&mut room).push(1, [one]));
        assert_eq!(room, [0; WORD_LEN]);
    }
}
