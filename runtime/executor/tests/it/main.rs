//! The executor as its users see it, in simulation: every test here also runs under Miri.

mod credit;
mod fairness;
mod idle;
mod notify;
mod panics;
mod paying;
mod poll_list;
mod support;
mod tasks;
mod timers;
