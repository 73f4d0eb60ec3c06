//! Any words in a file slot, changed between the consumer's steps.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/shm.rs"]
#[allow(dead_code, reason = "another target uses the other check")]
mod checks;

fuzz_target!(|data: &[u8]| checks::log_peer(data));
