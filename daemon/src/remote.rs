//! Remote delegation: a server that serves one folder, and the way of a daemon to it
//! (`docs/protocol.md`, section 8).
//!
//! The way of a request: a client's request reaches its local daemon as any other; `mounts` sees
//! that its path or file is a remote one; `group` chooses the server; `client` gives the request a
//! number and a credit, sends it, and keeps it until it is answered; at the server `server` takes
//! it off the stream, `decode` checks it, and `service` executes it over the same `Storage` as a
//! daemon does. `ledger` and `effects` see to it that what must not happen twice does not.

mod address;
mod boot;
mod channel;
mod client;
mod copy;
mod deadlock;
mod decode;
mod dial;
mod doubts;
mod effects;
mod file;
mod grace;
mod group;
mod handshake;
mod held;
mod key;
mod ledger;
mod line;
mod links;
mod locks;
mod mirror;
pub(crate) mod mounts;
mod opened;
mod own;
mod pipe;
mod published;
mod regular;
mod server;
mod service;
#[cfg(test)]
mod simulation;
mod ucx;

pub use {address::Address, group::Spread, mounts::Mount, regular::published};
pub(crate) use {
    address::Carrier,
    boot::Boot,
    client::Client,
    dial::Dial,
    group::{Group, Member},
    key::Key,
    ledger::Folder,
    mirror::Listings,
    mounts::{Located, Mounts},
    own::Own,
    pipe::StandIns,
    published::Published,
    server::Server,
    service::Service,
    ucx::Workers,
};
