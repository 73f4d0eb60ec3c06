//! Engines on real files, real rings and real threads.

mod engines;
mod support;
