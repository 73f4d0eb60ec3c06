//! The state of an open file: who has it open, and what may be staged for it.
//!
//! | state | the program's numbers refer to | who has it open | position |
//! |---|---|---|---|
//! | fresh | the file | the kernel | the kernel's |
//! | linked | the file | the kernel, and the daemon for reads | the kernel's |
//! | unfit | the file | as linked; it is never staged to | the kernel's |
//! | staging | the file | the kernel, and the daemon with a log | the client's |
//! | delegated | a placeholder | the daemon; with and without a log, or unfit | the client's |
//! | remote | a placeholder | a server; with and without a log | the client's |
//! | bundled | a placeholder | nobody: it is in the bundle | the client's |
//! | at rest | a placeholder | nobody: the table of places leads to it | the client's |
//! | detached | the file | the kernel, from now on | the kernel's |
//! | closed | a placeholder | nobody | the kernel's |
//! | lost | a placeholder | nobody: the way to the server is gone | the kernel's |
//!
//! The transitions, as a test walks them. Every other pair of state and event is a fault, or, of
//! `refuse` and `fork`, changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | link | fresh -> linked |
//! | attach | linked -> staging, delegated -> delegated + log, remote -> remote + log |
//! | refuse | fresh -> detached, linked -> unfit, delegated -> delegated + unfit |
//! | substitute | delegated -> linked, delegated + unfit -> unfit, delegated + log -> staging |
//! | substitute | remote -> linked, remote + log -> staging |
//! | unlink | linked -> fresh, staging -> fresh, unfit -> detached |
//! | unlink | delegated -> closed, delegated + unfit -> closed, delegated + log -> closed |
//! | unlink | remote -> closed, remote + log -> closed |
//! | lose | linked -> detached, staging -> detached, unfit -> detached |
//! | lose | delegated -> lost, delegated + unfit -> lost, delegated + log -> lost |
//! | lose | remote -> lost, remote + log -> lost, bundled -> lost, at rest -> lost |
//! | promote | bundled -> remote, at rest -> remote |
//! | close | bundled -> closed, at rest -> closed |
//! | fork | linked -> fresh, staging -> fresh, unfit -> detached, delegated -> fresh |
//! | fork | delegated + unfit -> detached, delegated + log -> fresh, remote -> detached |
//! | fork | remote + log -> detached, bundled -> detached, at rest -> detached |
//! | fork | closed -> detached, lost -> detached |
//! | fork to write | fresh -> detached, linked -> detached, staging -> detached |
//! | fork to write | unfit -> detached, delegated -> detached, delegated + unfit -> detached |
//! | fork to write | delegated + log -> detached, remote -> detached |
//! | fork to write | remote + log -> detached, bundled -> detached, at rest -> detached |
//! | fork to write | closed -> detached, lost -> detached |

use core::time::Duration;

use shm::places::Seen;
use wire::Reason;

use crate::{log::Log, slot::Link};

/// The state of an open file.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// No delegated call was made on it yet. Zero, as [`Backing`](crate::Backing) begins.
    Fresh,
    /// The daemon has it open.
    Served(Served),
    /// Only this process and its bundle know of it.
    Bundled(Bundled),
    /// It is read without the daemon's help.
    AtRest(AtRest),
    /// The kernel serves it from now on.
    Detached(Reason),
    /// Nobody has the file behind the placeholder open: it is closed, or the process exits.
    Closed,
    /// Nobody knows the way to the file behind the placeholder any more.
    Lost,
}

/// A file that the daemon has open.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) link: Link,
    descriptor: Descriptor,
    staging: Staging,
    pub(crate) window: Option<Window>,
}

/// Target of the program's numbers of a file that the daemon has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// The file.
    Real,
    /// A placeholder for a file of this node: policy `delegate`.
    Placeholder,
    /// A placeholder for a file of a server: policy `remote`.
    Remote,
}

#[derive(Debug)]
enum Staging {
    NotYet,
    /// Nothing is ever staged for it.
    Unfit(Reason),
    Log(Log),
}

