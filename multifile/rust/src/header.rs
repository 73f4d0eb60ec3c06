//! The fixed fields at the start of every physical file.
//!
//! Layout and meaning: `docs/reference/format.md`, section 1. Bytes become an [`Unchecked`] header,
//! which only names them, and then a [`Header`], whose every field is in range. This module is the
//! only code that knows the offsets.

use crate::{
    codec::{Fields, Order},
    error::{Error, Part, Result},
};

const MAGIC: [u8; 4] = *b"sion";
/// Where the number of physical files is stored, and then the file's own.
pub(crate) const FILE_COUNT_AT: u64 = 28;
/// Where `flag2` is stored; it changes after the header was written, as the numbers of files may.
pub(crate) const FLAG2_AT: u64 = 44;
/// Length of the name field in bytes, with at least one zero at the end when we write it.
pub const PREFIX_LEN: usize = 1024;
/// Length of the fixed fields in bytes; the tables of global ranks and chunk sizes follow.
pub const FIXED_LEN: usize = 52 + PREFIX_LEN;
/// [`FIXED_LEN`] as an offset.
pub(crate) const FIXED_END: u64 = FIXED_LEN as u64;
/// Bytes of the two commit fields behind the tables.
pub(crate) const COMMIT_LEN: u64 = 12;
/// Content of the commit fields until the file is closed.
pub(crate) const NOT_COMMITTED: [u8; 12] = [0; 12];

const LIBRARY_VERSION: u32 = 1007;
const LIBRARY_PATCH: u32 = 6;
/// The version this crate writes.
pub(crate) const FORMAT_VERSION: u32 = 5;
const OLDEST_VERSION: u32 = 3;

/// How records are stored in a task's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyval {
    /// Plain bytes.
    None,
    /// Records of key, length, and bytes, back to back.
    Inline,
    /// A mode that SIONlib names but never implemented; the stream is plain bytes.
    Other(u32),
}

/// The fixed fields as they stand in the file, in host integers.
#[derive(Clone, Debug)]
pub struct Unchecked {
    order: [u8; 4],
    library_version: i32,
    library_patch: i32,
    version: i32,
    fs_block_len: i32,
    task_count: i32,
    file_count: i32,
    file_number: i32,
    flag1: u64,
    flag2: u64,
    prefix: Vec<u8>,
}

/// Fixed fields that passed every check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Byte order of all integers of the format.
    pub order: Order,
    /// Byte order the application says its data has.
    pub data_order: Order,
    /// Library that wrote the file: 1000 times the major version plus the minor.
    pub library_version: u32,
    /// Patch level of that library.
    pub library_patch: u32,
    /// Format version, 3 to 5.
    pub version: u32,
    /// File-system block size in bytes that chunks are aligned to; positive.
    pub fs_block_len: u32,
    /// Tasks in this physical file.
    pub task_count: u32,
    /// Physical files in the set.
    pub file_count: u32,
    /// Number of this file in the set; serial writers store 1 in a set of one.
    pub file_number: u32,
    /// How records are stored.
    pub keyval: Keyval,
    /// Zero in files of SIONlib; see format section 7.
    pub flag2: u64,
    /// The name given when the set was created, at most 1024 bytes.
    pub prefix: Vec<u8>,
}

impl Unchecked {
    /// Names the fields in `bytes`, the start of a physical file.
    ///
    /// # Errors
    ///
    /// [`Part::Truncated`] below [`FIXED_LEN`] bytes, [`Part::Magic`], [`Part::ByteOrder`].
    pub fn read(bytes: &[u8]) -> Result<Self, Part> {
        let mut fields = Fields::little(bytes);
        let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if !MAGIC.starts_with(start) {
            return Err(Part::Magic);
        }
        let _magic: [u8; 4] = fields.take().ok_or(Part::Truncated)?;
        let word = fields.take().ok_or(Part::Truncated)?;
        let order = metadata_order(word).ok_or(Part::ByteOrder)?;
        let rest = bytes.get(8..).unwrap_or_default();
        Self::read_rest(word, &mut Fields::new(rest, order)).ok_or(Part::Truncated)
    }

