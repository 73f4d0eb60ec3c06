//! The application's side of delegation.
#![forbid(unsafe_code)]
#![no_std]
