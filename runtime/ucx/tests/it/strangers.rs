//! Connections that come to nothing.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    path::PathBuf,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use ucx::{Endpoint, Error, NoPayload};

use crate::support::{Core, IDLE, Meeting, Transport};

#[test]
fn a_connection_to_a_port_where_nobody_listens_fails() {
    let Some(mut core) = Core::new(&Transport::Tcp.config()) else { return };
    // Bound, so that nobody else gets the port, and not listening.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("descriptors");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let address = getsockname(&socket).expect("bound").try_into().expect("of the internet");
    let endpoint = core.worker.connect(address).expect("tried");
    let reason = core.run(endpoint.receive()).expect_err("nobody is there");
    assert!(matches!(reason, Error::Disconnected(_)), "{reason}");
    assert!(core.run(endpoint.send(b"late", NoPayload)).is_err());
    core.turn_until(|worker| worker.held() == IDLE);
}

#[test]
#[ignore = "UCX 1.13 aborts now and then when a listener refuses: an assertion in its tcp_sockcm"]
fn connections_beyond_the_backlog_are_refused_and_the_others_with_the_listener() {
    let Some(mut core) = Core::new(&Transport::Tcp.config()) else { return };
    let listener = core.listen();
    let address = listener.local_address().expect("bound");
    let endpoints: Vec<Endpoint> =
        (0..80).map(|_| core.worker.connect(address).expect("tried")).collect();
    let failed = || endpoints.iter().filter(|endpoint| endpoint.failure().is_some()).count();
    core.turn_until(|_| failed() == 80 - 64);
    drop(listener);
    core.turn_until(|_| failed() == 80);
    core.turn_until(|worker| worker.held() == IDLE);
}

#[test]
fn strangers_at_the_port_of_a_worker_do_no_harm() {
    let way = (Transport::Tcp, Meeting::Address);
    let Some(mut core) = Core::new(&way.0.config()) else { return };
    let (peer, endpoint) = core.meet(way, "echo");
    core.run(endpoint.receive()).expect("connected");
    let ports = listening_ports(peer.id());
    assert!(!ports.is_empty(), "a worker with TCP listens");
    let mut strangers = Vec::new();
    for seed in 0..50u8 {
        for port in &ports {
            let mut stranger = TcpStream::connect(("127.0.0.1", *port)).expect("listens");
            let noise: Vec<u8> = (0..200).map(|at: u8| at.wrapping_mul(seed) ^ seed).collect();
            stranger.write_all(&noise).ok(); // It may be turned away at the first byte.
            strangers.push(stranger);
        }
    }
    core.turn_for(Duration::from_millis(50));
    core.run(endpoint.send(b"well?", NoPayload)).expect("connected");
    assert_eq!(core.run(endpoint.receive()).expect("connected").header(), b"well?");
}

/// TCP ports at which a process listens.
fn listening_ports(process: u32) -> Vec<u16> {
    const LISTENING: &str = "0A";

    let links = fs::read_dir(format!("/proc/{process}/fd")).expect("a child").flatten();
    let own: Vec<_> = links.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).expect("a child");
    let rows = table.lines().skip(1).filter_map(|row| {
        let words: Vec<_> = row.split_whitespace().collect();
        let socket = PathBuf::from(format!("socket:[{}]", words.get(9)?));
        let (_, port) = words.get(1)?.split_once(':')?;
        let own = words.get(3) == Some(&LISTENING) && own.contains(&socket);
        own.then(|| u16::from_str_radix(port, 16).ok())?
    });
    rows.collect()
}
