//! The engine of a few threads that make plain, blocking system calls.
//!
//! Threads start when there is more to do than idle threads, up to a limit. A finished operation
//! travels back with its result and is freed on the executor's thread. Dropping the engine closes
//! the queue and waits for nobody: each thread owns what it works on, finishes what is queued, and
//! ends.
//!
//! Half of the threads at most work for one device: one that stands still, as a file server that
//! does not answer, leaves the others to the rest.
//!
//! Two mutexes, each guarding its queue together with the word that says who sleeps on it, so no
//! wake-up falls between a look and a sleep.

use std::{
    collections::VecDeque,
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use executor::{Armed, Unpark};

use crate::{
    engine::{Engine, Token},
    memory::{Buffer, Heap},
    operation::{Operation, SINK_LEN},
    plain,
};

/// Most operations taken and not yet reaped.
const IN_FLIGHT_MAX: usize = 1024;

/// Stands for the device of calls on names, which may be any.
pub(crate) const ANY_DEVICE: u64 = u64::MAX;
/// Stands for other programs, which a call may wait for.
pub(crate) const PROGRAMS: u64 = u64::MAX - 1;

/// A lazily started pool of engine threads.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    thread_max: usize,
    thread_count: usize,
    in_flight: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Rung when the queue gets an operation or closes.
    work: Condvar,
    done: Mutex<Done>,
    unparker: Arc<dyn Unpark>,
    sink: Buffer,
    /// Threads that work for one device.
    device_max: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The devices for which threads work, one for each thread.
    working: Vec<u64>,
    idle_count: usize,
    closed: bool,
}

struct Waiting {
    device: u64,
    token: Token,
    operation: Operation,
}

#[derive(Default)]
struct Done {
    finished: VecDeque<Finished>,
    /// The executor blocks, or is about to.
    armed: bool,
}

struct Finished {
    token: Token,
    result: io::Result<u64>,
    operation: Option<Operation>,
}

impl Threads {
    /// An engine of at most `thread_max` threads (at least one); none is started yet.
    #[must_use]
    pub(crate) fn new(thread_max: usize, unparker: Arc<dyn Unpark>) -> Self {
        let thread_max = thread_max.max(1);
        let shared = Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            unparker,
            sink: Heap::buffer(SINK_LEN),
            device_max: thread_max.div_ceil(2),
        };
        Self { shared: Arc::new(shared), thread_max, thread_count: 0, in_flight: 0 }
    }

    /// Most threads this engine starts.
    #[must_use]
    pub(crate) fn thread_max(&self) -> usize {
        self.thread_max
    }

    /// As [`submit`](Engine::submit), for an operation that waits for a device.
    pub(crate) fn submit_for(
        &mut self,
        device: u64,
        operation: Operation,
        token: Token,
    ) -> Result<(), Operation> {
        if self.in_flight == IN_FLIGHT_MAX {
            return Err(operation);
        }
        self.in_flight += 1;
        let mut queue = lock(&self.shared.queue);
        queue.waiting.push_back(Waiting { device, token, operation });
        let short_of_threads = queue.waiting.len() > queue.idle_count;
        drop(queue);
        self.shared.work.notify_one();
        if short_of_threads && self.thread_count < self.thread_max {
            self.start_thread();
            if self.thread_count == 0 {
                self.shared.work_once(); // The machine has no thread for us: slow, not stuck.
            }
        }
        Ok(())
    }

    fn start_thread(&mut self) {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("kakehi-engine".to_owned());
        if builder.spawn(move || shared.work()).is_ok() {
            self.thread_count += 1;
        }
    }
}

impl Engine for Threads {
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Operation> {
        self.submit_for(ANY_DEVICE, operation, token)
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        if self.in_flight == 0 {
            return 0;
        }
        for count in 0..budget {
            let mut all = lock(&self.shared.done);
            all.armed = false;
            let finished = all.finished.pop_front();
            drop(all);
            let Some(Finished { token, result, operation }) = finished else { return count };
            self.in_flight -= 1;
            drop(operation);
            done(token, result);
        }
        budget
    }

    fn arm(&mut self) -> Armed {
        if self.in_flight == 0 {
            return Armed::Waits;
        }
        let mut done = lock(&self.shared.done);
        done.armed = done.finished.is_empty();
        if done.armed { Armed::Waits } else { Armed::Busy }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    /// The life of an engine thread.
    fn work(&self) {
        while let Some(Waiting { device, token, operation }) = self.next() {
            self.finish(token, operation);
            let mut queue = lock(&self.queue);
            let ours = queue.working.iter().position(|working| *working == device);
            ours.map(|ours| queue.working.swap_remove(ours));
        }
    }

    /// Works off one queued operation, if there is one, on the calling thread.
    fn work_once(&self) {
        let next = lock(&self.queue).waiting.pop_front();
        if let Some(Waiting { token, operation, .. }) = next {
            self.finish(token, operation);
        }
    }

    /// Waits for an operation; `None` when the queue is empty and closed. What waits for a device
    /// that has its threads is taken by one of those.
    fn next(&self) -> Option<Waiting> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.take(self.device_max) {
                return Some(next);
            }
            if queue.closed {
                return None;
            }
            queue.idle_count += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle_count -= 1;
        }
    }

    fn finish(&self, token: Token, operation: Operation) {
        let (result, operation) = plain::perform(operation, usize::MAX, &self.sink);
        let mut done = lock(&self.done);
        done.finished.push_back(Finished { token, result, operation });
        let armed = mem::take(&mut done.armed);
        drop(done);
        if armed {
            self.unparker.unpark();
        }
    }
}

impl Queue {
    /// The oldest operation whose device has fewer than `device_max` threads.
    fn take(&mut self, device_max: usize) -> Option<Waiting> {
        let threads_of = |device| self.working.iter().filter(|one| **one == device).count();
        let is_next = |waiting: &Waiting| threads_of(waiting.device) < device_max;
        let index = self.waiting.iter().position(is_next)?;
        let next = self.waiting.remove(index)?;
        self.working.push(next.device);
        Some(next)
    }
}

/// Both queues are consistent between any two statements, so a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Nobody;

    impl Unpark for Nobody {
        fn unpark(&self) {}
    }

    #[test]
    fn a_device_that_stands_still_leaves_threads_to_the_others() {
        let mut threads = Threads::new(4, Arc::new(Nobody));
        let (stuck, stands_still) = mpsc::channel::<()>();
        let stands_still = Arc::new(Mutex::new(stands_still));
        for number in 0..20 {
            let stands_still = Arc::clone(&stands_still);
            let call = move || {
                lock(&stands_still).recv().ok();
                Ok(0)
            };
            let operation = Operation::Call(Box::new(call));
            threads.submit_for(1, operation, Token(number)).expect("room");
        }
        let (tell, told) = mpsc::channel();
        let call = move || {
            tell.send(()).ok();
            Ok(0)
        };
        threads.submit_for(2, Operation::Call(Box::new(call)), Token(20)).expect("room");
        told.recv_timeout(std::time::Duration::from_secs(60)).expect("a thread is left");
        drop(stuck);
        let mut done = 0;
        while done < 21 {
            done += threads.reap(usize::MAX, &mut |_, _| {});
            thread::yield_now();
        }
    }
}
