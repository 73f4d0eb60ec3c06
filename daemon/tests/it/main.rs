//! The daemon as a whole: real sockets, real files, a client that may misbehave.

mod client;
mod life;
mod staging;
mod support;
