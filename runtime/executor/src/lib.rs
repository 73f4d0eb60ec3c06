//! One executor per core.
