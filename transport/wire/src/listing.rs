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

/// The names of a listing, in their order. A name may be anything but empty.
pub fn names(bytes: &[u8]) -> impl Iterator<Item = (NameKind, &[u8])> {
    let names = bytes.split(|byte| *byte == 0).filter_map(<[u8]>::split_first);
    names.map(|(letter, name)| (NameKind::decode(*letter), name)).filter(|(_, n)| !n.is_empty())
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
        names: impl IntoIterator<Item = (NameKind, &'n [u8])> + Clone,
    ) -> bool {
        let len: usize = names.clone().into_iter().map(|(_, name)| name.len() + 2).sum();
        let Some((head, rest)) = self.room.split_first_chunk_mut::<WORD_LEN>() else {
            return false;
        };
        let at = self.len.saturating_sub(WORD_LEN);
        let Some(mut rest) = rest.get_mut(at..).filter(|rest| len <= rest.len()) else {
            return false;
        };
        *head = next.to_le_bytes();
        for (kind, name) in names {
            let bytes = core::iter::once(kind.encode()).chain(name.iter().copied()).chain([0]);
            rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            rest = rest.get_mut(name.len() + 2..).unwrap_or_default();
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

    #[test]
    fn a_listing_has_what_was_written_and_no_part_of_what_has_no_room() {
        let mut room = [0xff; 24];
        let mut writer = ListingWriter::new(&mut room);
        assert_eq!(writer.written(), 0);
        assert!(writer.push(7, [(NameKind::Folder, &b"."[..])]));
        assert!(writer.push(8, []));
        assert!(writer.push(u64::MAX, [(NameKind::File, &b"a"[..]), (NameKind::Link, b"bc")]));
        assert!(!writer.push(9, [(NameKind::Other, &b"d"[..]), (NameKind::Other, b"efgh")]));
        let len = writer.written();
        assert_eq!(room[..len], *b"\xff\xff\xff\xff\xff\xff\xff\xffd.\0fa\0lbc\0");
        let listing = Listing::decode(&room[..len]).expect("there are names");
        let found: Vec<_> = names(listing.names).collect();
        let expected: [(_, &[u8]); 3] =
            [(NameKind::Folder, b"."), (NameKind::File, b"a"), (NameKind::Link, b"bc")];
        assert_eq!((listing.next, &found[..]), (u64::MAX, &expected[..]));
        for kind in KINDS {
            assert_eq!(NameKind::decode(kind.encode()), kind);
        }
    }

    #[test]
    fn no_bytes_are_after_the_last_name_and_names_of_no_length_are_none() {
        assert_eq!(Listing::decode(b""), None);
        assert_eq!(Listing::decode(&[0; WORD_LEN - 1]), None);
        assert_eq!(
            names(b"\0f\0\0xname\0d").collect::<Vec<_>>(),
            [(NameKind::Other, &b"name"[..])]
        );
        for len in 0..WORD_LEN {
            assert!(!ListingWriter::new(&mut [0; WORD_LEN][..len]).push(1, []));
        }
        let mut room = [0; WORD_LEN];
        assert!(!ListingWriter::new(&mut room).push(1, [(NameKind::File, &b""[..])]));
        assert_eq!(room, [0; WORD_LEN]);
    }
}
