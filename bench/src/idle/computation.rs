//! Threads that compute without end, as many on every core.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use crate::worker;

/// Progress of the computing threads.
#[derive(Debug)]
pub(super) struct Computation {
    steps: Vec<Steps>,
    is_over: AtomicBool,
}

/// Steps of one thread, which shares no cache line with another.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Steps(AtomicU64);

impl Computation {
    /// Runs `body` while so many threads compute.
    pub(super) fn run_beside<T>(thread_count: usize, body: impl FnOnce(&Self) -> T) -> T {
        let steps = (0..thread_count).map(|_| Steps::default()).collect();
        let computation = Self { steps, is_over: AtomicBool::new(false) };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for (index, steps) in computation.steps.iter().enumerate() {
                let is_over = &computation.is_over;
                scope.spawn(move || {
                    // Where it cannot be had, threads that share a core are part of the noise.
                    worker::pin(Some(index % cores)).ok();
                    compute(&steps.0, is_over);
                });
            }
            let _end = End(&computation.is_over);
            body(&computation)
        })
    }

    /// Steps of all threads since they began.
    pub(super) fn steps(&self) -> u64 {
        self.steps.iter().map(|steps| steps.0.load(Relaxed)).sum()
    }
}

/// Ends a computation, also when what runs beside it panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn compute(steps: &AtomicU64, is_over: &AtomicBool) {
    let mut value = 1u64;
    while !is_over.load(Relaxed) {
        for _ in 0..2000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        black_box(value);
        steps.fetch_add(1, Relaxed);
    }
}
