//! The way to a server: a connection to its address, checked and tuned.

use std::{fmt, io, time::Duration};

use storage::Locking;
use uring::Sockets;
use wire::SESSION_LEN;

use super::{
    own::{Neighbour, Own},
    requests::Network,
};
use crate::{
    Address,
    line::{self, Incoming, Outgoing, key::Key, workers::Workers},
    server::connections::{SILENCE_MAX, WINDOW_LEN},
};

/// One attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Connects to a server's address.
#[derive(Clone)]
pub struct Dial<S: Locking> {
    /// Where connections come from.
    pub sockets: Sockets,
    /// The place of the server.
    pub address: Address,
    /// Key of the server.
    pub key: Key,
    /// To talk by UCX once the server is met.
    pub workers: Option<Workers>,
    /// The server, if it is this daemon.
    pub own: Own<S>,
}

impl<S: Locking> fmt::Display for Dial<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl<S: Locking> Network for Dial<S> {
    type Receiver = Incoming;
    type Sender = Outgoing;
    type Own = S;

    async fn connect(&self) -> io::Result<(Incoming, Outgoing)> {
        let stream = self.sockets.connect(&self.address.place, CONNECT_MAX).await?;
        self.key.admits(&stream)?;
        // A Unix socket has neither.
        stream.set_window_min(WINDOW_LEN).ok();
        stream.set_silence_max(SILENCE_MAX).ok();
        // What has failed with `EIO` is not to happen once the network is back.
        stream.set_forgetful()?;
        Ok(line::halves(stream, self.workers.clone()))
    }

    fn neighbour(&self, session: &[u8; SESSION_LEN]) -> Option<Neighbour<S>> {
        self.own.neighbour(session)
    }
}
