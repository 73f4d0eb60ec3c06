//! Why a daemon cannot be started or asked.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use remote::Address;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use wire::{Invalid, Refusal};

use crate::Serving;

/// Why a daemon cannot be started, or cannot be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No daemon listens in the folder.
    Unreachable {
        /// The folder.
        folder: PathBuf,
        /// Error of the connection attempt.
        source: io::Error,
    },
    /// A daemon listens in the folder, and does not answer.
    Silent {
        /// The folder.
        folder: PathBuf,
        /// The daemon's process, where it can be seen.
        process: Option<i32>,
        /// How long it was waited for.
        time: Duration,
    },
    /// A daemon listens in the folder already.
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The daemon does not serve this caller.
    Refused(Refusal),
    /// The other side does not speak the protocol.
    Protocol(Invalid),
    /// The daemon went away before it answered.
    Lost(io::Error),
    /// `ucx://` was asked for, and there is no libucp that serves.
    Ucx(ucx::Error),
    /// No server of remote files can be had.
    Remote {
        /// Where they ought to listen.
        addresses: Vec<Address>,
        /// Why, and what to do.
        source: io::Error,
    },
    /// Something that the configuration names cannot be used.
    Unusable {
        /// The object.
        given: Given,
        /// Why.
        source: io::Error,
    },
    /// The machine did not give what a daemon needs.
    Setup {
        /// The part to set up.
        what: &'static str,
        /// Error of the machine.
        source: io::Error,
    },
}

/// An object that a configuration names, as it names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The file with the job key, where it is made when it is missing.
    ServerKey(PathBuf),
    /// The same where it has to be there.
    ClientKey(PathBuf),
    /// The folder to serve.
    Root(PathBuf),
    /// Where to listen.
    Listen(Address),
    /// The folder of the server's root that a folder here is mapped to.
    RemoteFolder(PathBuf),
    /// The folder for the file that has the address.
    AddressFolder(PathBuf),
    /// A multifile that is to hold a folder's files.
    Multifile(PathBuf),
    /// A core to serve on.
    Core(usize),
    /// A folder that is to be mounted.
    View(PathBuf),
}

impl Given {
    pub(crate) fn address_folder(serving: &Serving) -> Self {
        Self::AddressFolder(serving.address_folder.clone().unwrap_or_default())
    }

    fn advice(&self, why: &io::Error) -> &'static str {
        match self {
            Self::ServerKey(_) => {
                "make it yours and `chmod 600` it, or name one that can be made with --key"
            }
            Self::ClientKey(_) => "copy the key file that `kakehi serve` made, as yours, mode 0600",
            Self::Root(_) => "name a folder that you may write, with --root",
            Self::Listen(address) if address.socket().is_some() => {
                "name a path of at most 107 bytes, where nothing is, in a folder that you may write"
            }
            Self::Listen(_) => "name an address of this node and a free port; port 0 takes any",
            Self::RemoteFolder(_) => {
                "map a folder that can be made below the server's root, with --map"
            }
            Self::AddressFolder(_) => "name a folder that you may write, with --address-file",
            Self::Multifile(_) => coalesce::advice(why),
            Self::Core(_) => "name cores that this job may use, with --cores",
            Self::View(_) => "see 'kakehi doctor', or run without: --view none",
        }
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerKey(path) | Self::ClientKey(path) => {
                write!(f, "key file {}", path.display())
            }
            Self::Root(path) => write!(f, "root folder {}", path.display()),
            Self::Listen(address) => write!(f, "listening at {address}"),
            Self::RemoteFolder(path) => write!(f, "the server's folder {}", path.display()),
            Self::AddressFolder(path) => write!(f, "address folder {}", path.display()),
            Self::Multifile(path) => write!(f, "multifile {}", path.display()),
            Self::Core(core) => write!(f, "core {core}"),
            Self::View(path) => write!(f, "the view of {}", path.display()),
        }
    }
}

/// Advice for a machine that did not give what a daemon needs.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// A higher limit, as the shell's command sets it.
    Limit(&'static str, Resource),
    /// The mount.
    Proc,
    /// Something that its own probe names.
    Other,
}

impl Missing {
    fn of(why: &io::Error) -> Self {
        match Errno::from_io_error(why) {
            // Shared memory is a file for it.
            Some(Errno::FBIG) => Self::Limit("ulimit -f", Resource::Fsize),
            Some(Errno::MFILE) => Self::Limit("ulimit -n", Resource::Nofile),
            _ if !Path::new("/proc/self").exists() => Self::Proc,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit(command, resource) => match getrlimit(resource).maximum {
                Some(limit) => write!(f, "raise '{command}', which is {limit}"),
                None => write!(f, "raise '{command}'"),
            },
            Self::Proc => f.write_str("mount /proc"),
            Self::Other => f.write_str("`kakehi doctor` says what is missing"),
        }
    }
}

impl Error {
    /// For `map_err`: what of the configuration cannot be used.
    pub(crate) fn unusable<E: Into<io::Error>>(given: Given) -> impl FnOnce(E) -> Self {
        move |source| Self::Unusable { given, source: source.into() }
    }

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
            Self::Silent { folder, process, time } => {
                write!(f, "the daemon in {}", folder.display())?;
                process.map_or(Ok(()), |pid| write!(f, " (process {pid})"))?;
                write!(
                    f,
                    ": no answer for {time:?}; send it SIGCONT if it was stopped, or SIGKILL, its \
                     programs go on without it"
                )
            }
            Self::Remote { addresses, source } => {
                let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                write!(f, "the server at {} cannot be used: {source}", texts.join(" or "))
            }
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
                "the daemon has no session, memory, or descriptor left; raise KAKEHI_MEMORY, or \
                 the limit that it has met: 'ulimit -n', -f, or -v",
            ),
            Self::Ucx(source) => source.fmt(f),
            Self::Protocol(invalid) => {
                write!(f, "what answered is no kakehi daemon: {invalid}; check --socket")
            }
            Self::Lost(source) => {
                write!(f, "the daemon went away before it answered: {source}; see its log")
            }
            Self::Unusable { given, source } => {
                write!(f, "{given}: {source}; {}", given.advice(source))
            }
            Self::Setup { what, source } => {
                write!(f, "cannot set up {what}: {source}; {}", Missing::of(source))
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
            | Self::Unusable { source, .. }
            | Self::Setup { source, .. } => Some(source),
            Self::Protocol(invalid) => Some(invalid),
            Self::Ucx(source) => Some(source),
            Self::Occupied { .. } | Self::Silent { .. } | Self::Refused(_) => None,
        }
    }
}
