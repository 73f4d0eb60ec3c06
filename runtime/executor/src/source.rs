//! Sources that an executor polls besides tasks: completion queues, lanes, sockets, workers.

use std::{cell::Cell, rc::Rc};

/// Something on the poll list.
///
/// The executor visits every source once a turn, and after a block before its slice, too. A source
/// that stands for many things finds the ready ones itself. It wakes tasks or spawns them through a
/// handle it holds; it must not run for long, which is what `budget` is for. A panic in it unwinds
/// out of the executor and takes this source alone off the list.
pub trait Source {
    /// Handles up to `budget` events and returns how many; 0 means nothing was ready.
    ///
    /// Never blocks. Returning `budget` does not say that more is ready; the next turn asks again.
    fn poll(&mut self, budget: usize) -> usize;

    /// Prepares for the executor to block.
    ///
    /// On return either the next event will end the park, or something is ready already. Check for
    /// events *after* arming: one that came in between must not be lost.
    /// The visit after the block finds it armed; of several sources, some may be armed for a block
    /// that another prevents.
    fn arm(&mut self) -> Armed;
}

/// Result of [`Source::arm`].
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
#[derive(Default)]
pub(crate) struct Sources {
    entries: Vec<Rc<Entry>>,
    next_id: u64,
}

/// A source on the list, and for as long as it is visited.
pub(crate) struct Entry {
    pub(crate) id: SourceId,
    /// `None` while it is visited, so that it may add and remove sources, itself too.
    source: Cell<Option<Box<dyn Source>>>,
}

impl Entry {
    /// Returns what `visit` does; `None` when an earlier visit has ended in a panic, which has
    /// dropped the source.
    pub(crate) fn visit<T>(&self, visit: impl FnOnce(&mut dyn Source) -> T) -> Option<T> {
        let mut source = self.source.take()?;
        let value = visit(&mut *source);
        self.source.set(Some(source));
        Some(value)
    }
}

impl Sources {
    pub(crate) fn add(&mut self, source: Box<dyn Source>) -> SourceId {
        let id = SourceId(self.next_id);
        self.next_id += 1;
        self.entries.push(Rc::new(Entry { id, source: Cell::new(Some(source)) }));
        id
    }

    /// Returns the source's entry, if it is on the list, for the caller to drop.
    pub(crate) fn remove(&mut self, id: SourceId) -> Option<Rc<Entry>> {
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(index))
    }

    /// The entry at `index`; `None` past the end of the list.
    pub(crate) fn at(&self, index: usize) -> Option<Rc<Entry>> {
        self.entries.get(index).cloned()
    }

    /// The index behind `entry`, which was at `index` before it was visited: it may have changed
    /// the list. If it has taken itself off, the entry behind it has moved there.
    pub(crate) fn behind(&self, index: usize, entry: &Rc<Entry>) -> usize {
        let is_it = |other: &Rc<Entry>| Rc::ptr_eq(other, entry);
        if self.entries.get(index).is_some_and(is_it) {
            return index + 1;
        }
        self.entries.iter().position(is_it).map_or(index, |at| at + 1)
    }
}
