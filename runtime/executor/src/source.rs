//! What an executor polls besides tasks: completion queues, lanes, sockets, workers.

use std::fmt;

/// Something on the poll list.
///
/// The executor visits every source once a turn, but at most 64 in one: the others of more have
/// their turn next. A source that stands for many things finds the ready ones itself. It wakes
/// tasks or spawns them through a handle it holds; it must not run for long, which is what `budget`
/// is for. A panic in it unwinds out of the executor and takes this source alone off the list.
pub trait Source {
    /// Handles up to `budget` events and returns how many; 0 means nothing was ready.
    ///
    /// Never blocks. Returning `budget` does not say that more is ready; the next turn asks again.
    fn poll(&mut self, budget: usize) -> usize;

    /// Prepares for the executor to block.
    ///
    /// On return either the next event will end the park, or something is ready already. Check for
    /// events *after* arming: one that came in between must not be lost.
    fn arm(&mut self) -> Armed;

    /// Undoes [`arm`](Self::arm). Also called on sources that were not armed.
    fn disarm(&mut self);
}

/// What [`Source::arm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Something is ready: do not block.
    Busy,
    /// The next event will end the park.
    Waits,
}

/// Names a source of one executor; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(u64);

/// The poll list of one executor.
///
/// A source is taken out while it is visited, so that it may add and remove sources, itself too.
#[derive(Default)]
pub(crate) struct Sources {
    entries: Vec<Entry>,
    next_id: u64,
}

struct Entry {
    id: SourceId,
    /// `None` while the source is being visited.
    source: Option<Box<dyn Source>>,
}

impl Sources {
    pub(crate) fn add(&mut self, source: Box<dyn Source>) -> SourceId {
        let id = SourceId(self.next_id);
        self.next_id += 1;
        self.entries.push(Entry { id, source: Some(source) });
        id
    }

    /// Returns the source unless it is unknown or being visited; a visited one is dropped after.
    pub(crate) fn remove(&mut self, id: SourceId) -> Option<Box<dyn Source>> {
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        self.entries.remove(index).source
    }

    /// Sources on the list.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Takes the source at `index` out for a visit; `None` past the end of the list.
    pub(crate) fn check_out(&mut self, index: usize) -> Option<(SourceId, Box<dyn Source>)> {
        loop {
            let entry = self.entries.get_mut(index)?;
            if let Some(source) = entry.source.take() {
                return Some((entry.id, source));
            }
            self.entries.remove(index); // Its last visit ended in a panic, which dropped it.
        }
    }

    /// Puts a visited source back and returns the index after it.
    ///
    /// When it was removed meanwhile, returns it for the caller to drop, and the index unchanged:
    /// the source behind it has moved there.
    pub(crate) fn check_in(
        &mut self,
        index: usize,
        id: SourceId,
        source: Box<dyn Source>,
    ) -> (usize, Option<Box<dyn Source>>) {
        let is_it = |entry: &Entry| entry.id == id;
        // Where it was, but for a list that it has changed itself.
        let is_there = self.entries.get(index).is_some_and(is_it);
        let at = if is_there { Some(index) } else { self.entries.iter().position(is_it) };
        match at {
            Some(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.source = Some(source);
                }
                (at + 1, None)
            }
            None => (index, Some(source)),
        }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| entry.id)).finish()
    }
}
