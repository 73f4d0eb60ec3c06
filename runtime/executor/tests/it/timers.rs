//! Sleeping tasks.

use std::{cell::RefCell, pin::pin, rc::Rc, time::Duration};

use executor::{Class, Clock, Config};

use crate::support::{Machine, poll, seeds};

#[test]
fn timers_fire_in_order_and_never_early() {
    seeds(200, |rng| {
        let machine = Machine::default();
        let mut executor = machine.executor(Config::default());
        let fired = Rc::new(RefCell::new(Vec::new()));
        let count = rng.usize(1..50);
        for _ in 0..count {
            let handle = executor.handle();
            let (clock, fired) = (machine.clock.clone(), fired.clone());
            let at = handle.now() + Duration::from_micros(rng.u64(0..1000));
            executor.handle().spawn(Class::Latency, async move {
                handle.sleep_until(at).await;
                assert!(clock.now() >= at);
                fired.borrow_mut().push(at);
            });
        }

        executor.run_until(executor.handle().sleep(Duration::from_millis(2)));

        let fired = fired.borrow();
        assert_eq!(fired.len(), count);
        assert!(fired.is_sorted());
    });
}

#[test]
fn a_dropped_sleep_does_not_end_a_park() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let handle = executor.handle();
    {
        let mut short = pin!(handle.sleep(Duration::from_millis(1)));
        assert!(poll(short.as_mut()).is_pending());
    }

    executor.run_until(handle.sleep(Duration::from_millis(5)));

    assert_eq!(*machine.parks.borrow(), [Some(Duration::from_millis(5))]);
}

#[test]
fn a_sleep_polled_again_wakes_the_later_waker_once() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let handle = executor.handle();
    let mut sleep = pin!(handle.sleep(Duration::from_millis(1)));
    assert!(poll(sleep.as_mut()).is_pending());

    executor.run_until(sleep); // Waits for ever if the first waker is kept.

    assert_eq!(executor.counters().timers, 1);
}
