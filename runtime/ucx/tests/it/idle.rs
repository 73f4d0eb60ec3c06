//! A parked executor is woken by every message.

use std::time::Duration;

use ucx::{NoPayload, payload};

use crate::support::{Core, LARGE, TRANSPORTS};

/// Parks that a message must end.
const PARKS_MIN: u64 = 1000;

/// An answer may be there before the executor parks, but not every time.
const ROUNDS_MAX: u64 = 50 * PARKS_MIN;

/// How long nothing is to happen, and how often it is looked at.
const QUIET: Duration = Duration::from_secs(4);
const A_WHILE: Duration = Duration::from_millis(250);

#[test]
fn no_wake_up_is_lost_between_two_parked_executors() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (_peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        let start = core.executor.counters().parks;
        for _ in 0..ROUNDS_MAX {
            core.run(endpoint.send(b"ping", NoPayload)).expect("connected");
            core.run(endpoint.receive()).expect("connected");
            if core.executor.counters().parks - start >= PARKS_MIN {
                break;
            }
        }
        let parks = core.executor.counters().parks - start;
        assert!(parks >= PARKS_MIN, "{transport:?}: parked {parks} times");
    }
}

#[test]
fn an_executor_without_messages_sleeps() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::new(&transport.config()) else { return };
        let (_peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        let turns = core.executor.counters().turns;
        core.turn_for(Duration::from_millis(500));
        let turns = core.executor.counters().turns - turns;
        assert!(turns < 1000, "{transport:?}: {turns} turns");
    }
}

/// Else one that polls until nothing has happened for a time would poll for ever.
#[test]
fn where_nothing_happens_nothing_is_counted() {
    for transport in TRANSPORTS {
        let Some(mut core) = Core::spinning(&transport.config()) else { return };
        let (_peer, endpoint) = core.meet(transport, "echo");
        core.run(endpoint.receive()).expect("connected");
        for len in [1000, 32 << 10, LARGE] {
            core.run(endpoint.send(b"ping", payload(vec![1; len]))).expect("connected");
            core.run(endpoint.receive()).expect("connected");
        }
        let mut quiet = Duration::ZERO;
        for _ in 0..40 {
            let before = core.executor.counters().source_events;
            core.turn_for(A_WHILE);
            let is_quiet = core.executor.counters().source_events == before;
            quiet = if is_quiet { quiet + A_WHILE } else { Duration::ZERO };
            if quiet >= QUIET {
                break;
            }
        }
        assert!(quiet >= QUIET, "{transport:?}: something happens all the time");
    }
}
