//! The requests a lane carries, and how each lies in an entry (`docs/reference/protocol.md`,
//! section 3).

mod kinds;

use crate::{
    entry::{Entry, Invalid},
    kind::Kind,
    uses::Uses,
    words::{narrow, signed, unsigned},
};

/// Two paths one after the other in the lane's buffer, lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPair {
    /// The existing name: source of a rename or link, text of a symbolic link.
    pub from_len: u32,
    /// The new name.
    pub to_len: u32,
}

/// A request as decoded from an entry. `file` is a file slot of the session; lengths and offsets
/// are bytes; `arena_at` counts from the start of the session's arena; paths are absolute, without
/// a final NUL, at the start of the lane's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens a path into file slot `file`; completes with the file's
    /// [`FileFlags`](crate::FileFlags) bits. `flags` are those of `open(2)`, `mode` is a
    /// [`NewMode`](crate::NewMode).
    Open {
        /// Slot to fill.
        file: u32,
        /// `O_*` bits.
        flags: u32,
        /// Permission bits of a created file.
        mode: u32,
        /// Length of the path.
        path_len: u32,
        /// Zero; or the number of a file that the client has made by its bundle, in the multifile
        /// that the path leads to: it is opened, whatever it is called, and nothing more is done to
        /// it by the bundle.
        inode: u64,
    },
    /// Drains the file and lets go of its descriptor; the error it still owes is in its slot.
    Close {
        /// Slot to empty.
        file: u32,
    },
    /// Reads into the arena; completes with the bytes read.
    Read {
        /// Slot.
        file: u32,
        /// First byte in the file.
        at: u64,
        /// Bytes wanted.
        len: u32,
        /// Where they go.
        arena_at: u64,
    },
    /// Writes from the arena, past the staging log; completes with the bytes written.
    Write {
        /// Slot.
        file: u32,
        /// First byte in the file; ignored for a file opened to append.
        at: u64,
        /// Bytes to write.
        len: u32,
        /// Where they lie.
        arena_at: u64,
    },
    /// Drains every file of the session.
    FlushAll,
    /// Drains the file and makes data and metadata durable.
    Sync {
        /// Slot.
        file: u32,
    },
    /// Drains the file and makes the data durable.
    Datasync {
        /// Slot.
        file: u32,
    },
    /// Resolves `whence` against the drained file; completes with the position from its start.
    SetPosition {
        /// Slot.
        file: u32,
        /// Offset, as in `lseek(2)`.
        offset: i64,
        /// `SEEK_SET`, `SEEK_END`, `SEEK_DATA`, or `SEEK_HOLE`.
        whence: u32,
    },
    /// Drains the file's staging log up to log position `upto`.
    Flush {
        /// Slot.
        file: u32,
        /// Log position, as the client counts it.
        upto: u64,
    },
    /// Replaces the file's drained staging log.
    Attach {
        /// Slot.
        file: u32,
        /// Start of the new log.
        arena_at: u64,
        /// Its length: a power of two.
        len: u64,
    },
    /// Drains every file open on an inode, whoever opened it, and demotes them where two are and
    /// one writes.
    Settle {
        /// Device number as `stat(2)` gives it.
        device: u64,
        /// Inode number.
        inode: u64,
        /// True if they are demoted in any case: for somebody whom the daemon does not know.
        demote: bool,
    },
    /// Brings a range into the page cache, and reads ahead of it.
    Fetch {
        /// Slot.
        file: u32,
        /// First byte.
        at: u64,
        /// Bytes somebody waits for.
        len: u32,
    },
    /// Drains a file of this node and sends the daemon's own descriptor over the control socket.
    Materialize {
        /// Slot.
        file: u32,
    },
    /// Puts the path of a remote file, by which it can be opened in its folder's view, into the
    /// lane's buffer. Completes with the path's length.
    Name {
        /// Slot.
        file: u32,
    },
    /// Puts the `struct stat` of a path into the lane's buffer.
    Stat {
        /// Length of the path.
        path_len: u32,
        /// True if a final symbolic link is followed.
        follow: bool,
    },
    /// Puts the `struct stat` of the drained file into the lane's buffer.
    FileStat {
        /// Slot.
        file: u32,
    },
    /// Drains and truncates: the file in slot `file`, or the path when `path_len` is not zero.
    Truncate {
        /// Slot, when there is no path.
        file: u32,
        /// Length of the path, or zero.
        path_len: u32,
        /// New length of the file.
        len: u64,
    },
    /// Removes a name.
    Unlink {
        /// Length of the path.
        path_len: u32,
    },
    /// Renames, `flags` as in `renameat2(2)`.
    Rename {
        /// The two names.
        paths: PathPair,
        /// `RENAME_*` bits.
        flags: u32,
    },
    /// Makes a folder.
    MakeDir {
        /// Length of the path.
        path_len: u32,
        /// A [`NewMode`](crate::NewMode).
        mode: u32,
    },
    /// Removes an empty folder.
    RemoveDir {
        /// Length of the path.
        path_len: u32,
    },
    /// Fills the lane's buffer with the place where the next such request goes on, and the folder's
    /// names, NUL after each; completes with the bytes used, zero after the last name.
    ReadDir {
        /// Length of the path.
        path_len: u32,
        /// Zero, or where the last request has ended.
        from: u64,
    },
    /// Makes a hard link.
    Link {
        /// The two names.
        paths: PathPair,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Text of the link, and its name.
        paths: PathPair,
    },
    /// Puts the text of a symbolic link into the lane's buffer; completes with its length.
    ReadLink {
        /// Length of the path.
        path_len: u32,
    },
    /// Sets the permission bits: of the file in slot `file`, or of the path when `path_len` is not
    /// zero.
    SetMode {
        /// Slot, when there is no path.
        file: u32,
        /// Length of the path, or zero.
        path_len: u32,
        /// Permission bits.
        mode: u32,
    },
    /// Sets owner and group, of a slot or a path as `SetMode`; 2^32-1 leaves one as it is.
    SetOwner {
        /// Slot, when there is no path.
        file: u32,
        /// Length of the path, or zero.
        path_len: u32,
        /// User id.
        user: u32,
        /// Group id.
        group: u32,
        /// True if a final symbolic link is followed.
        follow: bool,
    },
    /// Sets the times of access and modification, of a slot or a path as `SetMode`. Behind the path
    /// lie seconds and nanoseconds of both, 8 bytes each; nanoseconds as in `utimensat(2)`.
    SetTimes {
        /// Slot, when there is no path.
        file: u32,
        /// Length of the path, or zero.
        path_len: u32,
        /// True if a final symbolic link is followed.
        follow: bool,
    },
    /// Asks what may be done with a path: `mode` as in `access(2)`.
    Access {
        /// Length of the path.
        path_len: u32,
        /// `R_OK`, `W_OK`, `X_OK`.
        mode: u32,
    },
    /// Puts eight words about the file system of a slot or a path, as `SetMode`, into the lane's
    /// buffer: block size, blocks, free blocks, blocks free to anybody, inodes, free inodes,
    /// longest name, type.
    FileSystem {
        /// Slot, when there is no path.
        file: u32,
        /// Length of the path, or zero.
        path_len: u32,
    },
    /// Makes the names in a folder durable.
    SyncFolder {
        /// Length of the path.
        path_len: u32,
    },
    /// Has the client make files in a folder by its bundle, and read those that are there: puts the
    /// folder's status into the lane's buffer, and behind it the first of the inode numbers that it
    /// may give, their count (0: it makes none), the epoch of folders for which this holds, and the
    /// key that names are hashed with.
    Lease {
        /// Length of the path.
        path_len: u32,
        /// The session that asks; the daemon puts it in.
        session: u32,
        /// Purpose of the lease.
        uses: Uses,
    },
    /// Sends a descriptor over the control socket: the table of places, or one of the files that it
    /// names, to be read.
    Share {
        /// 0: the table; else the file's number plus one.
        number: u32,
    },
    /// Locks a range of the file, or unlocks it, after what is staged for it by anybody of the
    /// node. `terms` as [`LockTerms`](crate::LockTerms) has them.
    Lock {
        /// Slot.
        file: u32,
        /// Owner and kind of the lock.
        terms: u32,
        /// First byte.
        start: u64,
        /// Bytes; zero: all from `start` on.
        len: u64,
    },
    /// Looks for a lock that stands in the way of this one; completes with 0 when there is none, or
    /// with 1 and three words in the lane's buffer: its kind, its first byte, and its length.
    FindLock {
        /// Slot.
        file: u32,
        /// Owner and kind of the lock.
        terms: u32,
        /// First byte.
        start: u64,
        /// Bytes; zero: all from `start` on.
        len: u64,
    },
    /// Drains, and changes which bytes of the file have space, as `fallocate(2)`.
    Allocate {
        /// Slot.
        file: u32,
        /// `FALLOC_FL_*` bits.
        mode: u32,
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Does nothing: what a request costs (`kakehi bench delegate`, overhead rows). To a server of
    /// remote files it says that all locks have been asked for again.
    Nothing,
}

