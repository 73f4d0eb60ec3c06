//! Reads the tables of transitions in the heads of modules, for tests that walk them.

/// The state that `event` leads to from `from`, as the table in the head of `source` says: a row is
/// an event and its transitions, and every other pair stays as it is.
///
/// # Panics
///
/// The table has no row of the event, or one with something else than edges.
#[must_use]
pub fn after<'a>(source: &'a str, event: &str, from: &'a str) -> &'a str {
    let row = |line: &'a str| {
        let row = line.strip_prefix("//! | ")?.strip_prefix(event)?.strip_prefix(" | ")?;
        row.strip_suffix(" |").filter(|row| row.contains(" -> "))
    };
    let edges = source.lines().find_map(row).expect("a row of the event").split(", ");
    let mut edges = edges.map(|edge| edge.split_once(" -> ").expect("an edge"));
    edges.find(|edge| edge.0 == from).map_or(from, |edge| edge.1)
}

/// An event by its name in a table, and how it happens to a state.
pub type Event<S> = (&'static str, fn(&mut S));

/// Lets every event happen to every state.
///
/// # Panics
///
/// One leads elsewhere than the table in the head of `source` says, or is left out.
pub fn walk<S: Clone + PartialEq>(source: &str, states: &[(&str, S)], events: &[Event<S>]) {
    let rows = source.lines().filter(|line| line.starts_with("//! | ") && line.contains(" -> "));
    assert_eq!(events.len(), rows.count(), "the table has a row for each event");
    for (event, happen) in events {
        for (from, state) in states {
            let mut state = state.clone();
            happen(&mut state);
            let to = states.iter().find(|(_, to)| *to == state).map(|(name, _)| *name);
            assert_eq!(to, Some(after(source, event, from)), "{event} of {from}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{after, walk};

    const TABLE: &str = "//! | open | a word |\n//! | open | shut -> ajar, ajar -> open |\n";

    #[test]
    fn pair_without_an_edge_stays_as_it_is() {
        let from = ["shut", "ajar", "open"];
        assert_eq!(from.map(|from| after(TABLE, "open", from)), ["ajar", "open", "open"]);
        let states = [("shut", 0), ("ajar", 1), ("open", 2)];
        walk(TABLE, &states, &[("open", |state| *state = 2.min(*state + 1))]);
    }

    #[test]
    #[should_panic(expected = "open of open")]
    fn walk_finds_an_edge_that_the_table_does_not_have() {
        let states = [("shut", 0), ("ajar", 1), ("open", 2)];
        walk(TABLE, &states, &[("open", |state| *state = (*state + 1) % 3)]);
    }
}
