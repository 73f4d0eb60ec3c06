//! The program `kakehi-bench`.
fn main() {}
