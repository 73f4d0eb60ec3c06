//! What client and daemon say to each other, without the saying: no I/O, no clock, no `unsafe`.
#![forbid(unsafe_code)]
#![no_std]