impl Request {
    /// Encodes the request. The lane it goes to numbers the entry.
    #[must_use]
    pub fn encode(&self) -> Entry {
        let mut entry = Entry::new(self.kind() as u8);
        match *self {
            Self::Open { file, flags, mode, path_len, inode } => {
                entry.set_file(file).set_len(path_len).set_pair(flags, mode).set_b(inode)
            }
            Self::Close { file }
            | Self::Sync { file }
            | Self::Datasync { file }
            | Self::FileStat { file }
            | Self::Materialize { file }
            | Self::Name { file } => entry.set_file(file),
            Self::Read { file, at, len, arena_at } | Self::Write { file, at, len, arena_at } => {
                entry.set_file(file).set_len(len).set_a(at).set_b(arena_at)
            }
            Self::FlushAll | Self::Nothing => &mut entry,
            Self::SetPosition { file, offset, whence } => {
                entry.set_file(file).set_len(whence).set_a(unsigned(offset))
            }
            Self::Flush { file, upto } => entry.set_file(file).set_a(upto),
            Self::Attach { file, arena_at, len } => entry.set_file(file).set_a(arena_at).set_b(len),
            Self::Lock { file, terms, start, len } | Self::FindLock { file, terms, start, len } => {
                entry.set_file(file).set_len(terms).set_a(start).set_b(len)
            }
            Self::Allocate { file, mode, at, len } => {
                entry.set_file(file).set_len(mode).set_a(at).set_b(len)
            }
            Self::Settle { device, inode, demote } => {
                entry.set_a(device).set_b(inode).set_len(u32::from(demote))
            }
            Self::Fetch { file, at, len } => entry.set_file(file).set_len(len).set_a(at),
            Self::Stat { path_len, follow } => {
                entry.set_len(path_len).set_pair(u32::from(follow), 0)
            }
            Self::Truncate { file, path_len, len } => {
                entry.set_file(file).set_len(path_len).set_a(len)
            }
            Self::Unlink { path_len }
            | Self::RemoveDir { path_len }
            | Self::ReadLink { path_len }
            | Self::SyncFolder { path_len } => entry.set_len(path_len),
            Self::Share { number } => entry.set_a(u64::from(number)),
            Self::Lease { path_len, session, uses } => {
                entry.set_len(path_len).set_a(u64::from(session)).set_b(uses.encode())
            }
            Self::FileSystem { file, path_len } => entry.set_file(file).set_len(path_len),
            Self::SetMode { file, path_len, mode } => {
                entry.set_file(file).set_len(path_len).set_pair(mode, 0)
            }
            Self::SetOwner { file, path_len, user, group, follow } => {
                let entry = entry.set_file(file).set_len(path_len);
                entry.set_pair(user, group).set_b(u64::from(follow))
            }
            Self::SetTimes { file, path_len, follow } => {
                entry.set_file(file).set_len(path_len).set_b(u64::from(follow))
            }
            Self::Access { path_len, mode } => entry.set_len(path_len).set_pair(mode, 0),
            Self::Rename { paths, flags } => {
                entry.set_pair(paths.from_len, paths.to_len).set_len(flags)
            }
            Self::MakeDir { path_len, mode } => entry.set_len(path_len).set_pair(mode, 0),
            Self::ReadDir { path_len, from } => entry.set_len(path_len).set_a(from),
            Self::Link { paths } | Self::Symlink { paths } => {
                entry.set_pair(paths.from_len, paths.to_len)
            }
        };
        entry
    }

