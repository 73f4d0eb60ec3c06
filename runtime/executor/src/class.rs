//! Scheduling classes.

/// Scheduling class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Requests somebody waits for: up to a slice of polls each turn.
    Latency,
    /// Drains, read-ahead: one poll each turn, whose length the task's author bounds.
    Throughput,
}

/// One of a thing for each class.
#[derive(Debug, Default)]
pub(crate) struct PerClass<T> {
    pub(crate) latency: T,
    pub(crate) throughput: T,
}

impl<T> PerClass<T> {
    pub(crate) fn of(&mut self, class: Class) -> &mut T {
        match class {
            Class::Latency => &mut self.latency,
            Class::Throughput => &mut self.throughput,
        }
    }
}
