//! Requests of the kernel.

use std::ffi::CString;

use crate::{
    bytes::{Reader, signed},
    reply::Lock,
};

/// The node that is mounted.
pub const ROOT: u64 = 1;
/// Bytes of the header of every request.
pub const IN_HEADER_LEN: usize = 40;
/// Bytes before the data of a request to write.
pub const WRITE_HEADER_LEN: usize = IN_HEADER_LEN + 40;

/// The request has the handle that it is about.
const GETATTR_HANDLE: u32 = 1;
/// The lock is one of `flock(2)`.
const LOCK_WHOLE: u32 = 1;
/// A write of the page cache, not of a call.
const WRITE_CACHE: u32 = 1;
/// As in `fcntl.h`.
const O_APPEND: u32 = 0o2000;
/// `fdatasync(2)`.
const SYNC_DATA: u32 = 1;

/// The begin of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Names the request in its reply.
    pub unique: u64,
    /// The node that it is about.
    pub node: u64,
    /// User who asks.
    pub user: u32,
    /// Group who asks.
    pub group: u32,
    /// Process that asks; zero if it has no number here.
    pub process: u32,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its header.
    pub header: Header,
    /// The question.
    pub operation: Operation,
}

/// How many lookups of a node the kernel forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookups {
    /// The node.
    pub node: u64,
    /// How many.
    pub count: u64,
}

/// A range of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The open file.
    pub handle: u64,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u32,
    /// Set when the page cache asks: then the bytes go where they are, also in a file that is open
    /// to append.
    pub is_cached: bool,
    /// Set when its descriptor has `O_APPEND` now.
    pub appends: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// `O_*` bits.
    pub flags: u32,
    /// Permission bits of a file that is made, without those of the caller's umask.
    pub mode: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The present.
    Now,
    /// Seconds and nanoseconds.
    At(i64, u32),
}

/// Attributes to set; `None`: leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `struct stat`")]
pub struct Changes {
    /// The open file by which they are set.
    pub handle: Option<u64>,
    pub mode: Option<u32>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<Time>,
    pub modified: Option<Time>,
}

/// The call that a request makes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after its call; see `linux/fuse.h`")]
pub enum Operation {
    Initialise {
        major: u32,
        minor: u32,
        readahead_max: u32,
        flags: u64,
    },
    Destroy,
    /// No reply.
    Forget(Vec<Lookups>),
    /// Stop waiting for another request. No reply.
    Interrupt {
        unique: u64,
    },
    Lookup {
        name: CString,
    },
    GetAttributes {
        handle: Option<u64>,
    },
    SetAttributes(Changes),
    ReadLink,
    Symlink {
        name: CString,
        text: CString,
    },
    MakeNode {
        name: CString,
        mode: u32,
    },
    MakeFolder {
        name: CString,
        mode: u32,
    },
    Unlink {
        name: CString,
    },
    RemoveFolder {
        name: CString,
    },
    Rename {
        name: CString,
        to_folder: u64,
        to_name: CString,
        flags: u32,
    },
    Link {
        node: u64,
        name: CString,
    },
    Open(Open),
    Create {
        name: CString,
        open: Open,
    },
    Read(Transfer),
    /// The data lies behind [`WRITE_HEADER_LEN`] bytes.
    Write(Transfer),
    /// A descriptor of an open file was closed; others may be left.
    Flush {
        handle: u64,
        owner: u64,
    },
    Release {
        handle: u64,
    },
    Sync {
        handle: u64,
        data_only: bool,
    },
    FileSystem,
    Access {
        mode: u32,
    },
    OpenFolder,
    ReadFolder(Transfer),
    ReleaseFolder {
        handle: u64,
    },
    SyncFolder,
    FindLock {
        handle: u64,
        owner: u64,
        lock: Lock,
        is_whole: bool,
    },
    SetLock {
        handle: u64,
        owner: u64,
        lock: Lock,
        is_whole: bool,
        waits: bool,
    },
    Allocate {
        handle: u64,
        at: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        handle: u64,
        at: u64,
        whence: u32,
    },
    /// One of this number, which is not known here.
    Unknown(u32),
}

impl Request {
    /// The request that `bytes` begin with; `None` when they are too few for it.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (_len, opcode) = (reader.half()?, reader.half()?);
        let header = Header {
            unique: reader.word()?,
            node: reader.word()?,
            user: reader.half()?,
            group: reader.half()?,
            process: reader.half()?,
        };
        reader.half()?;
        let operation = names(opcode, &header, &mut reader)?;
        Some(Self { header, operation })
    }
}

