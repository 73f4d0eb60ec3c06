//! Any bytes as an index log.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/wire.rs"]
#[allow(dead_code, reason = "other targets use the other checks")]
mod checks;

fuzz_target!(|data: &[u8]| checks::records(data));
