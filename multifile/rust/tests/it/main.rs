//! One binary for all tests of the package: one link step.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test shows where")]

mod golden;
mod read_golden;
mod repair;
mod write_golden;
