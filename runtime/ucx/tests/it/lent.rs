//! Messages stay where they were received, for as long as somebody has them.

use std::{fs, time::Duration};

use ucx::{Buffer, Endpoint, NoPayload, PIECE_LEN, payload};

use crate::{
    echo::pattern,
    support::{Core, IDLE, Peer, Transport, deadline},
};

const COUNT: u8 = 40;

#[test]
fn messages_in_shared_memory_are_not_copied_and_stay_whole_while_others_come() {
    let Some((mut core, peer, endpoint)) = met() else { return };
    let mut kept = Vec::new();
    for number in 0..COUNT {
        let data = core.run(returned(&endpoint, number));
        assert_eq!(data.bytes().as_ptr().addr() % 4096, 0, "a device would not take it");
        kept.push(data);
    }
    assert_eq!(core.worker.held().lent, COUNT.into());
    for (number, data) in (0..COUNT).zip(&kept) {
        assert!(data.to_vec() == pattern(PIECE_LEN, number), "message {number}");
    }
    drop(kept);
    core.run(endpoint.send(b"bye", NoPayload)).expect("connected");
    peer.finish();
    drop(endpoint);
    core.turn_until(|worker| worker.held() == IDLE);
}

#[test]
fn what_is_lent_outlives_its_worker_which_goes_when_it_is_given_back() {
    let Some((mut core, _peer, endpoint)) = met() else { return };
    let data = core.run(returned(&endpoint, 7));
    let segment = segment_of(data.bytes().as_ptr().addr()).expect("shared memory");
    let Core { mut executor, worker } = core;
    drop((endpoint, worker));
    assert!(data.to_vec() == pattern(PIECE_LEN, 7));
    let handle = executor.handle();
    executor.run_until(handle.sleep(Duration::from_millis(50)));
    assert!(is_mapped(&segment), "somebody reads there");
    assert!(data.to_vec() == pattern(PIECE_LEN, 7));
    drop(data);
    executor.run_until(deadline(&handle, async {
        while is_mapped(&segment) {
            handle.sleep(Duration::from_millis(1)).await;
        }
    }));
}

/// Over shared memory, with the first message received.
fn met() -> Option<(Core, Peer, Endpoint)> {
    let mut core = Core::new(&Transport::SharedMemory.config())?;
    let (peer, endpoint) = core.meet(Transport::SharedMemory, "echo");
    core.run(endpoint.receive()).expect("connected");
    Some((core, peer, endpoint))
}

async fn returned(endpoint: &Endpoint, number: u8) -> Buffer {
    let data = payload(pattern(PIECE_LEN, number));
    endpoint.send(b"", data).await.expect("connected");
    endpoint.receive().await.expect("connected").data
}

/// Inode and name of what is mapped at `address`.
fn segment_of(address: usize) -> Option<(String, String)> {
    let maps = fs::read_to_string("/proc/self/maps").expect("alive");
    maps.lines().find_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let is_there = (number(start)?..number(end)?).contains(&address);
        is_there.then(|| inode_and_name(line)).flatten()
    })
}

fn is_mapped(segment: &(String, String)) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").expect("alive");
    maps.lines().any(|line| inode_and_name(line).as_ref() == Some(segment))
}

fn inode_and_name(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace().skip(4);
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}
