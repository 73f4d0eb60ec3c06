//! The client's side: files below a mapped folder are a server's.
//!
//! `mounts` sees whether a path or a file is one of these, `mount` where a path leads; `group`
//! chooses the server; `dial` reaches it, unless it is here (`own`); `requests` has each request
//! answered, however often the connection breaks. `file` has the calls.

pub(super) mod dial;
pub(super) mod file;
pub(super) mod group;
pub(super) mod held;
pub(crate) mod located;
pub(super) mod mount;
pub(crate) mod mounts;
pub(super) mod opened;
pub(super) mod own;
pub(super) mod requests;
