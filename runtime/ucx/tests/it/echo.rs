//! Messages arrive, whole.

use std::{collections::BTreeSet, fs};

use ucx::{NoPayload, PIECE_LEN, payload};

use crate::support::{Core, IDLE, TRANSPORTS, Transport};

/// Eager ones, in one piece and in several, and one by rendezvous.
const LENS: [usize; 8] = [0, 8, 1000, 8 * 1024, PIECE_LEN, PIECE_LEN + 1, 100_000, 1 << 20];

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

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..=250).cycle().take(len).map(|byte: u8| byte.wrapping_mul(seed)).collect()
}

/// Asked to detect failures, UCX drops shared memory without a word unless it is told to detect
/// them there, too.
#[test]
fn processes_of_a_node_share_memory_when_they_may() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        let is_shared = || !segments("self").is_disjoint(&segments(&peer.id().to_string()));
        if transport == Transport::SharedMemory {
            core.turn_until(|_| is_shared());
        } else {
            assert!(!is_shared(), "{transport:?}");
        }
        core.run(endpoint.send(b"bye", NoPayload)).expect("connected");
        peer.finish();
    }
}

/// Inodes and names of the memory that a process has mapped to share it by UCX.
fn segments(process: &str) -> BTreeSet<(String, String)> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("alive");
    let segments = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(4);
        let (inode, name) = (words.next()?, words.next()?);
        let is_ucx = name.contains("ucx_shm") || name.starts_with("/SYSV");
        is_ucx.then(|| (inode.to_owned(), name.to_owned()))
    });
    segments.collect()
}
