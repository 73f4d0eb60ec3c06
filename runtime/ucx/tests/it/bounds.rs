//! Bounds of sending in both directions: nothing is lost below the bound.

use std::{
    cell::Cell,
    pin::pin,
    rc::Rc,
    sync::atomic::AtomicU8,
    task::{Context, Poll, Waker},
    time::Duration,
};

use ucx::{Config, Error, HEADER_LEN_MAX, Held, NoPayload, payload};

use crate::{
    child::BATCH_COUNT,
    support::{Core, IDLE, LARGE, TRANSPORTS, Transport},
};

const BUFFER_COUNT: u32 = 4;

/// The configuration of `transport` with few buffers and room to put off half a batch.
fn narrow(transport: Transport) -> Config {
    Config { buffer_count: BUFFER_COUNT, put_off_max: 4, ..transport.config() }
}

#[test]
fn messages_that_find_no_buffer_arrive_when_one_is_free() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&narrow(transport)) else { return };
        let (peer, endpoint) = core.meet(transport, "batch");
        core.turn_until(|worker| worker.held().put_off == 4);
        assert_eq!(core.worker.held().free_buffers, 0);
        let mut seen = Vec::new();
        for _ in 0..BATCH_COUNT {
            let message = core.run(endpoint.receive()).expect("connected");
            let number = message.header()[0];
            assert!(message.data.to_vec().iter().all(|byte| *byte == number));
            seen.push(number);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..BATCH_COUNT).collect::<Vec<_>>(), "{transport:?}");
        core.run(endpoint.send(b"done", NoPayload)).expect("connected");
        peer.finish();
    }
}

#[test]
fn long_messages_come_a_few_at_a_time() {
    const SENT_COUNT: usize = 32;
    for transport in TRANSPORTS {
        let config = Config { put_off_max: 0, ..transport.config() };
        let Some(mut core) = Core::new(&config) else { return };
        let (_peer, endpoint) = core.meet(transport, "flood-large");
        let (mut most, all) = (core.worker.held(), config.buffer_count as usize);
        core.turn_until(|worker| {
            let held = worker.held();
            most.operations = most.operations.max(held.operations);
            most.put_off = most.put_off.max(held.put_off);
            held.free_buffers <= all - SENT_COUNT
        });
        assert!(most.operations <= 4 && most.put_off > 0, "{transport:?}: {most:?}");
        assert_eq!(endpoint.failure(), None, "there are buffers");
    }
}

#[test]
fn a_peer_that_sends_without_end_is_cut_off_and_holds_nothing_after() {
    for role in ["flood", "flood-large"] {
        for transport in TRANSPORTS {
            let Some(mut core) = Core::new(&narrow(transport)) else { return };
            let (_peer, endpoint) = core.meet(transport, role);
            core.turn_until(|_| endpoint.failure().is_some());
            assert_eq!(endpoint.failure(), Some(Error::Overrun), "{transport:?}");
            core.turn_until(|worker| worker.held().put_off == 0);

            // What was received before is still good; then comes the reason.
            let reason = core.run(async {
                loop {
                    if let Err(reason) = endpoint.receive().await {
                        break reason;
                    }
                }
            });
            assert_eq!(reason, Error::Overrun);
            core.turn_until(|worker| {
                worker.held() == Held { free_buffers: BUFFER_COUNT as usize, ..IDLE }
            });
        }
    }
}

#[test]
fn a_message_longer_than_a_buffer_ends_its_connection() {
    for transport in TRANSPORTS {
        let config = Config { buffer_len: 100, ..transport.config() };
        let Some(mut core) = Core::new(&config) else { return };
        // Its first message of more than 100 bytes is eager in one role, a rendezvous in the other.
        for (role, len) in [("long", 101), ("flood-large", LARGE)] {
            let (_peer, endpoint) = core.meet(transport, role);
            let reason = core.run(endpoint.receive()).expect_err("cut off");
            assert!(
                matches!(reason, Error::TooLong { len: found, .. } if found == len),
                "{reason}"
            );
        }
        core.turn_until(|worker| worker.held() == IDLE);
    }
}

#[test]
fn a_header_too_long_is_refused_before_anything_is_sent() {
    let transport = Transport::Tcp;
    let Some(mut core) = Core::new(&transport.config()) else { return };
    let (_peer, endpoint) = core.meet(transport, "echo");
    let header = [0; HEADER_LEN_MAX + 1];
    let sent = core.run(endpoint.send(&header, NoPayload));
    assert_eq!(sent, Err(Error::LongHeader { len: HEADER_LEN_MAX + 1 }));
    assert_eq!(endpoint.failure(), None);
}

#[test]
fn sends_beyond_the_limit_wait_for_their_turn() {
    for transport in TRANSPORTS {
        let config = Config { send_max: 2, ..transport.config() };
        let Some(mut core) = Core::new(&config) else { return };
        let (peer, endpoint) = core.meet(transport, "listen");
        core.run(endpoint.receive()).expect("connected");
        let ended = Rc::new(Cell::new(0));
        for _ in 0..20 {
            let (send, ended) = (endpoint.send(b"", payload(vec![0; LARGE])), ended.clone());
            core.spawn(async move {
                send.await.expect("connected");
                ended.set(ended.get() + 1);
            });
        }
        let most = Cell::new(0);
        core.turn_until(|worker| {
            most.set(most.get().max(worker.held().operations));
            ended.get() == 20
        });
        assert!(most.get() <= 2, "{transport:?}: {} in flight", most.get());
        drop((peer, endpoint));
    }
}

/// A payload that tells when it is dropped.
struct Watched(Box<[AtomicU8]>, Rc<Cell<bool>>);

impl AsRef<[AtomicU8]> for Watched {
    fn as_ref(&self) -> &[AtomicU8] {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.set(true);
    }
}

#[test]
fn dropped_send_keeps_its_buffer() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (mut peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        peer.stop();
        let dropped = Rc::new(Cell::new(false));
        {
            let bytes = Watched(payload(vec![3; LARGE]), dropped.clone());
            let mut send = pin!(endpoint.send(b"large", bytes));
            let polled = send.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending), "{transport:?}: over too soon");
        }
        core.turn_for(Duration::from_millis(20));
        assert!(!dropped.get(), "{transport:?}: freed under way");

        peer.go_on();
        let back = core.run(endpoint.receive()).expect("connected");
        assert!(back.data.to_vec().iter().all(|byte| *byte == 3));
        core.turn_until(|_| dropped.get());
        peer.kill();
    }
}
