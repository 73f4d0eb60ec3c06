//! What is sent arrives, whole.

use ucx::{NoPayload, payload};

use crate::support::{Core, IDLE, TRANSPORTS};

/// Eager ones, and one by rendezvous.
const LENS: [usize; 6] = [0, 8, 1000, 8 * 1024, 100_000, 1 << 20];

#[test]
fn messages_of_every_length_come_back_unchanged() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (peer, endpoint) = core.meet(transport, "echo");
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
                assert!(back.data.to_vec() == data, "{transport:?}: {header}");
            }
        }
        drop(hello);
        core.run(endpoint.send(b"bye", NoPayload)).expect("connected");
        peer.finish();
        drop(endpoint);
        core.turn_until(|worker| worker.held() == IDLE);
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..=250).cycle().take(len).map(|byte: u8| byte.wrapping_mul(seed)).collect()
}
