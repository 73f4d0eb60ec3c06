//! Calling on the daemon: its socket, and the first words.

use rustix::{
    fd::{AsFd as _, OwnedFd},
    io::{self, Errno},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        send, socket_with, sockopt,
    },
    process::{Pid, getuid},
};
use wire::{Control, Greeting, MESSAGE_LEN, Role, Welcome};

use super::Failure;
use crate::{
    clock::now,
    config::{Config, PATH_MAX},
    descriptor_messages::receive_with,
    host::Host,
    socket::with_one_more,
};

/// A daemon that has answered.
pub(super) struct Met {
    pub(super) socket: OwnedFd,
    /// The number of its process, if it has one here.
    pub(super) daemon: Option<Pid>,
    pub(super) welcome: Welcome,
    /// The segments of the session and of the job.
    pub(super) segments: [OwnedFd; 2],
}

/// Connects and greets.
pub(super) fn meet(config: &Config, host: &dyn Host) -> Result<Met, Failure> {
    let greet = || with_one_more(|| greet(config, host));
    let met = match greet() {
        // By a process that stood by for the daemon, which serves by now.
        Err(Errno::CONNRESET) => greet(),
        met => met,
    };
    met.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE => Failure::NoNumber,
        _ => Failure::Unreachable,
    })?
}

/// Has the daemon started, if somebody stands by for it. Waits for nothing.
pub(crate) fn knock(config: &Config) {
    let mut path = [0; PATH_MAX];
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let address = config.path_of(b"socket", &mut path).map(SocketAddrUnix::new);
    if let (Ok(socket), Some(Ok(address))) = (socket, address) {
        // The greeting of somebody who does not stay. Unheard, nothing is staged.
        let greeting = Greeting::new(Role::Control(Control::Status)).encode();
        connect(&socket, &address)
            .and_then(|()| send(&socket, &greeting, SendFlags::NOSIGNAL))
            .ok();
    }
}

/// `CONNRESET`: the connection was closed without a word. `MFILE`: the process has no number left
/// for what came. Its frame is gone before that of who keeps what it returns.
#[inline(never)]
fn greet(config: &Config, host: &dyn Host) -> io::Result<Result<Met, Failure>> {
    let (socket, daemon) = dial(config, host)?;
    let greeting = Greeting { rank: config.rank, ..Greeting::new(Role::Client) }.encode();
    match send(&socket, &greeting, SendFlags::NOSIGNAL) {
        Err(Errno::PIPE) => return Err(Errno::CONNRESET),
        sent => sent?,
    };
    let mut bytes = [0; MESSAGE_LEN];
    let end = now() + config.fence_timeout;
    let received = loop {
        match receive_with(&socket, &mut bytes, RecvFlags::empty()) {
            // A wait with a limit is not taken up again after a signal, whatever its handler says.
            Err(Errno::INTR) if now() < end => {}
            received => break received,
        }
    };
    let (len, passed) = received?;
    if len == 0 {
        return Err(Errno::CONNRESET);
    }
    let welcome = Welcome::decode(bytes.get(..len).unwrap_or_default());
    let welcome = welcome.map_err(|_| Errno::PROTO)?;
    if let Err(why) = welcome.outcome() {
        return Ok(Err(Failure::Refused(why, welcome.version)));
    }
    // The kernel keeps what it has no free number for.
    let [Some(session), Some(job)] = passed else { return Err(Errno::MFILE) };
    Ok(Ok(Met { socket, daemon, welcome, segments: [session, job] }))
}

/// Connects to the daemon of the job; returns the number of its process here, too.
#[inline(never)]
fn dial(config: &Config, host: &dyn Host) -> io::Result<(OwnedFd, Option<Pid>)> {
    let mut path = [0; PATH_MAX];
    let path = config.path_of(b"socket", &mut path).ok_or(Errno::NAMETOOLONG)?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // To connect and to send, too, may take for ever: a daemon that stands still takes nothing.
    for way in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&socket, way, Some(config.fence_timeout))?;
    }
    let daemon = SocketAddrUnix::new(path)?;
    io::retry_on_intr(|| connect(&socket, &daemon))?;
    let peer = host.peer(socket.as_fd())?;
    if peer.user != getuid().as_raw() {
        return Err(Errno::PERM);
    }
    Ok((socket, peer.process))
}
