//! Replies to the kernel. Each begins with its length, so a message is made at once.

use crate::bytes::{Writer, unsigned, unsigned_half};

/// Bytes of the header of every reply.
pub const OUT_HEADER_LEN: usize = 16;

/// How the file system is served, as both sides know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of what the kernel may do, of those it has offered.
    pub flags: u64,
    /// Bytes it may read ahead.
    pub readahead_max: u32,
    /// Most bytes of one write.
    pub write_max: u32,
}

impl Settings {
    /// Many reads at a time.
    pub const ASYNC_READ: u64 = 1;
    /// Record locks come here.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// `O_TRUNC` comes with the open.
    pub const ATOMIC_TRUNCATE: u64 = 1 << 3;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Locks of `flock(2)` come here.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// Reads and writes of asynchronous I/O past the page cache need not wait for each other.
    pub const ASYNC_DIRECT: u64 = 1 << 15;
    /// Drop what is cached of a file whose size or time has changed.
    pub const INVALIDATE: u64 = 1 << 12;
    /// Lookups and listings in one folder at a time.
    pub const PARALLEL_FOLDERS: u64 = 1 << 18;
    /// Requests longer than 128 KiB.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// There are flags beyond 32 bits.
    pub const EXTENDED: u64 = 1 << 30;
    /// Files that bypass the page cache may be mapped and shared.
    pub const DIRECT_MAPS: u64 = 1 << 36;

    /// Bytes of a page as the length of a request counts them.
    const PAGE_LEN: u32 = 4096;
}

/// Of a file, as `stat(2)` tells it. Times in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `struct stat`")]
pub struct Attributes {
    pub inode: u64,
    pub size: u64,
    pub block_count: u64,
    pub accessed: (i64, u32),
    pub modified: (i64, u32),
    pub changed: (i64, u32),
    pub mode: u32,
    pub link_count: u32,
    pub user: u32,
    pub group: u32,
    pub special_device: u32,
    pub block_size: u32,
}

/// A lock of a range, as `fcntl(2)` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK`, or `F_UNLCK`.
    pub kind: u32,
    /// Process that has it; zero: one of another node.
    pub process: u32,
}

/// The header of a reply of `len` bytes beside it.
fn header(unique: u64, error: i32, len: usize) -> Writer {
    let mut writer = Writer(Vec::with_capacity(OUT_HEADER_LEN + len));
    let whole = u32::try_from(OUT_HEADER_LEN + len).unwrap_or(u32::MAX);
    writer.half(whole).half(unsigned_half(error)).word(unique);
    writer
}

fn message(unique: u64, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    body(&mut writer);
    let mut message = header(unique, 0, writer.0.len()).0;
    message.extend(writer.0);
    message
}

/// The request has failed, with this number.
#[must_use]
pub fn error(unique: u64, errno: i32) -> Vec<u8> {
    header(unique, -errno, 0).0
}

/// The request is done.
#[must_use]
pub fn empty(unique: u64) -> Vec<u8> {
    header(unique, 0, 0).0
}

/// The start of the reply to a read of `len` bytes, which follow.
#[must_use]
pub fn read_header(unique: u64, len: usize) -> Vec<u8> {
    header(unique, 0, len).0
}

/// A text, as of a link.
#[must_use]
pub fn text(unique: u64, text: &[u8]) -> Vec<u8> {
    message(unique, |writer| writer.0.extend(text))
}

/// The file system is served so, by version 7.`minor`.
#[must_use]
pub fn initialised(unique: u64, minor: u32, settings: Settings) -> Vec<u8> {
    let Settings { flags, readahead_max, write_max } = settings;
    let [low, high] = [flags, flags >> 32].map(|bits| u32::try_from(bits & 0xffff_ffff));
    let pages = write_max.div_ceil(Settings::PAGE_LEN) & 0xffff;
    message(unique, |writer| {
        writer.half(7).half(minor).half(readahead_max).half(low.unwrap_or_default());
        // How many requests may wait in the background, and how many slow that down: the kernel's
        // own choice.
        writer.half(0).half(write_max).half(1);
        // Two numbers of 16 bits: pages of a request, and the alignment of maps, which is none.
        let pages = if cfg!(target_endian = "big") { pages << 16 } else { pages };
        writer.half(pages).half(high.unwrap_or_default());
        writer.zeros(7);
    })
}

/// A name leads to `node`. Nothing of this may be kept.
#[must_use]
pub fn entry(unique: u64, node: u64, attributes: &Attributes) -> Vec<u8> {
    message(unique, |writer| put_entry(writer, node, attributes))
}

/// A file was made under a name, and is open. `is_direct`: its bytes are not to be cached.
#[must_use]
pub fn created(
    unique: u64,
    node: u64,
    attributes: &Attributes,
    handle: u64,
    is_direct: bool,
) -> Vec<u8> {
    message(unique, |writer| {
        put_entry(writer, node, attributes);
        writer.word(handle).half(is_direct.into()).half(0);
    })
}

