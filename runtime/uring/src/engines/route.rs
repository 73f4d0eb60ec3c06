//! Which engine executes what, and what has to be had for that first.

use executor::{Credit, Credits};
use rustix::time::{ClockId, clock_gettime};

use super::{Engines, State};
use crate::{
    engines::Choice,
    file::{Kind, Storage},
    operation::Operation,
    threads::ANY_DEVICE,
    ways::{Way, memory_is_dirty},
};

/// Operations that may be in flight for one device on threads. Who waits for one that stands still
/// waits in a line of its own: the rest never find the executor full of those.
const DEVICE_IN_FLIGHT_MAX: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Inline,
    /// Inline as far as the page cache goes.
    Cached,
    Ring,
    Threads,
}

/// The rights to have operations in flight, given out in order of asking.
pub(super) struct Rights {
    /// For those that do not go to threads.
    all: Credits,
    /// By device.
    of_threads: Vec<(u64, Credits)>,
}

impl Rights {
    pub(super) fn new(count: u64) -> Self {
        Self { all: Credits::new(count), of_threads: Vec::new() }
    }

    /// Those of which an operation needs one, if any: what is done on the spot is never in flight
    /// for long.
    fn of(&mut self, route: Route, storage: Option<Storage>) -> Option<&Credits> {
        match route {
            Route::Inline => None,
            Route::Cached | Route::Ring => Some(&self.all),
            Route::Threads => {
                let device = storage.map_or(ANY_DEVICE, |storage| storage.device);
                Some(self.of_device(device))
            }
        }
    }

    /// Takes one if the operation needs one; fails if it has to wait for it in line.
    pub(super) fn try_take(
        &mut self,
        route: Route,
        storage: Option<Storage>,
    ) -> Result<Option<Credit>, ()> {
        match self.of(route, storage) {
            Some(rights) => rights.try_take(1).map(Some).ok_or(()),
            None => Ok(None),
        }
    }

    fn of_device(&mut self, device: u64) -> &Credits {
        let known = &mut self.of_threads;
        let place = known.iter().position(|(other, _)| *other == device).unwrap_or_else(|| {
            known.retain(|(_, credits)| credits.available() < credits.total());
            known.push((device, Credits::new(DEVICE_IN_FLIGHT_MAX)));
            known.len() - 1
        });
        &known.get(place).expect("it was found, or made").1
    }
}

impl Engines {
    /// The rights of which an operation needs one to be in flight, if any.
    pub(crate) fn rights(
        &self,
        storage: Option<Storage>,
        operation: &Operation,
    ) -> Option<Credits> {
        let mut state = self.0.state.borrow_mut();
        let route = state.route(storage, operation, &self.0.handle);
        state.rights.of(route, storage).cloned()
    }
}

impl Engines {
    /// The way of a long stream's write of `len` bytes to `device`.
    pub(crate) fn way(&self, device: u64, len: u64) -> Way {
        let mut state = self.0.state.borrow_mut();
        let State { choice, ring, slow, ways, .. } = &mut *state;
        if ring.is_err() || *choice == Choice::Threads {
            return Way::Cached;
        }
        let cpu = || clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default();
        let is_pressed = || slow.contains(device, &self.0.handle) || memory_is_dirty();
        ways.take(device, len, self.0.handle.now(), cpu, is_pressed)
    }
}

impl State {
    pub(super) fn route(
        &self,
        storage: Option<Storage>,
        operation: &Operation,
        clock: &impl executor::Clock,
    ) -> Route {
        let route = storage.map_or(Route::Threads, |Storage { kind, device, .. }| {
            route(self.choice, kind, operation, self.slow.contains(device, clock))
        });
        if route == Route::Ring && self.ring.is_err() { Route::Threads } else { route }
    }
}

/// The table at the head of the engines. `slow`: the device was slow to take a write.
pub(super) fn route(choice: Choice, kind: Kind, operation: &Operation, slow: bool) -> Route {
    match (choice, kind, operation) {
        (Choice::Threads, ..) | (_, _, Operation::Call(_)) => Route::Threads,
        (Choice::Uring, ..) | (_, Kind::Direct, _) => Route::Ring,
        (_, Kind::Memory, _) => Route::Inline,
        (_, Kind::Other, _) => Route::Threads,
        (_, Kind::Cached, Operation::Read { .. }) => Route::Cached,
        (_, Kind::Cached, Operation::Write { .. }) if slow => Route::Threads,
        (_, Kind::Cached, Operation::Write { .. }) => Route::Inline,
        (_, Kind::Cached, Operation::Sync { .. } | Operation::Fetch { .. }) => Route::Ring,
    }
}
