//! Panics of tasks, sources, and drops: each ends what it came from, and the executor goes on.

use std::{
    cell::{Cell, RefCell},
    future::{pending, poll_fn},
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use executor::{Armed, Class, Config, Credits, Executor, Source};

use crate::support::{Log, Machine, Scripted};

/// Has the executor meet a panic, which comes out.
fn panics(executor: &mut Executor) {
    let turn = AssertUnwindSafe(|| executor.turn());
    panic::catch_unwind(turn).expect_err("the panic comes out");
}

/// Panics when dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("told to");
    }
}

#[test]
fn a_panic_ends_its_task_alone() {
    let mut executor = Machine::default().executor(Config::default());
    let done = Rc::new(Cell::new(false));
    let flag = done.clone();
    executor.handle().spawn(Class::Latency, async { panic!("told to") });
    executor.handle().spawn(Class::Latency, async move { flag.set(true) });

    panics(&mut executor);
    executor.turn();

    assert!(done.get());
}

#[test]
fn a_task_that_panics_is_over_and_gives_back_what_it_held() {
    for class in [Class::Latency, Class::Throughput] {
        let machine = Machine::default();
        let mut executor = machine.executor(Config::default());
        let (handle, credits) = (executor.handle(), Credits::new(1));
        let taken = credits.clone();
        executor.handle().spawn(class, async move {
            let _credit = taken.take(1).await;
            handle.sleep(Duration::from_secs(1)).await;
            panic!("told to");
        });
        executor.turn();
        assert_eq!((executor.handle().task_count(), credits.available()), (1, 0));
        machine.clock.advance(Duration::from_secs(1));

        panics(&mut executor);

        assert_eq!((executor.handle().task_count(), credits.available()), (0, 1));
        assert!(!executor.turn(), "nothing is left");
    }
}

#[test]
fn a_task_whose_future_panics_when_dropped_is_over() {
    let mut executor = Machine::default().executor(Config::default());
    let bomb = Cell::new(Some(Bomb));
    executor.handle().spawn(
        Class::Latency,
        poll_fn(move |_| {
            let _kept = &bomb;
            Poll::Ready(())
        }),
    );

    panics(&mut executor);

    assert_eq!(executor.handle().task_count(), 0);
}

#[test]
fn a_wake_of_a_task_that_panicked_finds_nothing_and_its_slot_serves_the_next() {
    let mut executor = Machine::default().executor(Config::default());
    let waker = Rc::new(RefCell::new(Waker::noop().clone()));
    let own = waker.clone();
    executor.handle().spawn(
        Class::Latency,
        poll_fn(move |context| {
            own.borrow_mut().clone_from(context.waker());
            panic!("told to")
        }),
    );
    panics(&mut executor);
    waker.borrow().wake_by_ref();
    executor.turn();

    let (done, polled) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(None)));
    let (flag, seen) = (done.clone(), polled.clone());
    executor.handle().spawn(
        Class::Latency,
        poll_fn(move |context| {
            seen.replace(Some(context.waker().clone()));
            flag.set(true);
            Poll::Ready(())
        }),
    );
    executor.turn();

    assert!(done.get());
    let polled = polled.take().expect("was polled");
    assert!(polled.will_wake(&waker.borrow()), "another slot was made");
}

#[test]
fn a_started_task_that_panics_ends_before_its_caller_knows() {
    let mut executor = Machine::default().executor(Config::default());
    let (handle, counts) = (executor.handle(), Rc::new(RefCell::new(Vec::new())));
    let log = counts.clone();
    executor.handle().spawn(Class::Latency, async move {
        let start = || handle.start(Class::Latency, async { panic!("told to") });
        panic::catch_unwind(AssertUnwindSafe(start)).expect_err("the panic comes out");
        log.borrow_mut().push(handle.task_count());
    });

    executor.turn();

    assert_eq!((counts.take(), executor.handle().task_count()), (vec![1], 0));
}

/// Panics when it is visited.
struct Faulty(#[expect(dead_code, reason = "tells when it is dropped")] Rc<()>);

impl Source for Faulty {
    fn poll(&mut self, _budget: usize) -> usize {
        panic!("told to")
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

#[test]
fn a_panic_ends_its_source_alone() {
    let mut executor = Machine::default().executor(Config::default());
    let logs = [(); 2].map(|()| Rc::new(Log::default()));
    let held = Rc::new(());
    executor.handle().add_source(Box::new(Scripted(logs[0].clone())));
    executor.handle().add_source(Box::new(Faulty(held.clone())));
    executor.handle().add_source(Box::new(Scripted(logs[1].clone())));

    panics(&mut executor);
    executor.turn();

    assert_eq!(logs.map(|log| log.polls.get()), [2, 1]);
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_panic_while_the_executor_is_dropped_keeps_no_other_task() {
    let held = Rc::new(());
    let executor = Machine::default().executor(Config::default());
    let keep = |held: Rc<()>| {
        let handle = executor.handle();
        executor.handle().start(Class::Latency, async move {
            handle.sleep(Duration::from_secs(1)).await;
            drop(held);
        });
    };
    keep(held.clone());
    executor.handle().start(Class::Latency, async {
        let _bomb = Bomb;
        pending::<()>().await;
    });
    keep(held.clone());

    panic::catch_unwind(AssertUnwindSafe(|| drop(executor))).expect_err("the panic comes out");

    assert_eq!(Rc::strong_count(&held), 1);
}
