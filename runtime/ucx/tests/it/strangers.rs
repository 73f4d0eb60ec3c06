//! Strangers at the port that every worker with TCP has.

use std::{fs, io::Write, net::TcpStream, path::PathBuf, time::Duration};

use ucx::NoPayload;

use crate::support::{Core, Transport};

#[test]
fn strangers_at_the_port_of_a_worker_do_no_harm() {
    let transport = Transport::Tcp;
    let Some(mut core) = Core::new(&transport.config()) else { return };
    let (peer, endpoint) = core.meet(transport, "echo");
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
