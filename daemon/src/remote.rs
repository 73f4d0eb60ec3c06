//! Remote delegation: a server that serves one folder, and the way of a daemon to it
//! (`docs/protocol.md`, section 8).
//!
//! The way of a request: a client's request reaches its local daemon as any other; `mounts` sees
//! that its path or file is a remote one; `client` gives it a number and a credit, sends it, and
//! keeps it until it is answered; at the server `server` takes it off the stream, `decode` checks it,
//! and `service` executes it over the same `Storage` as a daemon does. `ledger` and `effects` see to
//! it that what must not happen twice does not.

mod address;
mod channel;
mod client;
mod decode;
mod effects;
mod file;
mod handshake;
mod key;
mod ledger;
mod line;
mod mirror;
pub(crate) mod mounts;
mod pipe;
mod published;
mod server;
mod service;
#[cfg(test)]
mod simulation;
mod ucx;

pub use {address::Address, mounts::Mount};
pub(crate) use {
    address::Carrier,
    client::Client,
    key::Key,
    ledger::Folder,
    mounts::{Dial, Located, Mounts},
    published::Published,
    server::Server,
    service::Service,
    ucx::Workers,
};