/// Requests about names, and others that bring no handle.
fn names(opcode: u32, header: &Header, reader: &mut Reader<'_>) -> Option<Operation> {
    let name = |reader: &mut Reader<'_>| reader.text().map(CString::from);
    Some(match opcode {
        1 => Operation::Lookup { name: name(reader)? },
        2 => Operation::Forget(vec![Lookups { node: header.node, count: reader.word()? }]),
        5 => Operation::ReadLink,
        6 => Operation::Symlink { name: name(reader)?, text: name(reader)? },
        8 => {
            let mode = reader.half()?;
            // Device, umask, and padding.
            reader.skip::<12>()?;
            Operation::MakeNode { mode, name: name(reader)? }
        }
        9 => {
            let mode = reader.half()?;
            reader.half()?;
            Operation::MakeFolder { mode, name: name(reader)? }
        }
        10 => Operation::Unlink { name: name(reader)? },
        11 => Operation::RemoveFolder { name: name(reader)? },
        12 | 45 => {
            let to_folder = reader.word()?;
            let flags = if opcode == 45 { reader.half()? } else { 0 };
            if opcode == 45 {
                reader.half()?;
            }
            Operation::Rename { to_folder, flags, name: name(reader)?, to_name: name(reader)? }
        }
        13 => Operation::Link { node: reader.word()?, name: name(reader)? },
        17 => Operation::FileSystem,
        26 => {
            let (major, minor) = (reader.half()?, reader.half()?);
            // What the first versions say ends here, and they are refused.
            let (readahead_max, low) =
                (reader.half().unwrap_or_default(), reader.half().unwrap_or_default());
            let flags = u64::from(low) | u64::from(reader.half().unwrap_or_default()) << 32;
            Operation::Initialise { major, minor, readahead_max, flags }
        }
        27 => Operation::OpenFolder,
        30 => Operation::SyncFolder,
        34 => Operation::Access { mode: reader.half()? },
        35 => {
            let (flags, mode) = (reader.half()?, reader.half()?);
            // Umask and flags of the open.
            reader.skip::<8>()?;
            Operation::Create { open: Open { flags, mode }, name: name(reader)? }
        }
        36 => Operation::Interrupt { unique: reader.word()? },
        38 => Operation::Destroy,
        42 => {
            let count = reader.half()?;
            reader.half()?;
            let one = |_| Some(Lookups { node: reader.word()?, count: reader.word()? });
            Operation::Forget((0..count).map_while(one).collect())
        }
        _ => return files(opcode, reader),
    })
}

/// Requests about open files.
fn files(opcode: u32, reader: &mut Reader<'_>) -> Option<Operation> {
    Some(match opcode {
        3 => {
            let flags = reader.half()?;
            reader.half()?;
            let handle = reader.word()?;
            Operation::GetAttributes { handle: (flags & GETATTR_HANDLE != 0).then_some(handle) }
        }
        4 => Operation::SetAttributes(Changes::decode(reader)?),
        14 => Operation::Open(Open { flags: reader.half()?, mode: 0 }),
        15 => Operation::Read(transfer(reader)?),
        16 => Operation::Write(transfer(reader)?),
        18 => Operation::Release { handle: reader.word()? },
        20 => {
            let handle = reader.word()?;
            Operation::Sync { handle, data_only: reader.half()? & SYNC_DATA != 0 }
        }
        25 => {
            let handle = reader.word()?;
            reader.word()?;
            Operation::Flush { handle, owner: reader.word()? }
        }
        28 => Operation::ReadFolder(transfer(reader)?),
        29 => Operation::ReleaseFolder { handle: reader.word()? },
        31..=33 => {
            let (handle, owner) = (reader.word()?, reader.word()?);
            let lock = Lock {
                start: reader.word()?,
                end: reader.word()?,
                kind: reader.half()?,
                process: reader.half()?,
            };
            let is_whole = reader.half()? & LOCK_WHOLE != 0;
            match opcode {
                31 => Operation::FindLock { handle, owner, lock, is_whole },
                _ => Operation::SetLock { handle, owner, lock, is_whole, waits: opcode == 33 },
            }
        }
        43 => Operation::Allocate {
            handle: reader.word()?,
            at: reader.word()?,
            len: reader.word()?,
            mode: reader.half()?,
        },
        46 => {
            Operation::Seek { handle: reader.word()?, at: reader.word()?, whence: reader.half()? }
        }
        unknown => Operation::Unknown(unknown),
    })
}

