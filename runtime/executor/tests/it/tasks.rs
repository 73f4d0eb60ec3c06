//! Spawning, waking, finishing, and the end of the executor.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::{Arc, Condvar, Mutex, mpsc},
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use executor::{Class, Config, Executor, ManualClock, Park, Unpark, yield_now};

use crate::support::{Log, Machine, Scripted};

#[test]
fn run_until_returns_a_value_that_borrows() {
    let mut executor = Machine::default().executor(Config::default());
    let text = String::from("from a distant spring");

    let word = executor.run_until(async {
        yield_now().await;
        text.split(' ').next_back()
    });

    assert_eq!(word, Some("spring"));
}

#[test]
fn a_started_task_is_polled_at_once_and_then_like_any_other() {
    let mut executor = Machine::default().executor(Config::default());
    let steps = Rc::new(RefCell::new(Vec::new()));
    let (handle, log) = (executor.handle(), Rc::clone(&steps));
    executor.handle().spawn(Class::Latency, async move {
        log.borrow_mut().push("caller");
        let inner = Rc::clone(&log);
        handle.start(Class::Latency, async move {
            inner.borrow_mut().push("started");
            yield_now().await;
            inner.borrow_mut().push("woken");
        });
        handle.start(Class::Latency, async {});
        log.borrow_mut().push("caller again");
    });

    executor.turn();

    assert_eq!(*steps.borrow(), ["caller", "started", "caller again", "woken"]);
    assert!(!executor.turn(), "a task is left");
}

#[test]
fn a_task_woken_twice_is_polled_once() {
    let mut executor = Machine::default().executor(Config::default());
    let (polls, waker) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Waker::noop().clone())));
    let (count, slot) = (polls.clone(), waker.clone());
    executor.handle().spawn(
        Class::Latency,
        poll_fn(move |context| {
            count.set(count.get() + 1);
            slot.borrow_mut().clone_from(context.waker());
            Poll::Pending
        }),
    );
    executor.turn();

    waker.borrow().wake_by_ref();
    waker.borrow().wake_by_ref();
    executor.turn();
    executor.turn();

    assert_eq!(polls.get(), 2);
}

/// Starts a task that ends at its first poll, and returns its waker.
fn finished(executor: &Executor, class: Class) -> Waker {
    let waker = Rc::new(RefCell::new(None));
    let own = waker.clone();
    executor.handle().start(
        class,
        poll_fn(move |context| {
            own.replace(Some(context.waker().clone()));
            Poll::Ready(())
        }),
    );
    assert_eq!(executor.handle().task_count(), 0);
    waker.take().expect("was polled")
}

#[test]
fn a_wake_of_a_finished_task_is_one_poll_of_another_of_its_class() {
    let mut executor = Machine::default().executor(Config::default());
    let stale = finished(&executor, Class::Latency);
    let polls = [Class::Latency, Class::Throughput].map(|class| {
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        executor.handle().spawn(
            class,
            poll_fn(move |_| {
                count.set(count.get() + 1);
                Poll::Pending
            }),
        );
        polls
    });
    executor.turn();

    stale.wake_by_ref();
    stale.wake_by_ref();
    executor.turn();
    executor.turn();

    assert_eq!(polls.map(|polls| polls.get()), [2, 1]);
}

#[test]
fn a_wake_of_a_finished_task_keeps_no_later_one_from_its_wakes() {
    let mut executor = Machine::default().executor(Config::default());
    for turns in 0..3 {
        let done = Rc::new(Cell::new(false));
        let flag = done.clone();
        finished(&executor, Class::Latency).wake();
        for _ in 0..turns {
            executor.turn();
        }

        executor.handle().spawn(Class::Latency, async move {
            yield_now().await;
            yield_now().await;
            flag.set(true);
        });
        while executor.turn() {}

        assert!(done.get(), "{turns} turns between the wake and the next task");
    }
}

#[test]
fn a_wake_after_the_end_of_the_executor_does_nothing() {
    let held = Rc::new(());
    let waker = Rc::new(RefCell::new(Waker::noop().clone()));
    let executor = Machine::default().executor(Config::default());
    let (own, keeps) = (waker.clone(), held.clone());
    executor.handle().start(
        Class::Latency,
        poll_fn(move |context| {
            let _keeps = &keeps;
            own.borrow_mut().clone_from(context.waker());
            Poll::Pending
        }),
    );

    drop(executor);
    waker.borrow().wake_by_ref();
    waker.borrow().wake_by_ref();

    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn dropping_the_executor_drops_tasks_and_sources_that_hold_it() {
    let held = Rc::new(());
    let log = Rc::new(Log::default());
    let executor = Machine::default().executor(Config::default());
    for class in [Class::Latency, Class::Throughput] {
        let (handle, held) = (executor.handle(), held.clone());
        executor.handle().spawn(class, async move {
            handle.sleep(Duration::from_secs(1)).await;
            drop(held);
        });
    }
    executor.handle().add_source(Box::new(Scripted(log.clone())));

    drop(executor);

    assert_eq!((Rc::strong_count(&held), Rc::strong_count(&log)), (1, 1));
}

/// Blocks a real thread.
#[derive(Default)]
struct ThreadPark(Arc<Bell>);

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Park for ThreadPark {
    fn park(&mut self, _timeout: Option<Duration>) {
        let rung = self.0.rung.lock().expect("no panic in a holder");
        let deadline = Duration::from_secs(60);
        let (mut rung, timeout) =
            self.0.changed.wait_timeout_while(rung, deadline, |rung| !*rung).expect("as above");
        assert!(!timeout.timed_out(), "a wake-up was lost");
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

#[test]
fn wakes_from_another_thread_end_the_park() {
    let rounds = if cfg!(miri) { 50 } else { 5000 };
    let park = Box::<ThreadPark>::default();
    let mut executor = Executor::new(Rc::new(ManualClock::new()), park, Config::default());
    let (to_waker, wakers) = mpsc::channel::<(Arc<Mutex<bool>>, Waker)>();
    let other = thread::spawn(move || {
        for (flag, waker) in wakers {
            *flag.lock().expect("no panic in a holder") = true;
            waker.wake();
        }
    });

    executor.run_until(async {
        for _ in 0..rounds {
            let flag = Arc::new(Mutex::new(false));
            let mut sent = false;
            poll_fn(|context| {
                if *flag.lock().expect("no panic in a holder") {
                    return Poll::Ready(());
                }
                if !sent {
                    sent = true;
                    to_waker.send((flag.clone(), context.waker().clone())).expect("alive");
                }
                Poll::Pending
            })
            .await;
        }
        drop(to_waker);
    });

    other.join().expect("no panic");
}
