//! The requests a lane carries, and how each lies in an entry (`docs/reference/protocol.md`,
//! section 3): one table, from which requests, their kinds, numbers, and names, and what encodes
//! and decodes them are made.

mod field;

use self::field::{EntryPart, Field};
use crate::{
    entry::{Entry, Invalid},
    lease::Uses,
};

/// Two paths one after the other in the lane's buffer, lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPair {
    /// The existing name: source of a rename or link, text of a symbolic link.
    pub from_len: u32,
    /// The new name.
    pub to_len: u32,
}

/// Subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole session.
    Session,
    /// The open file in a slot.
    File(u32),
    /// The paths that came with it.
    Names,
}

/// Effect of sending a request to a server of remote files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// No server is asked for it.
    Here,
    /// It is executed again.
    Anew,
    /// The answer that was given is given again, as long as the same server lives.
    Kept,
    /// The same, of one that changes a file, though it may be executed twice.
    Changes,
    /// It changes names or a length. If it must not be executed twice a record says that it was.
    Recorded,
}

/// Fields of a request that tell its subject.
#[derive(Clone, Copy)]
struct Found {
    slot: u32,
    paths_len: Option<u64>,
}

/// Makes the requests of a table. A row has the number on the wire, the name in statistics, how
/// often the daemon answers, the subject (`either`: names, or a file where there is no path), and
/// its [`Replay`]; and for each field the place where it lies in an entry.
macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $kind:ident = $number:literal, $name:literal, $answers:ident, $subject:ident, $again:ident
        $({$(
            $(#[$field_doc:meta])*
            $field:ident: $type:ty = $place:ident,
        )*})?;
    )*) => {
        /// Kind of a request, as numbered on the wire. The first eight are those of Fukazawa et
        /// al. (2012), table 3.
        ///
        /// Retired numbers stay reserved.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each kind is described at its `Request`")]
        pub enum Kind { $($kind = $number,)* }

        impl Kind {
            /// Every kind, in wire order.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$kind),*];

            /// One more than the highest number: the length of a table by number.
            pub const NUMBERS: usize = {
                let numbers: &[usize] = &[$($number),*];
                match numbers {
                    [.., last] => *last + 1,
                    [] => 0,
                }
            };

            /// True if the daemon answers twice: ACKNOWLEDGED before COMPLETED. Once, if the
            /// request takes no I/O.
            #[must_use]
            pub const fn is_acknowledged(self) -> bool {
                match self { $(Self::$kind => requests!(@ $answers),)* }
            }

            /// The name used in statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }

        /// A request as decoded from an entry. `file` is a file slot of the session, and counts
        /// only where `path_len`, the length of a path, is zero or missing; lengths and offsets
        /// are bytes; `at` and `start` are the first byte in the file; `arena_at` counts from the
        /// arena's start; paths are absolute, without NUL, perhaps behind a [`Base`](crate::Base),
        /// at the start of the lane's buffer, in `paths` two; `follow`: a final link is followed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "what fields of these names are is said above")]
        pub enum Request {$(
            $(#[$doc])*
            $kind $({$(
                $(#[$field_doc])*
                $field: $type,
            )*})?,
        )*}

        impl Request {
            /// The request's kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind { .. } => Kind::$kind,)* }
            }

            /// The subject of the request.
            #[must_use]
            pub const fn subject(&self) -> Subject {
                let found = self.found();
                match self { $(Self::$kind { .. } => requests!(@ $subject found),)* }
            }

            const fn found(&self) -> Found {
                let found = Found { slot: 0, paths_len: None };
                match *self {$(
                    Self::$kind { $($($field),*)? } => {
                        $($(let found = requests!(@ $field found $field);)*)?
                        found
                    }
                )*}
            }

            /// The effect of sending it again.
            #[must_use]
            pub const fn replay(&self) -> Replay {
                match self { $(Self::$kind { .. } => requests!(@ $again),)* }
            }

            /// Encodes the request. The lane it goes to numbers the entry.
            #[must_use]
            pub fn encode(&self) -> Entry {
                let mut entry = Entry::new(self.kind() as u8);
                match *self {$(
                    Self::$kind { $($($field),*)? } => {
                        $($(entry.put(EntryPart::$place, $field.word());)*)?
                    }
                )*}
                entry
            }

            /// Decodes an entry that was copied out of the segment.
            ///
            /// # Errors
            ///
            /// [`Invalid`] when the kind is unknown. Slots, lengths, and offsets are checked by
            /// whoever knows the session's limits.
            pub fn decode(entry: &Entry) -> Result<Self, Invalid> {
                Ok(match Kind::from_wire(entry.kind())? {$(
                    Kind::$kind => Self::$kind {
                        $($($field: Field::of(entry.get(EntryPart::$place)),)*)?
                    },
                )*})
            }
        }
    };
    (@ once) => { false };
    (@ twice) => { true };
    (@ here) => { Replay::Here };
    (@ anew) => { Replay::Anew };
    (@ kept) => { Replay::Kept };
    (@ changes) => { Replay::Changes };
    (@ recorded) => { Replay::Recorded };
    (@ session $found:ident) => { Subject::Session };
    (@ file $found:ident) => { Subject::File($found.slot) };
    (@ names $found:ident) => { Subject::Names };
    (@ either $found:ident) => {
        if let Some(0) = $found.paths_len { Subject::File($found.slot) } else { Subject::Names }
    };
    (@ file $found:ident $value:ident) => { Found { slot: $value, ..$found } };
    (@ path_len $found:ident $value:ident) => {
        Found { paths_len: Some($value as u64), ..$found }
    };
    (@ paths $found:ident $value:ident) => {
        Found { paths_len: Some($value.from_len as u64 + $value.to_len as u64), ..$found }
    };
    (@ $other:ident $found:ident $value:ident) => {{
        let _ = $value;
        $found
    }};
}

impl Request {
    /// Bytes of the paths that come with the request, if it is of those that have some.
    pub(crate) const fn paths_len(&self) -> Option<u64> {
        self.found().paths_len
    }
}

impl Kind {
    /// The kind numbered `number` on the wire.
    ///
    /// # Errors
    ///
    /// [`Invalid::Kind`] when no kind has that number.
    pub fn from_wire(number: u8) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number).ok_or(Invalid::Kind(number))
    }
}

