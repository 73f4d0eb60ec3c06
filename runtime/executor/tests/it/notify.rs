//! Waiting for a condition.

use std::{cell::Cell, pin::pin, rc::Rc};

use executor::{Class, Config, Notify};

use crate::support::{Machine, poll};

#[test]
fn a_signal_between_the_call_and_the_first_poll_is_seen() {
    let notify = Notify::new();
    let mut notified = pin!(notify.notified());

    notify.notify_all();

    assert!(poll(notified.as_mut()).is_ready());
}

#[test]
fn a_signal_before_the_call_is_not_seen() {
    let notify = Notify::new();
    notify.notify_all();

    assert!(poll(pin!(notify.notified())).is_pending());
}

#[test]
fn every_waiting_task_goes_on_when_its_condition_holds() {
    let mut executor = Machine::default().executor(Config::default());
    let (notify, level, done) = (Notify::new(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for own in 1..=3 {
        let (notify, level, done) = (notify.clone(), level.clone(), done.clone());
        executor.handle().spawn(Class::Latency, async move {
            notify.until(|| level.get() >= own).await;
            done.set(done.get() + 1);
        });
    }
    executor.turn();

    for now in 1..=3 {
        level.set(now);
        notify.notify_all();
        executor.turn();
        assert_eq!(done.get(), now);
    }
}
