//! Remote delegation: a server that serves one folder, and the way of a daemon to it
//! (`docs/reference/protocol.md`, section 8).
//!
//! The way of a request: a client's request reaches its local daemon as any other; `client/mounts`
//! sees that its path or file is a remote one; `client/group` chooses the server; `client/requests`
//! gives the request a number and a credit, sends it down the `line`, and keeps it until it is
//! answered; at the server `server/connections` takes it off the stream, `server/decode` checks it,
//! and `server/service` executes it over the same `Storage` as a daemon does. `server/ledger` and
//! `server/effects` see to it that what must not happen twice does not.

pub(crate) mod client;
mod line;
mod server;
#[cfg(test)]
mod simulation;

pub(crate) use self::{
    client::{
        dial::Dial,
        group::{Group, Member},
        located::Located,
        mounts::Mounts,
        own::Own,
        requests::Client,
    },
    line::{address::Carrier, key::Key, workers::Workers},
    server::{
        boot::Boot, connections::Server, ledger::Folder, published::Published, service::Service,
    },
};
pub use self::{
    client::{group::Spread, mount::Mount},
    line::address::Address,
};
