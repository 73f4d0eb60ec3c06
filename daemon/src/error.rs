//! Why a daemon cannot be started or asked.

use std::{error, fmt, io, path::PathBuf};

use wire::{Invalid, Refusal};

use crate::Address;

/// Why a daemon cannot be started, or cannot be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No daemon listens in the folder.
    Unreachable {
        /// The folder.
        folder: PathBuf,
        /// What connecting said.
        source: io::Error,
    },
    /// A daemon listens in the folder already.
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The daemon does not serve this caller.
    Refused(Refusal),
    /// What answered does not speak the protocol.
    Protocol(Invalid),
    /// The daemon went away before it answered.
    Lost(io::Error),
    /// `ucx://` was asked for, and there is no libucp that serves.
    Ucx(ucx::Error),
    /// The server of remote files cannot be had.
    Remote {
        /// Its address.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// The machine did not give what a daemon needs.
    Setup {
        /// What was to be set up.
        what: &'static str,
        /// What the machine said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was to be set up when the machine said no.
    pub(crate) fn setup<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Setup { what, source: source.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { folder, source } => write!(
                f,
                "no daemon can be reached in {}: {source}; start one with `kakehi run` or name \
                 its folder with --socket",
                folder.display()
            ),
            Self::Remote { address, source } => write!(
                f,
                "the server at {address} cannot be had: {source}; check that `kakehi serve` runs \
                 there and that both have the same key file"
            ),
            Self::Occupied { folder } => write!(
                f,
                "a daemon listens in {} already; use it, or stop it first",
                folder.display()
            ),
            Self::Refused(Refusal::Version) => {
                f.write_str("the daemon speaks another version; use the `kakehi` that started it")
            }
            Self::Refused(Refusal::User) => {
                f.write_str("the daemon serves another user; start your own")
            }
            Self::Refused(Refusal::Stopping) => {
                f.write_str("the daemon is stopping; start it again once it has ended")
            }
            Self::Refused(_) => f.write_str(
                "the daemon has no session, memory, or descriptor left; raise --memory or the \
                 limit on open files",
            ),
            Self::Ucx(source) => source.fmt(f),
            Self::Protocol(invalid) => {
                write!(f, "what answered is no kakehi daemon: {invalid}; check --socket")
            }
            Self::Lost(source) => {
                write!(f, "the daemon went away before it answered: {source}; see its log")
            }
            Self::Setup { what, source } => {
                write!(f, "cannot set up {what}: {source}; `kakehi doctor` says what is missing")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. }
            | Self::Lost(source)
            | Self::Remote { source, .. }
            | Self::Setup { source, .. } => Some(source),
            Self::Protocol(invalid) => Some(invalid),
            Self::Ucx(source) => Some(source),
            Self::Occupied { .. } | Self::Refused(_) => None,
        }
    }
}
