//! The client's side: files below a mapped folder are a server's.
//!
//! `group` chooses the server; `dial` reaches it, unless it is here (`own`); `requests` has each
//! request answered, however often the connection breaks. `file` has the calls.

pub(super) mod dial;
pub(super) mod file;
pub(super) mod group;
pub(super) mod held;
pub(super) mod opened;
pub(super) mod own;
pub(super) mod requests;
