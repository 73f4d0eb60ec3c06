//! A daemon's servers, and what it serves as one, for its status.

use std::{collections::BTreeMap, sync::Weak};

use remote::Traffic;
use serde::Serialize;

/// Which servers' folders a daemon has, for whoever wants to share it.
#[derive(Debug, Serialize)]
pub(crate) struct RemoteStatus {
    pub(crate) servers: String,
    /// The folders of servers by those here.
    pub(crate) maps: BTreeMap<String, String>,
}

/// Where a daemon listens for daemons elsewhere, and who is connected.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: String,
    /// Held once by the server, and once for each connection.
    pub(crate) traffic: Weak<Traffic>,
}