    fn read_rest(order: [u8; 4], fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            order,
            library_version: fields.i32()?,
            library_patch: fields.i32()?,
            version: fields.i32()?,
            fs_block_len: fields.i32()?,
            task_count: fields.i32()?,
            file_count: fields.i32()?,
            file_number: fields.i32()?,
            flag1: fields.u64()?,
            flag2: fields.u64()?,
            prefix: fields.slice(PREFIX_LEN)?.to_vec(),
        })
    }

    /// Checks every field by itself.
    ///
    /// # Errors
    ///
    /// The first part that is out of range, in file order.
    pub fn check(self) -> Result<Header, Part> {
        let version = count(self.version)
            .filter(|version| (OLDEST_VERSION..=FORMAT_VERSION).contains(version))
            .ok_or(Part::Version)?;
        let fs_block_len =
            count(self.fs_block_len).filter(|len| *len > 0).ok_or(Part::FsBlockLen)?;
        let task_count = count(self.task_count).ok_or(Part::TaskCount)?;
        let file_count = count(self.file_count).filter(|n| *n > 0).ok_or(Part::FileCount)?;
        let file_number = count(self.file_number)
            .filter(|number| *number < file_count || (*number, file_count) == (1, 1))
            .ok_or(Part::FileCount)?;
        let keyval = if version < FORMAT_VERSION { Keyval::None } else { keyval(self.flag1) };
        let mut prefix = self.prefix;
        prefix.truncate(prefix.iter().position(|byte| *byte == 0).unwrap_or(PREFIX_LEN));
        Ok(Header {
            order: metadata_order(self.order).ok_or(Part::ByteOrder)?,
            data_order: data_order(self.order).ok_or(Part::ByteOrder)?,
            library_version: count(self.library_version).unwrap_or(0),
            library_patch: count(self.library_patch).unwrap_or(0),
            version,
            fs_block_len,
            task_count,
            file_count,
            file_number,
            keyval,
            flag2: self.flag2,
            prefix,
        })
    }
}

impl Header {
    /// A header of the version this crate writes.
    #[must_use]
    pub fn new(order: Order, fs_block_len: u32, task_count: u32) -> Self {
        Self {
            order,
            data_order: order,
            library_version: LIBRARY_VERSION,
            library_patch: LIBRARY_PATCH,
            version: FORMAT_VERSION,
            fs_block_len,
            task_count,
            file_count: 1,
            file_number: 0,
            keyval: Keyval::None,
            flag2: 0,
            prefix: Vec::new(),
        }
    }

    /// Reads and checks the start of physical file `file`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] with the first part that is wrong.
    pub fn parse(bytes: &[u8], file: u32) -> Result<Self> {
        let checked = Unchecked::read(bytes).and_then(Unchecked::check);
        checked.map_err(|part| Error::Damaged { part, file })
    }

    /// The bytes of the fixed fields. A prefix beyond 1023 bytes is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_LEN);
        let flag = |order| u8::from(order == Order::Big);
        let (meta, data) = (flag(self.order), flag(self.data_order));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[meta, data, data, meta]);
        for field in [
            self.library_version,
            self.library_patch,
            self.version,
            self.fs_block_len,
            self.task_count,
            self.file_count,
            self.file_number,
        ] {
            bytes.extend_from_slice(&self.order.bytes_u32(field));
        }
        let keyval = match self.keyval {
            Keyval::None => 50,
            Keyval::Inline => 51,
            Keyval::Other(mode) => mode,
        };
        bytes.extend_from_slice(&self.order.bytes_u64(u64::from(keyval) << 32));
        bytes.extend_from_slice(&self.order.bytes_u64(self.flag2));
        bytes.extend(self.prefix.iter().take(PREFIX_LEN - 1));
        debug_assert!(bytes.len() < FIXED_LEN, "the prefix ends with a zero");
        bytes.resize(FIXED_LEN, 0);
        bytes
    }

    /// Offset of the table of global ranks, eight bytes for each task.
    #[must_use]
    pub const fn ranks_at(&self) -> u64 {
        FIXED_END
    }

    /// Offset of the table of chunk sizes, eight bytes for each task.
    #[must_use]
    pub fn chunks_at(&self) -> u64 {
        FIXED_END + 8 * u64::from(self.task_count)
    }

    /// Offset of the two commit fields: block count (4 bytes), offset of the block table (8).
    #[must_use]
    pub fn commit_at(&self) -> u64 {
        FIXED_END + 16 * u64::from(self.task_count)
    }
}

