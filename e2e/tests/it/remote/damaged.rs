//! A network that changes bytes, and strangers where the server was.

use std::{fs, time::Duration};

use super::{LONG, finish_rounds, progress, start_rounds};
use crate::{
    harness::{Folder, SOON, pause, wait_for},
    proxy::Proxy,
    remote::server::{Scheme, Server},
};

const ROUNDS: u32 = 400;
const DAMAGES: u32 = 8;

#[test]
fn bytes_changed_on_the_way_cost_time_only() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let proxy = Proxy::start(server.port);
    let mut command = server.run_through(&folder, proxy.port(), Scheme::Tcp);
    let mut program = start_rounds(&folder, &mut command, ROUNDS);
    assert!(wait_for(SOON, || progress(&folder) > 0));
    let mut damages = 0;
    while damages < DAMAGES && progress(&folder) < i64::from(ROUNDS) - 1 {
        proxy.damage();
        wait_for(SOON, || !proxy.is_damaging());
        damages += 1;
        pause(Duration::from_millis(50));
    }
    finish_rounds(&folder, &server, &mut program, ROUNDS as usize);
    let said = fs::read_to_string(folder.join("program.log")).expect("log") + &server.said();
    assert!(said.contains("wrong checksum"), "after {damages} changes: {said}");
    drop(proxy);
    server.end();
}

/// Nobody has to be able to end a job's wait for its server who can only listen at its port.
#[test]
fn server_with_another_key_at_the_port_does_not_end_the_wait() {
    crate::views::needs_view!();
    let (folder, other) = (Folder::new(), Folder::new());
    let mut server = Server::start(&folder, Scheme::Tcp);
    let mut program = start_rounds(&folder, &mut server.run(&folder), ROUNDS);
    assert!(wait_for(LONG, || progress(&folder) > 0));
    server.kill();
    let stranger = server.another_at_its_port(&other);
    let said = || fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(wait_for(SOON, || said().contains("another key")), "{}", said());
    let refused = || fs::read_to_string(other.join("server.log")).unwrap_or_default();
    assert!(wait_for(SOON, || refused().contains("is refused")), "{}", refused());
    assert!(refused().lines().count() <= 3, "every attempt is told: {}", refused());
    drop(stranger);
    server.restart();
    finish_rounds(&folder, &server, &mut program, ROUNDS as usize);
    assert!(!said().contains("given up") && said().contains("is back"), "{}", said());
    server.end();
}
