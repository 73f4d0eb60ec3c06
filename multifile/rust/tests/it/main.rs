//! One binary for all tests of the package: one link step.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failing test shows where"
)]

mod allocations;
mod apart;
mod append;
mod buddy;
mod buddy_apart;
mod commit;
mod crash;
mod cut;
mod dense;
mod failing;
mod faults;
mod format;
mod golden;
mod growing;
mod harm;
mod hostile;
mod lost;
mod mapping;
mod memory;
mod model;
mod parallel;
mod ranks;
mod read_golden;
mod refused;
mod repair;
mod space;
mod sparse;
mod write_golden;
