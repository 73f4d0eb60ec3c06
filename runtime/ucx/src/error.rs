//! Errors, by who is at fault.

use std::fmt;

use crate::{abi, peer::HEADER_LEN_MAX};

/// Why something with UCX failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The environment: the library could not be opened.
    Missing {
        /// The name that was looked for.
        library: String,
        /// Message of the dynamic linker.
        reason: String,
    },
    /// The environment: the library is of a version that does not serve.
    Version {
        /// The name that was opened.
        library: String,
        /// Its version: major, minor, release.
        found: (u32, u32, u32),
    },
    /// The environment: the library lacks a function.
    Function {
        /// The name that was opened.
        library: String,
        /// The function it lacks.
        name: &'static str,
    },
    /// The caller: a header is longer than [`HEADER_LEN_MAX`].
    LongHeader {
        /// Its length in bytes.
        len: usize,
    },
    /// The peer: its process or its node is gone.
    Disconnected(Status),
    /// The peer: it sent what no buffer holds, and was cut off.
    TooLong {
        /// Length of its header in bytes.
        header_len: usize,
        /// Length of its data in bytes.
        len: usize,
    },
    /// The peer: it sent more without credit than is put off, and was cut off.
    Overrun,
    /// Us: this side has closed the endpoint.
    Closed,
    /// UCX refused a call.
    Ucx {
        /// The function.
        call: &'static str,
        /// Status it returned.
        status: Status,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = abi::API_VERSION;
        match self {
            Self::Missing { library, reason } => write!(
                f,
                "UCX is unavailable: {library}: {reason}; install UCX {major}.{minor} or later \
                 (Debian: libucx0), or use tcp://"
            ),
            Self::Version { library, found: (a, b, c) } => write!(
                f,
                "UCX has another version: {library} is {a}.{b}.{c}, needed is \
                 {major}.{minor} or a later {major}.x; install that, or use tcp://"
            ),
            Self::Function { library, name } => write!(
                f,
                "UCX is not whole: {library} has no function {name}; install UCX {major}.{minor} \
                 or later, or use tcp://"
            ),
            Self::LongHeader { len } => {
                write!(f, "a header of {len} bytes; {HEADER_LEN_MAX} at most")
            }
            Self::Disconnected(status) => write!(f, "the peer is gone: {status}"),
            Self::TooLong { header_len, len } => write!(
                f,
                "the peer sent a message of {header_len} and {len} bytes, longer than a buffer"
            ),
            Self::Overrun => f.write_str("the peer sent more than it had credit for"),
            Self::Closed => f.write_str("the connection is closed"),
            Self::Ucx { call, status } => write!(f, "{call}: {status}"),
        }
    }
}

impl std::error::Error for Error {}

/// An error number of UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub(crate) abi::Status);

impl Status {
    pub(crate) const INVALID_PARAMETER: Self = Self(-5);

    /// `Ok` when the status is success.
    pub(crate) fn check(status: abi::Status, call: &'static str) -> Result<(), Error> {
        if status == abi::OK { Ok(()) } else { Err(Error::Ucx { call, status: Self(status) }) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            -1 => "no message",
            -2 => "no resource",
            -3 => "input/output error",
            -4 => "out of memory",
            -5 => "invalid parameter",
            -6 => "unreachable",
            -7 => "invalid address",
            -8 => "not implemented",
            -9 => "message truncated",
            -12 => "no such element",
            -15 => "busy",
            -16 => "canceled",
            -20 => "timed out",
            -22 => "unsupported",
            -23 => "rejected",
            -24 => "not connected",
            -25 => "connection reset",
            -80 => "endpoint timed out",
            other => return write!(f, "UCX status {other}"),
        };
        f.write_str(text)
    }
}