fn transfer(reader: &mut Reader<'_>) -> Option<Transfer> {
    let (handle, at, len) = (reader.word()?, reader.word()?, reader.half()?);
    let is_cached = reader.half()? & WRITE_CACHE != 0;
    let (_owner, flags) = (reader.word()?, reader.half()?);
    let appends = flags & O_APPEND != 0;
    Some(Transfer { handle, at, len, is_cached, appends })
}

impl Changes {
    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let valid = reader.half()?;
        reader.half()?;
        let has = |bit: u32| valid & 1 << bit != 0;
        let (handle, size, _owner) = (reader.word()?, reader.word()?, reader.word()?);
        let seconds = [reader.word()?, reader.word()?, reader.word()?].map(signed);
        let nanoseconds = [reader.half()?, reader.half()?, reader.half()?];
        let (mode, _) = (reader.half()?, reader.half()?);
        let (user, group) = (reader.half()?, reader.half()?);
        let time = |index: usize, bit: u32, now: u32| {
            let at = Time::At(*seconds.get(index)?, *nanoseconds.get(index)?);
            has(bit).then_some(if has(now) { Time::Now } else { at })
        };
        Some(Self {
            handle: has(6).then_some(handle),
            mode: has(0).then_some(mode),
            user: has(1).then_some(user),
            group: has(2).then_some(group),
            size: has(3).then_some(size),
            accessed: time(0, 4, 7),
            modified: time(1, 5, 8),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Writer;

    /// A request as the kernel lays it out.
    fn sent(opcode: u32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.half(0).half(opcode).word(7).word(5).half(1000).half(100).half(42).half(0);
        body(&mut writer);
        writer.0
    }

    #[test]
    fn request_is_decoded_as_the_kernel_lays_it_out() {
        let bytes = sent(1, |writer| writer.0.extend(b"name\0"));
        let header = Header { unique: 7, node: 5, user: 1000, group: 100, process: 42 };
        let operation = Operation::Lookup { name: c"name".into() };
        assert_eq!(Request::decode(&bytes), Some(Request { header, operation }));

        let bytes = sent(45, |writer| {
            writer.word(9).half(2).half(0).0.extend(b"from\0to\0");
        });
        let (name, to_name) = (c"from".into(), c"to".into());
        let operation = Operation::Rename { name, to_folder: 9, to_name, flags: 2 };
        assert_eq!(Request::decode(&bytes).map(|found| found.operation), Some(operation));

        let bytes = sent(16, |writer| {
            writer.word(3).word(4096).half(5).half(1).word(0);
            writer.half(O_APPEND).half(0).0.extend(b"12345");
        });
        let write = Transfer { handle: 3, at: 4096, len: 5, is_cached: true, appends: true };
        let operation = Operation::Write(write);
        assert_eq!(Request::decode(&bytes).map(|found| found.operation), Some(operation));
        assert_eq!(bytes.get(WRITE_HEADER_LEN..), Some(&b"12345"[..]));
    }

    #[test]
    fn attributes_to_set_are_those_whose_bits_are_set() {
        let bytes = sent(4, |writer| {
            writer.half(1 << 3 | 1 << 5 | 1 << 6).half(0).word(11).word(99).word(0);
            writer.word(1).word(2).word(3).half(4).half(5).half(6).half(0o600).half(0);
            writer.half(1).half(2).half(0);
        });
        let Some(Operation::SetAttributes(changes)) =
            Request::decode(&bytes).map(|found| found.operation)
        else {
            panic!("another operation");
        };
        let modified = Some(Time::At(2, 5));
        let (handle, size) = (Some(11), Some(99));
        assert_eq!(changes, Changes { handle, size, modified, ..Changes::default() });
    }

    #[test]
    fn request_that_is_cut_short_is_refused() {
        let bytes = sent(15, |writer| {
            writer.word(3).word(4096).half(5).half(0).word(0).half(0);
        });
        assert!(Request::decode(&bytes).is_some());
        for len in 0..bytes.len() {
            assert_eq!(bytes.get(..len).and_then(Request::decode), None, "{len}");
        }
    }
}
