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

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn pair_without_an_edge_stays_as_it_is() {
        let table = "//! | open | a word |\n//! | open | shut -> ajar, ajar -> open |\n";
        assert_eq!(
            ["shut", "ajar", "open"].map(|from| after(table, "open", from)),
            ["ajar", "open", "open"]
        );
    }
}
