//! Walks every transition of the table in the module's head.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    vec::Vec,
};

use super::*;
use crate::{
    connection::{Connection, tests::unanswered},
    slot::Slot,
    slots::Holder,
    staging::log_of,
};

const STATES: [&str; 14] = [
    "fresh",
    "linked",
    "unfit",
    "staging",
    "delegated",
    "delegated + unfit",
    "delegated + log",
    "remote",
    "remote + log",
    "bundled",
    "at rest",
    "detached",
    "closed",
    "lost",
];

fn link(connection: &'static Connection) -> Link {
    Slot::take(connection, Holder::Server).expect("a slot is free").into_link(false)
}

fn state(connection: &'static Connection, name: &str) -> State {
    let link = link(connection);
    let (descriptor, staging) = match name {
        "fresh" => return State::Fresh,
        "bundled" => {
            return State::Bundled(Bundled { link, lease: 0, len: 0, recalled: 0, torn: 0 });
        }
        "at rest" => {
            let seen = Seen::default();
            return State::AtRest(AtRest { link, lease: 0, seen, source: 0, at: 0, size: 0 });
        }
        "detached" => return State::Detached(Reason::Rule),
        "closed" => return State::Closed,
        "lost" => return State::Lost,
        "linked" => (Descriptor::Real, ""),
        "unfit" => (Descriptor::Real, "unfit"),
        "staging" => (Descriptor::Real, "log"),
        _ if name.starts_with("remote") => (Descriptor::Remote, name),
        _ => (Descriptor::Placeholder, name),
    };
    let mut state = State::opened(link, descriptor);
    if staging.ends_with("log") {
        state.attach(log(connection));
    } else if staging.ends_with("unfit") {
        state.refuse(Reason::Mapped);
    }
    state
}

fn log(connection: &'static Connection) -> Log {
    log_of(connection, 64 << 10, crate::log::Drains::Here, 0).expect("the arena has room")
}

fn name(state: &State) -> &'static str {
    match state {
        State::Fresh => "fresh",
        State::Served(Served { descriptor, staging, .. }) => match (descriptor, staging) {
            (Descriptor::Real, Staging::NotYet) => "linked",
            (Descriptor::Real, Staging::Unfit(_)) => "unfit",
            (Descriptor::Real, Staging::Log(_)) => "staging",
            (Descriptor::Placeholder, Staging::NotYet) => "delegated",
            (Descriptor::Placeholder, Staging::Unfit(_)) => "delegated + unfit",
            (Descriptor::Placeholder, Staging::Log(_)) => "delegated + log",
            (Descriptor::Remote, Staging::NotYet) => "remote",
            (Descriptor::Remote, Staging::Unfit(_)) => "remote + unfit",
            (Descriptor::Remote, Staging::Log(_)) => "remote + log",
        },
        State::Bundled(_) => "bundled",
        State::AtRest(_) => "at rest",
        State::Detached(_) => "detached",
        State::Closed => "closed",
        State::Lost => "lost",
    }
}

fn happen(connection: &'static Connection, event: &str, state: &mut State) {
    match event {
        "link" => state.link_to(link(connection), None),
        "attach" => state.attach(log(connection)),
        "refuse" => state.refuse(Reason::Mapped),
        "substitute" => state.substitute(),
        "unlink" => state.unlink(),
        "lose" => state.lose(),
        "promote" => state.promote(link(connection)),
        "close" => state.close(),
        "fork" => state.fork(false),
        "fork to write" => state.fork(true),
        event => panic!("unknown event {event}"),
    }
}

/// The transitions of the table in this file's head.
fn documented() -> Vec<(&'static str, &'static str, &'static str)> {
    let rows = include_str!("../state.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter_map(|row| row.strip_suffix(" |")?.split_once(" | "));
    let rows = rows.filter(|(_, edges)| edges.contains(" -> "));
    rows.flat_map(|(event, edges)| {
        edges.split(", ").map(move |edge| {
            let (from, to) = edge.split_once(" -> ").expect("an edge");
            (event, from, to)
        })
    })
    .collect()
}

#[test]
fn every_documented_transition_leads_where_the_table_says() {
    let connection = unanswered();
    for (event, from, to) in documented() {
        let mut state = state(connection, from);
        assert_eq!(name(&state), from);
        happen(connection, event, &mut state);
        assert_eq!(name(&state), to, "{event} of {from}");
    }
}

#[test]
fn every_other_pair_of_state_and_event_changes_nothing() {
    let documented = documented();
    let events: BTreeSet<_> = documented.iter().map(|(event, ..)| *event).collect();
    let is_edge =
        |event: &str, from: &str| documented.iter().any(|edge| (edge.0, edge.1) == (event, from));
    for event in events {
        let connection = unanswered();
        for from in STATES.into_iter().filter(|from| !is_edge(event, from)) {
            let walked = catch_unwind(AssertUnwindSafe(|| {
                let mut state = state(connection, from);
                happen(connection, event, &mut state);
                name(&state)
            }));
            // A debug build panics where the event is a fault.
            assert_eq!(walked.unwrap_or(from), from, "{event} of {from}");
        }
    }
}

#[test]
fn predicates_follow_from_the_state() {
    let connection = unanswered();
    let all = STATES.map(|name| (name, state(connection, name)));
    let named = |is: fn(&State) -> bool| {
        all.iter().filter(|(_, state)| is(state)).map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(
        named(State::is_placeholder),
        STATES[4..=10].iter().chain(&STATES[12..]).copied().collect::<Vec<_>>()
    );
    assert_eq!(named(State::is_delegated), STATES[4..=6]);
    assert_eq!(
        named(|state| state.refusal().is_some()),
        ["unfit", "delegated + unfit", "detached", "lost"]
    );
    assert_eq!(named(State::is_over), ["detached", "closed", "lost"]);
    assert_eq!(named(|state| state.link().is_some()), STATES[1..=8]);
    assert_eq!(
        named(|state| state.log().is_some()),
        ["staging", "delegated + log", "remote + log"]
    );
}
