//! How a process comes to a session, and why it has none.

use rustix::io;
use wire::{Reason, Refusal};

use crate::{
    client::Client,
    connection::{Connection, Failure},
    host::Host,
    sessions::{Event, Reach},
    table::Entry,
};

impl Client {
    /// The connection, if there is one already.
    pub(crate) fn connected(&'static self) -> Option<&'static Connection> {
        self.sessions.current()
    }

    /// The connection, made now if need be.
    pub(crate) fn connection(&'static self) -> Option<&'static Connection> {
        if let Some(connection) = self.connected() {
            return Some(connection).filter(|connection| !connection.is_lost());
        }
        self.connect()
    }

    #[cold]
    #[inline(never)]
    fn connect(&'static self) -> Option<&'static Connection> {
        let config = self.active()?;
        let (place, tables) = self.sessions.place()?;
        // The code that this handler interrupted is connecting: not this time.
        let _turn = self.sessions.connecting.lock().ok()?;
        if let Some(connection) = self.connected() {
            return Some(connection);
        }
        if !self.sessions.reach().may_connect() {
            return None;
        }
        self.examine_from_now_on();
        let recorder = &self.watch.recorder;
        let connection = match Connection::open(config, self.host, tables, recorder, place) {
            Ok(connection) => {
                self.table.set(connection.socket.number(), Entry::Own);
                self.sessions.note(Event::Connect);
                connection
            }
            Err(failure) => {
                self.sessions.note(match failure {
                    Failure::NoNumber => Event::LackNumber,
                    Failure::Refused(Refusal::Full, _) => Event::Refuse,
                    Failure::Refused(..) | Failure::Unreachable => Event::Fail,
                });
                explain(self.host, failure);
                return None;
            }
        };
        self.move_counters(connection.session.shared().counters.iter());
        Some(connection)
    }

    /// Every connection that there was; this process's first, if it has one, then its parents'.
    pub(crate) fn all_connections(&'static self) -> impl Iterator<Item = &'static Connection> {
        self.sessions.all()
    }

    /// Error of a call on a remote file without a [`connection`](Self::connection).
    pub(crate) fn unserved(&self) -> io::Errno {
        match self.sessions.reach() {
            Reach::WithoutNumber => io::Errno::MFILE,
            _ => io::Errno::IO,
        }
    }

    /// Why there is no [`connection`](Self::connection).
    pub(crate) fn why_unconnected(&self) -> Reason {
        match self.sessions.reach() {
            Reach::Full => Reason::Credit,
            _ => Reason::DaemonLost,
        }
    }

    /// True if the connection is lost and nobody has dealt with that; the caller does.
    pub(crate) fn begin_sweep(&'static self) -> bool {
        self.connected().is_some_and(Connection::is_lost) && self.sessions.note(Event::Sweep)
    }
}

/// Tells the user why the process runs without a daemon that is there.
fn explain(host: &dyn Host, failure: Failure) {
    let Failure::Refused(refusal, _) = failure else { return };
    host.notice(match refusal {
        Refusal::Version => {
            "the daemon speaks another protocol version; running undelegated; \
             use kakehi and its preload library from one release"
        }
        Refusal::User => "the daemon belongs to another user; running undelegated",
        Refusal::Full => {
            "the daemon has no session, memory, or descriptor left; running undelegated; \
             raise KAKEHI_MEMORY, or the limit that it has met: 'ulimit -n', -f, or -v"
        }
        Refusal::Unseen => {
            "the daemon runs in a pid namespace that this process is not in; running \
             undelegated; start the daemon outside of the container"
        }
        _ => return,
    });
}
