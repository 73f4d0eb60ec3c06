//! Why an operation on a multifile failed, by who is at fault.
//!
//! Every value is plain numbers, so that a rank can send its error to the others unchanged and all
//! of them return the same one ([`Error::encode`], [`Error::decode`]).

use std::{error, fmt, io};

use crate::codec::{Fields, put_u32, put_u64};

/// The result of this crate's operations.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Values read that may be invalid.
pub(crate) trait Readable<T> {
    /// `None` of what is damaged or missing; what the storage refused may be whole.
    fn readable(self) -> Result<Option<T>>;
}

impl<T> Readable<T> for Result<T> {
    fn readable(self) -> Result<Option<T>> {
        match self {
            Err(error @ Error::Io { .. }) => Err(error),
            read => Ok(read.ok()),
        }
    }
}

/// A result of the storage, about a physical file.
pub(crate) trait OnFile<T> {
    /// Names the file in the error.
    fn on_file(self, number: u32) -> Result<T>;
}

impl<T> OnFile<T> for io::Result<T> {
    fn on_file(self, number: u32) -> Result<T> {
        self.map_err(|error| Error::io(number, &error))
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    Argument(Argument),
    /// The file contradicts the format or itself.
    Damaged {
        /// The damaged part.
        part: Part,
        /// Number of the physical file in its set.
        file: u32,
    },
    /// The file was never closed; [`Repair`](crate::Repair) makes it readable.
    Unclosed {
        /// Number of the physical file in its set.
        file: u32,
    },
    /// The storage refused an operation.
    Io {
        /// Number of the physical file in its set.
        file: u32,
        /// The system's error number, 0 when it gave none.
        os: i32,
        /// The kind of error, for those that come without a number.
        kind: io::ErrorKind,
    },
    /// An earlier write of this handle failed; its data is incomplete until written anew.
    Poisoned,
    /// An offset or a size does not fit 63 bits, or a count does not fit 31.
    TooLarge,
    /// A rank of the group is gone or its communication failed.
    Group {
        /// Error code of the communication layer.
        code: i32,
    },
    /// Another rank failed; every rank of the group returns this same error.
    OnRank {
        /// The lowest rank that failed.
        rank: u32,
        /// Cause of the failure.
        cause: Cause,
    },
}

/// Makes the variants of a table: each with its number, which ranks send each other, and its text.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),+];

            const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    )+};
}

reasons! {
    /// Invalid argument of the caller.
    Argument {
        /// The chunk holds no bytes, so nothing can be written to this task.
        ChunkEmpty = "the task's chunk size is 0: nothing can be written",
        /// More contiguous bytes asked for than a chunk holds.
        ChunkSmall = "more contiguous bytes asked for than a chunk holds",
        /// The file-system block size is zero or above 2^31 - 1.
        FsBlockLen = "the file-system block size must be positive",
        /// File numbers and local ranks do not form a set.
        Mapping = "file numbers and local ranks do not form a set",
        /// The name is longer than 1023 bytes.
        Name = "the name is longer than 1023 bytes",
        /// No such block, or no such position in it.
        Position = "no such block or position",
        /// No such key or record.
        Record = "no such key or record",
        /// The ranks passed different values where they must agree.
        Disagree = "the ranks passed different parameters",
        /// No such task.
        Task = "no such task",
        /// The packing cannot hold these tasks.
        Packing = "the packing cannot hold these tasks",
    }

    /// Part of a file that is wrong.
    Part {
        /// The first four bytes are not `sion`.
        Magic = "not a multifile",
        /// The byte-order word is none of the four known.
        ByteOrder = "unknown byte-order word",
        /// A format version this crate does not know.
        Version = "unknown format version",
        /// The file-system block size is not positive.
        FsBlockLen = "file-system block size is not positive",
        /// The number of tasks is negative or more than the file can describe.
        TaskCount = "number of tasks does not fit the file",
        /// The number of physical files, or this file's number among them.
        FileCount = "file number is outside its set",
        /// A chunk size is negative, or all together leave the file's range.
        ChunkLen = "chunk sizes are negative or too large",
        /// The block table: its place, a count, or a length beyond its chunk.
        Blocks = "block table is damaged",
        /// The table that maps tasks to physical files.
        Mapping = "mapping of tasks to files is damaged",
        /// A key-value record reaches beyond the end of its task.
        Record = "a key-value record is longer than its task",
        /// The file ends before data it should hold.
        Truncated = "the file ends inside its data",
        /// A chunk's data does not have its recorded checksum.
        Checksum = "data differs from its checksum",
        /// Members of a set differ where they must agree.
        Set = "members of the set do not belong together",
    }
}

/// The part of an [`Error`] that travels between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// As [`Error::Argument`].
    Argument(Argument),
    /// As [`Error::Damaged`].
    Damaged(Part, u32),
    /// As [`Error::Unclosed`].
    Unclosed(u32),
    /// As [`Error::Io`]: file number and the system's error number.
    Io(u32, i32),
    /// As [`Error::Poisoned`].
    Poisoned,
    /// As [`Error::TooLarge`].
    TooLarge,
    /// As [`Error::Group`].
    Group(i32),
}

impl Error {
    /// Length of an encoded error in bytes.
    pub const ENCODED_LEN: usize = 16;