/// An open file that only its client and its bundle know of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bundled {
    /// The slot that it gets when it is promoted.
    pub(crate) link: Link,
    /// The folder that it was made in, by its index.
    pub(crate) lease: usize,
    /// Bytes written.
    pub(crate) len: u64,
    /// How often the daemon had asked for open files when it was made.
    pub(crate) recalled: u32,
    /// How often it had begun to make such files in steps.
    pub(crate) torn: u32,
}

/// An open file that is read by the table of places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRest {
    /// The slot that it gets when it is promoted, and by which it is read until then.
    pub(crate) link: Link,
    /// The folder that it was found in, by its index.
    pub(crate) lease: usize,
    pub(crate) seen: Seen,
    pub(crate) source: u8,
    pub(crate) at: u64,
    pub(crate) size: u64,
}

/// Seconds and nanoseconds of a file's last change.
pub(crate) type Version = (i64, i64);

/// Read-ahead of the daemon for the program, in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Start in the arena, bytes.
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// File offset of the first byte.
    pub(crate) from: u64,
    /// Bytes that were asked for, and
    pub(crate) asked: u64,
    /// bytes that were read: fewer only at the end of the file.
    pub(crate) filled: u64,
    /// When they were asked for, by the coarse clock.
    pub(crate) filled_at: Duration,
    /// The file's version then; without one only the read that asked is served.
    pub(crate) version: Option<Version>,
    /// How often all that was read ahead had been forgotten before it was asked for.
    pub(crate) forgotten: u64,
    /// The daemon does not read by itself, but asks a server.
    pub(crate) is_remote: bool,
}

/// Predicates of one state.
impl State {
    /// True if the kernel knows nothing of the file, on this node at least.
    pub(crate) const fn is_placeholder(&self) -> bool {
        !matches!(
            self,
            Self::Fresh
                | Self::Detached(_)
                | Self::Served(Served { descriptor: Descriptor::Real, .. })
        )
    }

    /// True if it is a file of this node that only the daemon has open.
    pub(crate) const fn is_delegated(&self) -> bool {
        matches!(self, Self::Served(Served { descriptor: Descriptor::Placeholder, .. }))
    }

    /// True if it is a server's.
    pub(crate) const fn is_remote(&self) -> bool {
        self.is_placeholder() && !self.is_delegated()
    }

    /// True if it is read or written without anybody having opened it.
    pub(crate) const fn is_unasked(&self) -> bool {
        matches!(self, Self::Bundled(_) | Self::AtRest(_))
    }

    /// True if it is a server's, and nobody knows the way there any more.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// True if nobody but the kernel has it open from now on.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self, Self::Detached(_) | Self::Closed | Self::Lost)
    }

    /// Why nothing is staged for it from now on.
    pub(crate) const fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Detached(reason)
            | Self::Served(Served { staging: Staging::Unfit(reason), .. }) => Some(*reason),
            Self::Lost => Some(Reason::DaemonLost),
            Self::Fresh | Self::Served(_) | Self::Bundled(_) | Self::AtRest(_) | Self::Closed => {
                None
            }
        }
    }

    pub(crate) const fn link(&self) -> Option<Link> {
        match self {
            Self::Served(served) => Some(served.link),
            _ => None,
        }
    }

    /// The way to the daemon, of a file that only it has open.
    pub(crate) fn daemons_link(&self) -> Option<Link> {
        self.link().filter(|_| self.is_placeholder())
    }

    pub(crate) const fn log(&self) -> Option<&Log> {
        match self {
            Self::Served(Served { staging: Staging::Log(log), .. }) => Some(log),
            _ => None,
        }
    }

    /// The link and log of a file that has a log.
    pub(crate) const fn staging(&mut self) -> Option<(Link, &mut Log)> {
        match self {
            Self::Served(Served { link, staging: Staging::Log(log), .. }) => Some((*link, log)),
            _ => None,
        }
    }

    /// As [`staging`](Self::staging), of a file that the program has open itself.
    #[inline]
    pub(crate) const fn staging_of_file(&mut self) -> Option<(Link, &mut Log)> {
        match self {
            Self::Served(Served {
                link,
                descriptor: Descriptor::Real,
                staging: Staging::Log(log),
                ..
            }) => Some((*link, log)),
            _ => None,
        }
    }

    pub(crate) const fn served(&mut self) -> Option<&mut Served> {
        match self {
            Self::Served(served) => Some(served),
            _ => None,
        }
    }

    pub(crate) const fn bundled(&self) -> Option<Bundled> {
        match self {
            Self::Bundled(bundled) => Some(*bundled),
            _ => None,
        }
    }

    pub(crate) const fn at_rest(&self) -> Option<AtRest> {
        match self {
            Self::AtRest(rest) => Some(*rest),
            _ => None,
        }
    }
}

