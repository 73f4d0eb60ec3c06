//! Multifiles opened, written, read, and closed by many ranks together.
//!
//! Opening and closing are collective over a [`Group`](crate::group::Group) and cost each rank
//! one exchange: a gather to rank 0, which decides for all, and a scatter of what it decided. Only
//! ranks with more tasks than one record holds need a second one to open.
//! Whatever fails on one rank travels with the exchange, and every rank returns the same
//! [`Error::OnRank`](crate::Error::OnRank); nobody waits for a rank that has given up.
//!
//! Reading and writing in between is not collective, except [`ParWriter::write_merged`] and
//! [`BuddyWriter::write_together`].

mod apart;
mod away;
mod buddy;
mod create;
mod exchange;
mod merge;
mod reader;
mod records;
mod restore;
mod roster;
mod tables;
mod writer;

pub use buddy::BuddyWriter;
pub use create::NewSet;
pub use reader::{LocalTask, ParReader};
pub use records::SetInfo;
pub use restore::Seat;
pub use roster::{OwnGroup, Part, Split};
pub use tables::{ROOT_BYTES_MAX, ROOT_FILES_MAX};
pub use writer::ParWriter;
