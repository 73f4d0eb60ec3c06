//! Remote delegation: a server that serves one folder, and the way of a daemon to it
//! (`docs/reference/protocol.md`, section 8).
//!
//! The way of a request: a client's request reaches its local daemon as any other, which sees that
//! its path or file is a remote one; `client/group` chooses the server; `client/requests`
//! gives the request a number and a credit, sends it down the `line`, and keeps it until it is
//! answered; at the server `server/connections` takes it off the stream, `server/received` checks
//! it, and `server/service` executes it over the same `Storage` as a daemon does. `server/ledger`
//! and `server/effects` see to it that what must not happen twice does not.

#![forbid(unsafe_code)]
#![expect(private_bounds, reason = "only simulations have another network than `Dial`")]
#![expect(missing_debug_implementations, reason = "what tasks share leads round in circles")]

#[macro_use]
extern crate invariant;

mod client;
mod line;
mod log_throttle;
mod ranges;
mod server;
#[cfg(test)]
mod simulation;

pub use self::{
    client::{
        dial::Dial,
        file::RemoteFile,
        group::{Group, Member, Spread},
        own::Own,
        requests::Client,
    },
    line::{
        address::{Address, Carrier},
        key::Key,
        workers::Workers,
    },
    log_throttle::AcceptBackoff,
    server::{
        boot::Boot,
        connections::Server,
        ledger::Folder,
        published::{Published, published},
        service::Service,
        traffic::Traffic,
    },
};