/// The transitions.
impl State {
    /// A file that the daemon has opened for the program.
    pub(crate) const fn opened(link: Link, descriptor: Descriptor) -> Self {
        Self::Served(Served { link, descriptor, staging: Staging::NotYet, window: None })
    }

    /// The daemon has got a duplicate descriptor.
    pub(crate) fn link_to(&mut self, link: Link, log: Option<Log>) {
        invariant!(matches!(self, Self::Fresh), "a file has one link", else return);
        let staging = log.map_or(Staging::NotYet, Staging::Log);
        *self = Self::Served(Served { link, descriptor: Descriptor::Real, staging, window: None });
    }

    /// The daemon has got a log.
    pub(crate) fn attach(&mut self, log: Log) {
        let served = invariant!(some self.served(), "a log belongs to a link", else return);
        invariant!(matches!(served.staging, Staging::NotYet), "a file has one log", else return);
        served.staging = Staging::Log(log);
    }

    /// The kernel writes a file of this node from now on; the first reason counts.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        match self {
            Self::Fresh => *self = Self::Detached(reason),
            Self::Served(served) => {
                let is_here = served.descriptor != Descriptor::Remote;
                if is_here && matches!(served.staging, Staging::NotYet) {
                    served.staging = Staging::Unfit(reason);
                }
            }
            Self::Detached(_) | Self::Bundled(_) | Self::AtRest(_) | Self::Closed | Self::Lost => {}
        }
    }

    /// The program's numbers refer to the file from now on.
    pub(crate) fn substitute(&mut self) {
        let served = invariant!(some self.served(), "an open file is behind", else return);
        served.descriptor = Descriptor::Real;
    }

    /// The daemon has closed it.
    pub(crate) fn unlink(&mut self) {
        let unfit = self.refusal();
        let is_placeholder = self.is_placeholder();
        invariant!(self.link().is_some(), "a link ends once", else return);
        *self = match unfit {
            _ if is_placeholder => Self::Closed,
            Some(reason) => Self::Detached(reason),
            None => Self::Fresh,
        };
    }

    /// The daemon is lost, or cannot open it.
    pub(crate) fn lose(&mut self) {
        let is_open = self.link().is_some() || self.is_unasked();
        invariant!(is_open, "only what is open is lost", else return);
        let is_placeholder = self.is_placeholder();
        *self = if is_placeholder { Self::Lost } else { Self::Detached(Reason::DaemonLost) };
    }

    /// The daemon has opened a file that nobody had to open before.
    pub(crate) fn promote(&mut self, link: Link) {
        invariant!(self.is_unasked(), "a file is promoted once", else return);
        *self = Self::opened(link, Descriptor::Remote);
    }

    /// A file that nobody had to open is closed.
    pub(crate) fn close(&mut self) {
        invariant!(self.is_unasked(), "a link is ended instead", else return);
        *self = Self::Closed;
    }

    /// In the child of a fork: the parent's threads keep what they have linked meanwhile.
    pub(crate) fn fork(&mut self, is_writable: bool) {
        let is_parents = self.is_remote() || is_writable;
        let reason = self.refusal().or(is_parents.then_some(Reason::Forked));
        *self = reason.map_or(Self::Fresh, Self::Detached);
    }
}

#[cfg(test)]
mod tests;
