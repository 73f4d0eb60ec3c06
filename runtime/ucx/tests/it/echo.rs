//! What is sent arrives, whole.

use ucx::{NoPayload, payload};

use crate::support::{Core, IDLE, LARGE, Meeting, Transport, WAYS};

/// Eager ones, and one by rendezvous.
const LENS: [usize; 6] = [0, 8, 1000, 8 * 1024, 100_000, 1 << 20];

#[test]
fn messages_of_every_length_come_back_unchanged() {
    for way in WAYS {
        let Some(mut core) = Core::new(&way.0.config()) else { return };
        let (peer, endpoint) = core.meet(way, "echo");
        let hello = core.run(endpoint.receive()).expect("connected");
        assert_eq!((hello.header(), hello.data.len()), (&b"hello"[..], 0));
        for round in 1..20 {
            for len in LENS {
                let data = pattern(len, round);
                let header = format!("{len} {round}");
                let sent = endpoint.send(header.as_bytes(), payload(data.clone()));
                core.run(sent).expect("connected");
                let back = core.run(endpoint.receive()).expect("connected");
                assert_eq!(back.header(), header.as_bytes());
                assert!(back.data.to_vec() == data, "{way:?}: {header}");
            }
        }
        drop(hello);
        core.run(endpoint.send(b"bye", NoPayload)).expect("connected");
        peer.finish();
        drop(endpoint);
        core.turn_until(|worker| worker.held() == IDLE);
    }
}

#[test]
fn closing_ends_the_connection_on_both_sides() {
    for transport in [Transport::Tcp, Transport::SharedMemory] {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (peer, endpoint) = core.meet((transport, Meeting::Listener), "listen");
        core.run(endpoint.receive()).expect("connected");
        core.run(endpoint.send(b"one", payload(vec![0; LARGE]))).expect("connected");
        core.run(endpoint.close()).expect("the other side goes on");
        core.turn_until(|worker| worker.held() == IDLE);
        peer.finish();
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..=250).cycle().take(len).map(|byte: u8| byte.wrapping_mul(seed)).collect()
}
