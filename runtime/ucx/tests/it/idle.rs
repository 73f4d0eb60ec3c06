//! A parked executor is woken by every message.

use ucx::NoPayload;

use crate::support::{Core, TRANSPORTS};

/// Parks that a message must end.
const PARKS_MIN: u64 = 1000;

/// An answer may be there before the executor parks, but not every time.
const ROUNDS_MAX: u64 = 50 * PARKS_MIN;

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
        core.turn_for(std::time::Duration::from_millis(500));
        let turns = core.executor.counters().turns - turns;
        assert!(turns < 1000, "{transport:?}: {turns} turns");
    }
}
