//! The library as programs meet it: installed, linked by C compilers, run.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failing test shows where")]

mod cmake;
mod dropin;
mod faults;
mod fortran;
mod golden;
mod harness;
mod install;
mod launch;
mod mpi;
mod otf2;
mod programs;
mod random;
mod threads;