fn count(value: i32) -> Option<u32> {
    u32::try_from(value).ok()
}

const fn flag_order(flag: u8) -> Option<Order> {
    match flag {
        0 => Some(Order::Little),
        1 => Some(Order::Big),
        _ => None,
    }
}

fn metadata_order(word: [u8; 4]) -> Option<Order> {
    let [meta, _, _, again] = word;
    flag_order(meta).filter(|_| meta == again)
}

fn data_order(word: [u8; 4]) -> Option<Order> {
    let [_, data, again, _] = word;
    flag_order(data).filter(|_| data == again)
}

fn keyval(flag1: u64) -> Keyval {
    match u32::try_from(flag1 >> 32) {
        Ok(0 | 50) | Err(_) => Keyval::None,
        Ok(51) => Keyval::Inline,
        Ok(mode) => Keyval::Other(mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Vec<u8> {
        let mut header = Header::new(Order::Little, 4096, 2);
        header.prefix = b"a.sion".to_vec();
        header.encode()
    }

    /// Format rule 1.1.
    #[test]
    fn what_is_encoded_parses_back_in_both_orders() {
        for (order, data_order) in [(Order::Little, Order::Big), (Order::Big, Order::Little)] {
            let mut header = Header::new(order, 7, 3);
            header.data_order = data_order;
            header.file_count = 4;
            header.file_number = 3;
            header.keyval = Keyval::Inline;
            header.flag2 = u64::MAX;
            header.prefix = b"dir/name".to_vec();
            assert_eq!(Header::parse(&header.encode(), 0), Ok(header));
        }
    }

    /// Format rule 1.3.
    #[test]
    fn every_single_field_error_is_named() {
        let with = |at: usize, bytes: [u8; 4]| {
            let mut header = valid();
            header[at..at + 4].copy_from_slice(&bytes);
            Unchecked::read(&header).and_then(Unchecked::check).unwrap_err()
        };
        assert_eq!(with(0, *b"siom"), Part::Magic);
        assert_eq!(Unchecked::read(b"si").err(), Some(Part::Truncated));
        assert_eq!(Unchecked::read(b"no").err(), Some(Part::Magic));
        assert_eq!(with(4, [2, 0, 0, 2]), Part::ByteOrder);
        assert_eq!(with(4, [0, 1, 0, 0]), Part::ByteOrder);
        assert_eq!(with(16, [2, 0, 0, 0]), Part::Version);
        assert_eq!(with(16, [6, 0, 0, 0]), Part::Version);
        assert_eq!(with(20, [0; 4]), Part::FsBlockLen);
        assert_eq!(with(20, [0xff; 4]), Part::FsBlockLen);
        assert_eq!(with(24, [0xff; 4]), Part::TaskCount);
        assert_eq!(with(28, [0; 4]), Part::FileCount);
        assert_eq!(with(32, [2, 0, 0, 0]), Part::FileCount);
    }

    /// Format rule 1.5.
    #[test]
    fn old_versions_have_no_records() {
        let mut header = Header::new(Order::Little, 512, 1);
        header.keyval = Keyval::Inline;
        for (version, keyval) in [(5, Keyval::Inline), (4, Keyval::None), (3, Keyval::None)] {
            header.version = version;
            assert_eq!(Header::parse(&header.encode(), 0).unwrap().keyval, keyval);
        }
    }

    /// Format rule 1.6.
    #[test]
    fn a_name_may_fill_its_field() {
        let mut bytes = valid();
        bytes[52..].fill(b'x');
        assert_eq!(Header::parse(&bytes, 0).unwrap().prefix, [b'x'; PREFIX_LEN]);
    }

    #[test]
    fn every_prefix_is_truncated() {
        for len in 0..FIXED_LEN {
            assert_eq!(Unchecked::read(&valid()[..len]).unwrap_err(), Part::Truncated);
        }
        assert!(Header::parse(&valid(), 0).is_ok());
    }
}