    /// Names the storage's error with the physical file it happened on.
    #[must_use]
    pub fn io(file: u32, error: &io::Error) -> Self {
        Self::Io { file, os: error.raw_os_error().unwrap_or(0), kind: error.kind() }
    }

    /// Says where the error happened; an error that already says so stays as it is.
    #[must_use]
    pub const fn on_rank(self, rank: u32) -> Self {
        let cause = match self {
            Self::Argument(what) => Cause::Argument(what),
            Self::Damaged { part, file } => Cause::Damaged(part, file),
            Self::Unclosed { file } => Cause::Unclosed(file),
            Self::Io { file, os, .. } => Cause::Io(file, os),
            Self::Poisoned => Cause::Poisoned,
            Self::TooLarge => Cause::TooLarge,
            Self::Group { code } => Cause::Group(code),
            Self::OnRank { .. } => return self,
        };
        Self::OnRank { rank, cause }
    }

    /// The error in 16 bytes; all zero means none.
    #[must_use]
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let Self::OnRank { rank, cause } = self.on_rank(0) else {
            return [0; Self::ENCODED_LEN];
        };
        let (code, low, high) = match cause {
            Cause::Argument(what) => (1, what as u32, 0),
            Cause::Damaged(part, file) => (2, part as u32, file),
            Cause::Unclosed(file) => (3, file, 0),
            Cause::Io(file, os) => (4, u32::from_le_bytes(os.to_le_bytes()), file),
            Cause::Poisoned => (5, 0, 0),
            Cause::TooLarge => (6, 0, 0),
            Cause::Group(code) => (7, u32::from_le_bytes(code.to_le_bytes()), 0),
        };
        let mut bytes = Vec::with_capacity(Self::ENCODED_LEN);
        put_u32(&mut bytes, code);
        put_u32(&mut bytes, rank);
        put_u64(&mut bytes, u64::from(high) << 32 | u64::from(low));
        debug_assert_eq!(bytes.len(), Self::ENCODED_LEN, "an error has one length");
        bytes.try_into().unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for sixteen zeros.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::little(bytes);
        let (code, rank) = (fields.u32()?, fields.u32()?);
        let (low, high) = (fields.u32()?, fields.u32()?);
        let cause = match code {
            0 => return None,
            1 => Cause::Argument(*Argument::ALL.get(index(low))?),
            2 => Cause::Damaged(*Part::ALL.get(index(low))?, high),
            3 => Cause::Unclosed(low),
            4 => Cause::Io(high, i32::from_le_bytes(low.to_le_bytes())),
            5 => Cause::Poisoned,
            6 => Cause::TooLarge,
            _ => Cause::Group(i32::from_le_bytes(low.to_le_bytes())),
        };
        Some(Self::OnRank { rank, cause })
    }
}

impl From<Argument> for Error {
    fn from(what: Argument) -> Self {
        Self::Argument(what)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { os, .. } | Error::OnRank { cause: Cause::Io(_, os), .. } if os != 0 => {
                Self::from_raw_os_error(os)
            }
            Error::Io { kind, .. } => Self::new(kind, error),
            Error::Argument(_) => Self::new(io::ErrorKind::InvalidInput, error),
            Error::Damaged { .. } | Error::Unclosed { .. } => {
                Self::new(io::ErrorKind::InvalidData, error)
            }
            _ => Self::other(error),
        }
    }
}

impl error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OnRank { rank, cause } => write!(f, "rank {rank}: {cause}"),
            Self::Io { file, os: 0, kind } => write!(f, "physical file {file}: {kind}"),
            other => match other.on_rank(0) {
                Self::OnRank { cause, .. } => cause.fmt(f),
                _ => Ok(()),
            },
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Argument(what) => f.write_str(what.text()),
            Self::Damaged(part, file) => write!(f, "physical file {file}: {}", part.text()),
            Self::Unclosed(file) => {
                write!(f, "physical file {file} was never closed; repair makes it readable")
            }
            Self::Io(file, os) => {
                write!(f, "physical file {file}: {}", reason(os))
            }
            Self::Poisoned => f.write_str("an earlier write failed; the data is incomplete"),
            Self::TooLarge => f.write_str("sizes exceed what a multifile can hold"),
            Self::Group(code) => write!(f, "communication between ranks failed, code {code}"),
        }
    }
}

/// The kernel's reason for an error, without its number.
#[must_use]
pub fn reason(os: i32) -> String {
    let text = io::Error::from_raw_os_error(os).to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_travels_between_ranks_unchanged() {
        let mut errors: Vec<Error> = Argument::ALL.iter().copied().map(Error::Argument).collect();
        errors.extend(Part::ALL.iter().map(|part| Error::Damaged { part: *part, file: 7 }));
        errors.extend([
            Error::Unclosed { file: 3 },
            Error::Io { file: 2, os: 28, kind: io::ErrorKind::StorageFull },
            Error::Poisoned,
            Error::TooLarge,
            Error::Group { code: -5 },
        ]);
        for error in errors {
            let sent = error.on_rank(9);
            assert_eq!(Error::decode(&sent.encode()), Some(sent));
            assert!(!error.to_string().is_empty());
        }
        assert_eq!(Error::decode(&[0; Error::ENCODED_LEN]), None);
    }
}