/// A file is open.
#[must_use]
pub fn opened(unique: u64, handle: u64, is_direct: bool) -> Vec<u8> {
    message(unique, |writer| {
        writer.word(handle).half(is_direct.into()).half(0);
    })
}

/// A file's attributes. Nothing of this may be kept.
#[must_use]
pub fn attributes(unique: u64, attributes: &Attributes) -> Vec<u8> {
    message(unique, |writer| {
        writer.word(0).half(0).half(0);
        put_attributes(writer, attributes);
    })
}

/// So many bytes are written.
#[must_use]
pub fn written(unique: u64, len: u32) -> Vec<u8> {
    message(unique, |writer| {
        writer.half(len).half(0);
    })
}

/// A position in a file.
#[must_use]
pub fn position(unique: u64, at: u64) -> Vec<u8> {
    message(unique, |writer| {
        writer.word(at);
    })
}

/// A lock that is in the way, or none.
#[must_use]
pub fn locked(unique: u64, lock: Lock) -> Vec<u8> {
    message(unique, |writer| {
        writer.word(lock.start).word(lock.end).half(lock.kind).half(lock.process);
    })
}

/// The state of the file system: blocks, free ones, those free to anybody, inodes, free ones; bytes
/// of a block, and of the longest name.
#[must_use]
pub fn file_system(unique: u64, counts: [u64; 5], block_len: u32, name_len: u32) -> Vec<u8> {
    message(unique, |writer| {
        for count in counts {
            writer.word(count);
        }
        writer.half(block_len).half(name_len).half(block_len).half(0);
        writer.zeros(6);
    })
}

fn put_entry(writer: &mut Writer, node: u64, attributes: &Attributes) {
    writer.word(node).word(0).word(0).word(0).half(0).half(0);
    put_attributes(writer, attributes);
}

fn put_attributes(writer: &mut Writer, attributes: &Attributes) {
    let times = [attributes.accessed, attributes.modified, attributes.changed];
    writer.word(attributes.inode).word(attributes.size).word(attributes.block_count);
    for (seconds, _) in times {
        writer.word(unsigned(seconds));
    }
    for (_, nanoseconds) in times {
        writer.half(nanoseconds);
    }
    writer.half(attributes.mode).half(attributes.link_count).half(attributes.user);
    writer.half(attributes.group).half(attributes.special_device).half(attributes.block_size);
    writer.half(0);
}

/// Part of a listing that is being written.
#[derive(Debug)]
pub struct Names {
    bytes: Writer,
    room: usize,
}

impl Names {
    /// An empty one for at most `room` bytes.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { bytes: Writer::default(), room }
    }

    /// Adds a name of type `kind` (the bits of a mode), behind which the listing goes on at `next`;
    /// false: there is no room.
    pub fn push(&mut self, inode: u64, kind: u32, next: u64, name: &[u8]) -> bool {
        const HEADER_LEN: usize = 24;
        let len = (HEADER_LEN + name.len()).next_multiple_of(8);
        if self.bytes.0.len() + len > self.room {
            return false;
        }
        let end = self.bytes.0.len() + len;
        let name_len = u32::try_from(name.len()).unwrap_or_default();
        self.bytes.word(inode).word(next).half(name_len).half(kind >> 12);
        self.bytes.0.extend(name);
        self.bytes.0.resize(end, 0);
        true
    }

    /// The reply.
    #[must_use]
    pub fn reply(&self, unique: u64) -> Vec<u8> {
        text(unique, &self.bytes.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_lengths_of_the_kernels_structures() {
        let made = Attributes::default();
        let settings = Settings { flags: 0, readahead_max: 0, write_max: 1 << 20 };
        for (reply, len) in [
            (entry(1, 2, &made), 128),
            (attributes(1, &made), 104),
            (created(1, 2, &made, 3, true), 128 + 16),
            (opened(1, 2, false), 16),
            (written(1, 2), 8),
            (initialised(1, 31, settings), 64),
            (file_system(1, [0; 5], 4096, 255), 80),
            (locked(1, Lock::default()), 24),
            (position(1, 2), 8),
            (error(1, 2), 0),
        ] {
            assert_eq!(reply.len(), OUT_HEADER_LEN + len);
            assert_eq!(reply.first().copied().map(usize::from), Some(OUT_HEADER_LEN + len));
        }
    }

    #[test]
    fn listing_takes_no_name_beyond_its_room() {
        let mut names = Names::new(64);
        assert!(names.push(5, 0o040_000, 1, b"."));
        assert!(names.push(6, 0o100_000, 2, b"12345678"));
        assert!(!names.push(7, 0o100_000, 3, b"n"));
        let reply = names.reply(9);
        assert_eq!(reply.len(), OUT_HEADER_LEN + 32 + 32);
        assert_eq!(
            reply.get(OUT_HEADER_LEN + 24..OUT_HEADER_LEN + 32),
            Some(&b".\0\0\0\0\0\0\0"[..])
        );
    }
}
