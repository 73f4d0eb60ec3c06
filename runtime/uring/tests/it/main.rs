//! Engines on real files, real rings and real threads.

mod beside;
mod dropped;
mod engines;
mod errors;
mod forbidden;
mod foreign;
mod frames;
mod lent;
mod memory;
mod neighbours;
mod parker;
mod sockets;
mod stops;
mod support;
mod workers;
