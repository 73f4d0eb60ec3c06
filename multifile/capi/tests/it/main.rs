//! The library as programs meet it: installed, linked by C compilers, run.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failing test shows where")]

mod faults;
mod golden;
mod harness;
mod install;
mod programs;
