//! x
#[test] fn x(){ println!("{:?} {}", std::env::current_exe(), env!("CARGO_TARGET_TMPDIR")); }
