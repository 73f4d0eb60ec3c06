//! The process at the other end of a Unix socket, as the kernel noted when the two were connected.
//!
//! Not by rustix, whose credentials always have a process: here one in another container has none.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The user that the kernel does not know.
const NOBODY: u32 = u32::MAX;

/// The process that connected or, seen from there, that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user; `None` for a TCP connection, which does not tell.
    pub user: Option<u32>,
    /// The process, by its number among those that this one can see; `None` where it has none: in a
    /// pid namespace that is not within this one's.
    pub process: Option<Pid>,
}

impl Peer {
    /// Asks the kernel.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt`.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let nobody = libc::ucred { pid: 0, uid: NOBODY, gid: NOBODY };
        // SAFETY: any bytes are a `ucred`.
        let found = unsafe { option(socket, libc::SO_PEERCRED, nobody) }?;
        let user = Some(found.uid).filter(|user| *user != NOBODY);
        Ok(Self { user, process: Pid::from_raw(found.pid) })
    }
}

/// A descriptor of the process at the other end, which is ready to read once that has ended.
///
/// `None` where this process cannot have one: the other one has no number here, and the kernel is
/// older than Linux 6.5.
///
/// # Errors
///
/// Those of `getsockopt` and `pidfd_open`; `ESRCH`: it has ended.
pub fn peer_process(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    // SAFETY: any bytes are a number.
    match unsafe { option(&socket, libc::SO_PEERPIDFD, -1) } {
        // SAFETY: the kernel has made it for this call, and nobody else knows of it.
        Ok(process) => Ok(Some(unsafe { OwnedFd::from_raw_fd(process) })),
        Err(why) => match Errno::from_io_error(&why) {
            // An older kernel, or what a container's filter says instead.
            Some(Errno::NOPROTOOPT | Errno::NOSYS | Errno::PERM) => {
                let process = Peer::of(socket)?.process;
                Ok(process.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()?)
            }
            // What some kernels say of one that has ended.
            Some(Errno::INVAL) => Err(Errno::SRCH.into()),
            _ => Err(why),
        },
    }
}

/// An option of a socket, `value` where the kernel writes none.
///
/// # Safety
///
/// Any bytes are a `T`.
unsafe fn option<T>(socket: impl AsFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let fd = socket.as_fd().as_raw_fd();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: both live through the call, which writes at most `len` bytes to `value`; these are a
    // `T`, as the caller promises.
    let got = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
    };
    if got == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_peer_is_known_by_user_and_process() {
        let (one, other) = UnixStream::pair().expect("sockets");
        for socket in [one, other] {
            let peer = Peer::of(&socket).expect("connected");
            assert_eq!(peer.user, Some(rustix::process::geteuid().as_raw()));
            assert_eq!(peer.process, Some(rustix::process::getpid()));
            let process = peer_process(&socket).expect("connected").expect("visible");
            let mut ends = [PollFd::new(&process, PollFlags::IN)];
            assert_eq!(poll(&mut ends, Some(&Timespec::default())), Ok(0));
        }
        let nobody = rustix::pipe::pipe().expect("a pipe").0;
        assert!(Peer::of(&nobody).is_err() && peer_process(&nobody).is_err());
    }
}
