//! A peer that is killed is noticed, in bounded time, and nothing stays behind.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use ucx::{Error, payload};

use crate::support::{Core, IDLE, LARGE, TRANSPORTS};

/// Longer than a look at peers takes on a busy machine; UCX's own default would be 20 s and more.
const NOTICED_MAX: Duration = Duration::from_secs(18);

#[test]
fn sends_to_a_killed_peer_end_and_so_does_the_connection() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (mut peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        peer.stop();
        let ended = Rc::new(Cell::new(0));
        for number in 0..40 {
            let len = if number % 2 == 0 { LARGE } else { 4000 };
            let (send, ended) = (endpoint.send(b"mid", payload(vec![1; len])), ended.clone());
            core.spawn(async move {
                send.await.ok(); // An eager one has ended well before the death.
                ended.set(ended.get() + 1);
            });
        }
        core.turn_for(Duration::from_millis(50));
        assert!(core.worker.held().operations >= 10, "{transport:?}: nothing is in flight");

        peer.kill();
        let killed = Instant::now();
        let reason = core.run(async {
            loop {
                if let Err(reason) = endpoint.receive().await {
                    break reason; // After what it returned before it stopped.
                }
            }
        });
        assert!(matches!(reason, Error::Disconnected(_)), "{transport:?}: {reason}");
        core.turn_until(|worker| ended.get() == 40 && worker.held() == IDLE);
        assert!(killed.elapsed() < NOTICED_MAX, "{transport:?}: took {:?}", killed.elapsed());
        assert!(core.run(endpoint.send(b"late", payload(vec![]))).is_err());
    }
}

#[test]
fn an_idle_connection_notices_the_death_of_its_peer() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (mut peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        peer.kill();
        let killed = Instant::now();
        core.run(endpoint.receive()).expect_err("nobody is there");
        assert!(killed.elapsed() < NOTICED_MAX, "{transport:?}: took {:?}", killed.elapsed());
        core.turn_until(|worker| worker.held() == IDLE);
    }
}

#[test]
fn a_sender_killed_in_the_middle_leaves_no_buffer_taken() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (mut peer, endpoint) = core.meet(transport, "flood-large");
        for _ in 0..20 {
            core.run(endpoint.receive()).expect("connected");
        }
        peer.kill();
        core.run(async { while endpoint.receive().await.is_ok() {} });
        core.turn_until(|worker| worker.held() == IDLE);
    }
}

#[test]
fn dropping_an_endpoint_ends_what_is_in_flight_though_the_peer_stands_still() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        peer.stop();
        for _ in 0..5 {
            let send = endpoint.send(b"last", payload(vec![1; LARGE]));
            core.spawn(async move { drop(send.await) });
        }
        core.turn_for(Duration::from_millis(20));
        drop(endpoint);
        core.turn_until(|worker| worker.held() == IDLE);
    }
}
