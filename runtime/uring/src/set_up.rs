//! A ring with the most favourable flags that this kernel knows, if it can do what is needed.

use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Sets up a ring with room for so many entries, and names its flags, in words.
///
/// # Errors
///
/// Those of `io_uring_setup`; `Unsupported` when the kernel lacks something needed here.
pub(crate) fn set_up(entries: u32) -> io::Result<(IoUring, &'static str)> {
    let (ring, name) = build(entries)?;
    check(&ring)?;
    Ok((ring, name))
}

fn build(entries: u32) -> io::Result<(IoUring, &'static str)> {
    let cooperative = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match cooperative {
        Ok(ring) => return Ok((ring, "single issuer, cooperative task work")),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {} // Before 6.0.
        Err(error) => return Err(error),
    }
    Ok((IoUring::new(entries)?, "plain set-up"))
}

/// Succeeds if there is all that is needed.
fn check(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::AsyncCancel::CODE,
        opcode::PollAdd::CODE,
    ];
    let has_timeouts = ring.params().is_feature_ext_arg(); // Of waits.
    let has = |code| probe.is_supported(code);
    if has_timeouts && needed.into_iter().all(has) {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}
