//! The command `kakehi`.
#![forbid(unsafe_code)]
fn main() {}
