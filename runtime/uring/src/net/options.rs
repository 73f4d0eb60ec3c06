//! Options of every TCP connection, and how a dead peer is noticed.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd as _},
    time::Duration,
};

use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_linger, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_nodelay, set_tcp_user_timeout,
};

/// The kernel counts keep-alive times in seconds.
const PROBE_PERIOD_MIN: Duration = Duration::from_secs(1);

/// Probes a silent peer may miss.
const PROBES_MISSED_MAX: u32 = 3;

/// Sends small messages at once: who batches them is the sender, not the kernel.
pub(crate) fn set_no_delay(socket: impl AsFd) -> io::Result<()> {
    Ok(set_tcp_nodelay(socket, true)?)
}

/// Breaks the connection when the peer's machine has not answered for `silence_max`.
///
/// A silent connection is probed every quarter of that time, or every second if that is longer.
pub(crate) fn set_silence_max(socket: impl AsFd, silence_max: Duration) -> io::Result<()> {
    let socket = socket.as_fd();
    let period = (silence_max / (PROBES_MISSED_MAX + 1)).max(PROBE_PERIOD_MIN);
    set_tcp_keepidle(socket, period)?;
    set_tcp_keepintvl(socket, period)?;
    set_tcp_keepcnt(socket, PROBES_MISSED_MAX)?;
    set_socket_keepalive(socket, true)?;
    // For what was sent and not acknowledged, where no probe is sent.
    let millis = u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX);
    Ok(set_tcp_user_timeout(socket, millis)?)
}

/// Has a connection forget what was not sent, or not acknowledged, when it is closed.
pub(crate) fn set_forgetful(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Makes the window of a TCP connection at least `len` bytes, without waiting for the kernel to
/// find out that it should be, and within the kernel's own limit for such growth.
///
/// `SO_RCVBUF` would do neither: its limit is a much smaller one, and it ends the kernel's growth.
///
/// # Errors
///
/// Those of `setsockopt`.
pub fn set_window_min(socket: impl AsFd, len: usize) -> io::Result<()> {
    // To ask for so much before a wake-up makes room for it, and the room stays.
    set_wake_len(&socket, libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX))?;
    set_wake_len(&socket, 1)
}

/// Sets how much must have arrived before a receiver is woken, bytes.
fn set_wake_len(socket: impl AsFd, len: libc::c_int) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let value_len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: `len` lives through the call and has `value_len` bytes, which the kernel only reads.
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const len).cast(),
            value_len,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
