//! Descriptors that others have sent.

use std::{
    io::{self, Write as _},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_linger;
use uring::{Choice, ForeignFd};

use crate::support::Core;

/// Time that a socket lingers for a peer that does not read.
const LINGER: Duration = Duration::from_secs(20);

#[test]
fn whoever_drops_a_socket_that_lingers_does_not_wait_for_it() {
    let mut core = Core::new(Choice::Auto, 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (deaf, _) = listener.accept().expect("connected");
    set_socket_linger(&socket, Some(LINGER)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let full = loop {
        if let Err(error) = socket.write(&[0; 1 << 16]) {
            break error;
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let begin = Instant::now();

    drop(ForeignFd::new(&core.engines, socket.into()));
    core.turn_a_while();

    assert_eq!(core.engines.counters().threads, 1);

    assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
    drop(deaf); // The thread waits no longer.
}