    /// Decodes an entry that was copied out of the segment.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when the kind is unknown. Slots, lengths, and offsets are checked by whoever
    /// knows the session's limits.
    pub fn decode(entry: &Entry) -> Result<Self, Invalid> {
        let (file, len) = (entry.file(), entry.len());
        let (first, second) = entry.pair();
        let paths = PathPair { from_len: first, to_len: second };
        let is_set = entry.b() != 0;
        Ok(match Kind::from_wire(entry.kind())? {
            Kind::Open => {
                let inode = entry.b();
                Self::Open { file, flags: first, mode: second, path_len: len, inode }
            }
            Kind::Close => Self::Close { file },
            Kind::Read => Self::Read { file, at: entry.a(), len, arena_at: entry.b() },
            Kind::Write => Self::Write { file, at: entry.a(), len, arena_at: entry.b() },
            Kind::FlushAll => Self::FlushAll,
            Kind::Sync => Self::Sync { file },
            Kind::Datasync => Self::Datasync { file },
            Kind::SetPosition => Self::SetPosition { file, offset: signed(entry.a()), whence: len },
            Kind::Flush => Self::Flush { file, upto: entry.a() },
            Kind::Attach => Self::Attach { file, arena_at: entry.a(), len: entry.b() },
            Kind::Settle => Self::Settle { device: entry.a(), inode: entry.b(), demote: len != 0 },
            Kind::Fetch => Self::Fetch { file, at: entry.a(), len },
            Kind::Materialize => Self::Materialize { file },
            Kind::Stat => Self::Stat { path_len: len, follow: first != 0 },
            Kind::FileStat => Self::FileStat { file },
            Kind::Name => Self::Name { file },
            Kind::Truncate => Self::Truncate { file, path_len: len, len: entry.a() },
            Kind::Unlink => Self::Unlink { path_len: len },
            Kind::Rename => Self::Rename { paths, flags: len },
            Kind::MakeDir => Self::MakeDir { path_len: len, mode: first },
            Kind::RemoveDir => Self::RemoveDir { path_len: len },
            Kind::ReadDir => Self::ReadDir { path_len: len, from: entry.a() },
            Kind::Link => Self::Link { paths },
            Kind::Symlink => Self::Symlink { paths },
            Kind::Nothing => Self::Nothing,
            Kind::Allocate => Self::Allocate { file, mode: len, at: entry.a(), len: entry.b() },
            Kind::Lock => Self::Lock { file, terms: len, start: entry.a(), len: entry.b() },
            Kind::FindLock => Self::FindLock { file, terms: len, start: entry.a(), len: entry.b() },
            Kind::ReadLink => Self::ReadLink { path_len: len },
            Kind::SetMode => Self::SetMode { file, path_len: len, mode: first },
            Kind::SetOwner => {
                Self::SetOwner { file, path_len: len, user: first, group: second, follow: is_set }
            }
            Kind::SetTimes => Self::SetTimes { file, path_len: len, follow: is_set },
            Kind::Access => Self::Access { path_len: len, mode: first },
            Kind::FileSystem => Self::FileSystem { file, path_len: len },
            Kind::SyncFolder => Self::SyncFolder { path_len: len },
            Kind::Share => Self::Share { number: narrow(entry.a()) },
            Kind::Lease => {
                let uses = Uses::decode(entry.b());
                Self::Lease { path_len: len, session: narrow(entry.a()), uses }
            }
        })
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