requests! {
    /// Opens a path into file slot `file`; completes with the file's
    /// [`FileFlags`](crate::FileFlags) bits. `flags` are those of `open(2)`, `mode` is a
    /// [`NewMode`](crate::NewMode).
    Open = 1, "open", twice, names, recorded {
        file: u32 = File,
        /// `O_*` bits.
        flags: u32 = First,
        /// Permission bits of a created file.
        mode: u32 = Second,
        path_len: u32 = Len,
        /// Zero; or the number of a file that the client has made by its bundle, in the multifile
        /// that the path leads to: it is opened, whatever it is called, and nothing more is done to
        /// it by the bundle.
        inode: u64 = B,
    };
    /// Drains the file and lets go of its descriptor; the error it still owes is in its slot.
    Close = 2, "close", twice, file, kept {
        file: u32 = File,
    };
    /// Reads into the arena; completes with the bytes read.
    Read = 3, "read", twice, file, anew {
        file: u32 = File,
        /// First byte in the file.
        at: u64 = A,
        /// Bytes wanted.
        len: u32 = Len,
        /// Where they go.
        arena_at: u64 = B,
    };
    /// Writes from the arena, past the staging log; completes with the bytes written.
    Write = 4, "write", twice, file, changes {
        file: u32 = File,
        /// First byte in the file; ignored for a file opened to append.
        at: u64 = A,
        /// Bytes to write.
        len: u32 = Len,
        /// Where they lie.
        arena_at: u64 = B,
    };
    /// Drains every file of the session.
    FlushAll = 5, "flush_all", twice, session, here {
        /// True if those of all other sessions are drained, too.
        of_job: bool = Len,
    };
    /// Drains the file and makes data and metadata durable.
    Sync = 6, "fsync", twice, file, kept {
        file: u32 = File,
    };
    /// Drains the file and makes the data durable.
    Datasync = 7, "fdatasync", twice, file, kept {
        file: u32 = File,
    };
    /// Checks that the file can have a position, which is the client's; completes with it.
    SetPosition = 8, "set_position", twice, file, anew {
        file: u32 = File,
        /// Bytes from the start.
        at: u64 = A,
    };
    /// Drains the file's staging log up to log position `upto`.
    Flush = 9, "flush", twice, file, here {
        file: u32 = File,
        /// Log position, as the client counts it.
        upto: u64 = A,
    };
    /// Replaces the file's drained staging log.
    Attach = 10, "attach", twice, file, here {
        file: u32 = File,
        /// Start of the new log.
        arena_at: u64 = A,
        /// Its length: a power of two.
        len: u64 = B,
    };
    /// Drains every file open on an inode, whoever opened it, and demotes them where two are and
    /// one writes.
    Settle = 11, "settle", twice, session, here {
        /// Device number as `stat(2)` gives it.
        device: u64 = A,
        /// Inode number.
        inode: u64 = B,
        /// True if they are demoted in any case: for somebody whom the daemon does not know.
        demote: bool = Len,
    };
    /// Brings a range into the page cache, and reads ahead of it.
    Fetch = 12, "fetch", twice, file, here {
        file: u32 = File,
        at: u64 = A,
        /// Bytes somebody waits for.
        len: u32 = Len,
    };
    /// Drains a file of this node and sends the daemon's own descriptor over the control socket.
    Materialize = 13, "materialize", twice, file, here {
        file: u32 = File,
    };
    /// Puts the `struct stat` of a path into the lane's buffer.
    Stat = 14, "stat", twice, names, anew {
        path_len: u32 = Len,
        follow: bool = First,
    };
    /// Drains and truncates: the file in slot `file`, or the path when `path_len` is not zero.
    Truncate = 15, "truncate", twice, either, recorded {
        file: u32 = File,
        path_len: u32 = Len,
        /// New length of the file.
        len: u64 = A,
    };
    /// Removes a name.
    Unlink = 16, "unlink", twice, names, recorded {
        path_len: u32 = Len,
    };
    /// Renames, `flags` as in `renameat2(2)`.
    Rename = 17, "rename", twice, names, recorded {
        paths: PathPair = Pair,
        /// `RENAME_*` bits.
        flags: u32 = Len,
    };
    /// Makes a folder.
    MakeDir = 18, "mkdir", twice, names, recorded {
        path_len: u32 = Len,
        /// A [`NewMode`](crate::NewMode).
        mode: u32 = First,
    };
    /// Removes an empty folder.
    RemoveDir = 19, "rmdir", twice, names, recorded {
        path_len: u32 = Len,
    };
    /// Fills the lane's buffer with the place where the next such request goes on, and the folder's
    /// names, NUL after each; completes with the bytes used, zero after the last name.
    ReadDir = 20, "readdir", twice, names, anew {
        path_len: u32 = Len,
        /// Zero, or where the last request has ended.
        from: u64 = A,
    };
    /// Makes a hard link.
    Link = 21, "link", twice, names, recorded {
        paths: PathPair = Pair,
    };
    /// Makes a symbolic link.
    Symlink = 22, "symlink", twice, names, recorded {
        /// Text of the link, and its name.
        paths: PathPair = Pair,
    };
    /// Puts the `struct stat` of the drained file into the lane's buffer.
    FileStat = 23, "fstat", twice, file, anew {
        file: u32 = File,
    };
    /// Does nothing: what a request costs (`kakehi bench delegate`, overhead rows).
    Nothing = 24, "nothing", once, session, here;
    /// Puts the text of a symbolic link into the lane's buffer; completes with its length.
    ReadLink = 25, "readlink", twice, names, anew {
        path_len: u32 = Len,
    };
    /// Sets the permission bits: of the file in slot `file`, or of the path when `path_len` is not
    /// zero.
    SetMode = 26, "chmod", twice, either, changes {
        file: u32 = File,
        path_len: u32 = Len,
        /// Permission bits.
        mode: u32 = First,
    };
    /// Sets owner and group, of a slot or a path as `SetMode`; 2^32-1 leaves one as it is.
    SetOwner = 27, "chown", twice, either, changes {
        file: u32 = File,
        path_len: u32 = Len,
        /// User id.
        user: u32 = First,
        /// Group id.
        group: u32 = Second,
        follow: bool = B,
    };
    /// Sets the times of access and modification, of a slot or a path as `SetMode`. Behind the path
    /// lie seconds and nanoseconds of both, 8 bytes each; nanoseconds as in `utimensat(2)`.
    SetTimes = 28, "utimens", twice, either, changes {
        file: u32 = File,
        path_len: u32 = Len,
        follow: bool = B,
    };
    /// Asks what may be done with a path: `mode` as in `access(2)`.
    Access = 29, "access", twice, names, anew {
        path_len: u32 = Len,
        /// `R_OK`, `W_OK`, `X_OK`.
        mode: u32 = First,
    };
    /// Puts eight words about the file system of a slot or a path, as `SetMode`, into the lane's
    /// buffer: block size, blocks, free blocks, blocks free to anybody, inodes, free inodes,
    /// longest name, type.
    FileSystem = 30, "statfs", twice, either, anew {
        file: u32 = File,
        path_len: u32 = Len,
    };
    /// Locks a range of the file, or unlocks it, after what is staged for it by anybody of the
    /// node. `terms` as [`LockTerms`](crate::LockTerms) has them.
    Lock = 32, "lock", twice, file, kept {
        file: u32 = File,
        /// Owner and kind of the lock.
        terms: u32 = Len,
        start: u64 = A,
        /// Bytes; zero: all from `start` on.
        len: u64 = B,
    };
    /// Looks for a lock that stands in the way of this one; completes with 0 when there is none, or
    /// with 1 and three words in the lane's buffer: its kind, its first byte, and its length.
    FindLock = 33, "find_lock", twice, file, anew {
        file: u32 = File,
        /// Owner and kind of the lock.
        terms: u32 = Len,
        start: u64 = A,
        /// Bytes; zero: all from `start` on.
        len: u64 = B,
    };
    /// Drains, and changes which bytes of the file have space, as `fallocate(2)`.
    Allocate = 35, "fallocate", twice, file, changes {
        file: u32 = File,
        /// `FALLOC_FL_*` bits.
        mode: u32 = Len,
        at: u64 = A,
        /// Bytes.
        len: u64 = B,
    };
    /// Makes the names in a folder durable.
    SyncFolder = 36, "fsync_folder", twice, names, anew {
        path_len: u32 = Len,
    };
    /// Has the client make files in a folder by its bundle, and read those that are there: puts the
    /// folder's status into the lane's buffer, and behind it the first of the inode numbers that it
    /// may give, their count (0: it makes none), the epoch of folders for which this holds, and the
    /// key that names are hashed with.
    Lease = 37, "lease", twice, names, anew {
        path_len: u32 = Len,
        /// The session that asks; the daemon puts it in.
        session: u32 = A,
        /// Purpose of the lease.
        uses: Uses = B,
    };
    /// Sends a descriptor over the control socket: the table of places, or one of the files that it
    /// names, to be read.
    Share = 38, "share", once, session, here {
        /// 0: the table; else the file's number plus one.
        number: u32 = A,
    };
    /// Puts the path of a remote file, by which it can be opened in its folder's view, into the
    /// lane's buffer. Completes with the path's length.
    Name = 39, "name", twice, file, here {
        file: u32 = File,
    };
    /// Drains the file; completes with its size.
    FindEnd = 40, "find_end", twice, file, here {
        file: u32 = File,
    };
    /// Drains the file; completes with the position of the first data from `at` on.
    FindData = 41, "find_data", twice, file, anew {
        file: u32 = File,
        /// Bytes from the start.
        at: u64 = A,
    };
    /// Drains the file; completes with the position of the first hole from `at` on.
    FindHole = 42, "find_hole", twice, file, anew {
        file: u32 = File,
        /// Bytes from the start.
        at: u64 = A,
    };
    /// Says to a server of remote files, after a new connection, that all locks have been asked for
    /// again.
    Reclaimed = 43, "reclaimed", once, session, anew;
    /// Makes the arena as long as there is memory for; completes with its length.
    Grow = 44, "grow", once, session, here;
    /// Drains the file, and has it written at its end from then on, or where each write says: as
    /// `O_APPEND` of `fcntl(F_SETFL)`.
    SetAppend = 45, "set_append", twice, file, anew {
        file: u32 = File,
        appends: bool = Len,
    };
    /// Drains the file and closes a duplicate of its descriptor: the file system may refuse what
    /// was written only then.
    CloseDuplicate = 46, "close_duplicate", twice, file, kept {
        file: u32 = File,
    };
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
