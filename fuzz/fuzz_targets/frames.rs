//! Any bytes as a stream of frames.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/wire.rs"]
#[allow(dead_code, reason = "another target uses the other check")]
mod checks;

fuzz_target!(|data: &[u8]| checks::frames(data));
