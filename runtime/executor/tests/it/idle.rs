//! When the executor blocks, for how long, and what must be armed before.

use std::{rc::Rc, time::Duration};

use executor::{
    Armed, Class, Config, Executor, Handle, Idle, ManualClock, Notify, Source, SourceId,
};

use crate::support::{Log, Machine, Scripted};

fn sources(executor: &Executor, count: usize) -> Vec<Rc<Log>> {
    let add = |_| {
        let log = Rc::new(Log::default());
        executor.handle().add_source(Box::new(Scripted(log.clone())));
        log
    };
    (0..count).map(add).collect()
}

#[test]
fn a_park_ends_at_the_next_timer() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let handle = executor.handle();

    executor.run_until(handle.sleep(Duration::from_millis(3)));

    assert_eq!(*machine.parks.borrow(), [Some(Duration::from_millis(3))]);
}

#[test]
fn a_park_follows_the_turn_that_leaves_nothing_to_do() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let handle = executor.handle();
    handle.spawn(Class::Latency, async {});

    executor.run_until(handle.sleep(Duration::from_millis(1)));

    assert_eq!(machine.parks.borrow().len(), 1);
    assert_eq!(executor.counters().turns, 2, "that of the task, and that of the timer");
}

#[test]
fn a_turn_that_wakes_the_future_of_run_until_is_followed_by_its_poll() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let (notify, handle) = (Notify::new(), executor.handle());
    let told = notify.clone();
    handle.spawn(Class::Latency, async move { told.notify_all() });

    executor.run_until(notify.notified());

    assert_eq!(*machine.parks.borrow(), []);
}

#[test]
fn every_source_is_armed_once_before_a_park() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let logs = sources(&executor, 3);

    executor.run_until(executor.handle().sleep(Duration::from_millis(1)));

    assert_eq!(machine.parks.borrow().len(), 1);
    for log in logs {
        assert_eq!(log.arms.get(), 1);
    }
}

#[test]
fn a_busy_source_prevents_the_park() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let logs = sources(&executor, 3);
    logs[1].busy.set(true);
    let clock = machine.clock.clone();
    let advance = Scripted(Rc::new(Log::default()));
    executor.handle().add_source(Box::new(Moving(advance, clock)));

    executor.run_until(executor.handle().sleep(Duration::from_micros(50)));

    assert_eq!(*machine.parks.borrow(), []);
    assert!(logs[0].arms.get() > 0);
    assert_eq!(logs[2].arms.get(), 0, "the one before it has said enough");
}

/// Lets time pass in every visit.
struct Moving(Scripted, Rc<ManualClock>);

impl Source for Moving {
    fn poll(&mut self, _budget: usize) -> usize {
        self.1.advance(Duration::from_micros(1));
        0
    }

    fn arm(&mut self) -> Armed {
        self.0.arm()
    }
}

#[test]
fn a_spinning_executor_never_parks() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config { idle: Idle::Spin, ..Config::default() });
    let log = Rc::new(Log::default());
    let moving = Moving(Scripted(log.clone()), machine.clock.clone());
    executor.handle().add_source(Box::new(moving));

    executor.run_until(executor.handle().sleep(Duration::from_micros(50)));

    assert_eq!((machine.parks.borrow().len(), executor.counters().parks), (0, 0));
    assert_eq!(log.arms.get(), 0);
    assert_eq!(executor.handle().idle(), Idle::Spin);
}

#[test]
fn a_task_woken_while_arming_prevents_the_park() {
    struct SpawnsOnArm(Handle, Notify);
    impl Source for SpawnsOnArm {
        fn poll(&mut self, _budget: usize) -> usize {
            0
        }
        fn arm(&mut self) -> Armed {
            let notify = self.1.clone();
            self.0.spawn(Class::Throughput, async move { notify.notify_all() });
            Armed::Waits
        }
    }
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let notify = Notify::new();
    let source = SpawnsOnArm(executor.handle(), notify.clone());
    executor.handle().add_source(Box::new(source));

    executor.run_until(notify.notified());

    assert_eq!(*machine.parks.borrow(), []);
}

#[test]
fn a_task_woken_by_a_visit_without_events_prevents_the_park() {
    struct SpawnsOnPoll(Handle, Option<Notify>);
    impl Source for SpawnsOnPoll {
        fn poll(&mut self, _budget: usize) -> usize {
            if let Some(notify) = self.1.take() {
                self.0.spawn(Class::Latency, async move { notify.notify_all() });
            }
            0
        }
        fn arm(&mut self) -> Armed {
            Armed::Waits
        }
    }
    let mut executor = Machine::default().executor(Config::default());
    let notify = Notify::new();
    let source = SpawnsOnPoll(executor.handle(), Some(notify.clone()));
    executor.handle().add_source(Box::new(source));

    assert!(executor.turn(), "the task is ready");
    executor.turn();
    assert_eq!(executor.handle().task_count(), 0);
}

#[test]
fn a_source_may_remove_itself_and_add_another_while_visited() {
    struct Replaces {
        handle: Handle,
        id: Rc<std::cell::Cell<Option<SourceId>>>,
        next: Rc<Log>,
    }
    impl Source for Replaces {
        fn poll(&mut self, _budget: usize) -> usize {
            self.handle.remove_source(self.id.get().expect("set after adding"));
            self.handle.add_source(Box::new(Scripted(self.next.clone())));
            1
        }
        fn arm(&mut self) -> Armed {
            Armed::Waits
        }
    }
    let mut executor = Machine::default().executor(Config::default());
    let handle = executor.handle();
    let (id, next) = (Rc::default(), Rc::new(Log::default()));
    let source = Replaces { handle: handle.clone(), id: Rc::clone(&id), next: next.clone() };
    id.set(Some(handle.add_source(Box::new(source))));
    let last = Rc::new(Log::default());
    handle.add_source(Box::new(Scripted(last.clone())));

    executor.turn();
    executor.turn();

    assert_eq!(executor.counters().source_events, 1, "the first source was visited once");
    assert_eq!(last.polls.get(), 2, "the source behind it missed no turn");
    assert_eq!(next.polls.get(), 2);
}
