//! Connections that come to nothing.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    time::Duration,
};

use ucx::{Endpoint, Error, NoPayload};

use crate::support::{Core, IDLE, Meeting, Transport};

#[test]
fn a_connection_to_a_port_where_nobody_listens_fails() {
    let Some(mut core) = Core::new(&Transport::Tcp.config()) else { return };
    let port = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = port.local_addr().expect("bound");
    drop(port);
    let endpoint = core.worker.connect(address).expect("tried");
    let reason = core.run(endpoint.receive()).expect_err("nobody is there");
    assert!(matches!(reason, Error::Disconnected(_)), "{reason}");
    assert!(core.run(endpoint.send(b"late", NoPayload)).is_err());
    core.turn_until(|worker| worker.held() == IDLE);
}

#[test]
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
    let Some(mut core) = Core::new(&Transport::Tcp.config()) else { return };
    let ports = listening_ports();
    assert!(!ports.is_empty(), "a worker with TCP listens");
    let mut strangers = Vec::new();
    for seed in 0..50u8 {
        for port in &ports {
            let mut stranger = TcpStream::connect(("127.0.0.1", *port)).expect("listens");
            let noise: Vec<u8> = (0..200).map(|at: u8| at.wrapping_mul(seed) ^ seed).collect();
            stranger.write_all(&noise).ok();
            strangers.push(stranger);
        }
    }
    core.turn_for(Duration::from_millis(50));
    let way = (Transport::Tcp, Meeting::Address);
    let (_peer, endpoint) = core.meet(way, "echo");
    assert_eq!(core.run(endpoint.receive()).expect("connected").header(), b"hello");
}

/// TCP ports at which this process listens.
fn listening_ports() -> Vec<u16> {
    const LISTENING: &str = "0A";

    let links = fs::read_dir("/proc/self/fd").expect("readable").flatten();
    let own: Vec<_> = links.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let table = fs::read_to_string("/proc/self/net/tcp").expect("readable");
    let rows = table.lines().skip(1).filter_map(|row| {
        let words: Vec<_> = row.split_whitespace().collect();
        let socket = PathBuf::from(format!("socket:[{}]", words.get(9)?));
        let (_, port) = words.get(1)?.split_once(':')?;
        let own = words.get(3) == Some(&LISTENING) && own.contains(&socket);
        own.then(|| u16::from_str_radix(port, 16).ok())?
    });
    rows.collect()
}
