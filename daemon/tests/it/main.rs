//! The daemon as a whole: real sockets, real files, a client that may misbehave.

#![expect(clippy::indexing_slicing, reason = "a test that panics has failed")]

mod client;
mod hostile;
mod kill;
mod life;
mod names;
mod requests;
mod staging;
mod support;
