//! Wakes from another thread against the executor, in every order loom can make.
//!
//! The park is a mutex with a condition variable: a lost wake-up is a deadlock, which loom reports.

use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use loom::{
    sync::{Condvar, Mutex, atomic::AtomicU32, atomic::Ordering},
    thread,
};

use crate::{Class, Config, Executor, ManualClock, Notify, Park, Unpark};

#[derive(Default)]
struct LoomPark(Arc<Bell>);

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Park for LoomPark {
    fn park(&mut self, _timeout: Option<Duration>) {
        let mut rung = self.0.rung.lock().expect("no panic in a holder");
        while !*rung {
            rung = self.0.changed.wait(rung).expect("no panic in a holder");
        }
        *rung = false;
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.0.clone()
    }
}

impl Unpark for Bell {
    fn unpark(&self) {
        *self.rung.lock().expect("no panic in a holder") = true;
        self.changed.notify_one();
    }
}

fn executor() -> Executor {
    Executor::new(Rc::new(ManualClock::new()), Box::<LoomPark>::default(), Config::default())
}

/// A value set by one thread and waited for by a task.
#[derive(Default)]
struct Flag {
    value: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Flag {
    /// Waits until the value is at least `least`.
    async fn reached(&self, least: u32) {
        poll_fn(|context| {
            *self.waker.lock().expect("no panic in a holder") = Some(context.waker().clone());
            let reached = self.value.load(Ordering::Relaxed) >= least;
            if reached { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn set(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
        if let Some(waker) = self.waker.lock().expect("no panic in a holder").take() {
            waker.wake();
        }
    }
}

#[test]
fn a_remote_wake_is_never_lost_to_a_park() {
    loom::model(|| {
        let mut executor = executor();
        let flag = Arc::new(Flag::default());
        let remote = thread::spawn({
            let flag = flag.clone();
            move || flag.set(1)
        });

        executor.run_until(flag.reached(1));

        remote.join().expect("no panic");
    });
}

#[test]
fn a_remote_wake_of_a_spawned_task_is_never_lost() {
    loom::model(|| {
        let mut executor = executor();
        let (flag, done) = (Arc::new(Flag::default()), Notify::new());
        let (own, finished) = (flag.clone(), done.clone());
        executor.handle().spawn(Class::Throughput, async move {
            own.reached(1).await;
            finished.notify_all();
        });
        let remote = thread::spawn(move || flag.set(1));

        executor.run_until(done.notified());

        remote.join().expect("no panic");
    });
}

#[test]
fn two_remote_wakes_at_once_are_both_seen() {
    // Three threads without a bound take minutes; two preemptions reach every pair of steps.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let mut executor = executor();
        let flags = [Arc::new(Flag::default()), Arc::new(Flag::default())];
        let remotes = flags.clone().map(|flag| thread::spawn(move || flag.set(1)));

        executor.run_until(async {
            for flag in &flags {
                flag.reached(1).await;
            }
        });

        for remote in remotes {
            remote.join().expect("no panic");
        }
    });
}

/// The second wake finds the task queued and pushes nothing; its value must be seen all the same.
///
/// The waker is fixed, so that nothing but `queued` orders the value.
#[test]
fn later_wake_is_seen_by_the_poll_it_joins() {
    loom::model(|| {
        let mut executor = executor();
        let value = Arc::new(AtomicU32::new(0));
        let mut remote = None;

        executor.run_until(poll_fn(|context| {
            remote.get_or_insert_with(|| {
                let (value, waker) = (value.clone(), context.waker().clone());
                thread::spawn(move || {
                    for now in 1..=2 {
                        value.store(now, Ordering::Relaxed);
                        waker.wake_by_ref();
                    }
                })
            });
            let last = value.load(Ordering::Relaxed) == 2;
            if last { Poll::Ready(()) } else { Poll::Pending }
        }));

        remote.expect("started").join().expect("no panic");
    });
}

/// Whichever comes first: the stale wake, the poll that finds the slot empty, the next task in it.
#[test]
fn a_stale_wake_costs_the_next_task_of_its_slot_no_wake() {
    loom::model(|| {
        let mut executor = executor();
        let handle = executor.handle();
        let (flag, done) = (Arc::new(Flag::default()), Notify::new());
        let waker = Rc::new(Cell::new(None));
        let own = waker.clone();
        handle.start(
            Class::Throughput,
            poll_fn(move |context| {
                own.set(Some(context.waker().clone()));
                Poll::Ready(())
            }),
        );
        let remote = thread::spawn({
            let (stale, flag): (Waker, _) = (waker.take().expect("was polled"), flag.clone());
            move || {
                stale.wake();
                flag.set(1);
            }
        });

        executor.turn();
        let finished = done.clone();
        handle.spawn(Class::Throughput, async move {
            flag.reached(1).await;
            finished.notify_all();
        });
        executor.run_until(done.notified());

        remote.join().expect("no panic");
    });
}
