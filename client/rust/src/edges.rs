//! Reads the tables of transitions in the heads of modules, for tests that walk them.

use std::string::String;

/// The state that `event` leads to from `from`, as the table in the head of `source` says: a row is
/// an event and its transitions, and every other pair stays as it is.
pub(crate) fn after<'a>(source: &'a str, event: &str, from: &'a str) -> &'a str {
    let start = String::from("//! | ") + event + " | ";
    let rows = source.lines().filter_map(|line| line.strip_prefix(&start)?.strip_suffix(" |"));
    let mut rows = rows.filter(|row| row.contains(" -> "));
    let edges = rows.next().expect("a row of the event").split(", ");
    let mut edges = edges.map(|edge| edge.split_once(" -> ").expect("an edge"));
    edges.find(|edge| edge.0 == from).map_or(from, |edge| edge.1)
}
