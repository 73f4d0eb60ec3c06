//! Credits are neither lost nor made, and given out in order.

use std::{
    pin::{Pin, pin},
    task::Poll,
};

use executor::{Class, Config, Credit, Credits, Take};

use crate::support::{Machine, poll, seeds};

#[test]
fn a_dropped_credit_is_available_again() {
    let credits = Credits::new(5);
    let credit = credits.try_take(3).expect("available");
    assert_eq!((credit.amount(), credits.available(), credits.total()), (3, 2, 5));
    assert!(credits.try_take(3).is_none());

    drop(credit);

    assert_eq!(credits.available(), 5);
}

#[test]
fn a_small_request_does_not_overtake_a_large_one() {
    let credits = Credits::new(4);
    let held = credits.try_take(2).expect("available");
    let (mut large, mut small) = (pin!(credits.take(4)), pin!(credits.take(1)));
    assert!(poll(large.as_mut()).is_pending());
    assert!(poll(small.as_mut()).is_pending());
    assert!(credits.try_take(1).is_none());

    drop(held);

    let Poll::Ready(all) = poll(large.as_mut()) else { panic!("4 of 4 are available") };
    assert!(poll(small.as_mut()).is_pending());
    drop(all);
    assert!(poll(small.as_mut()).is_ready());
}

#[test]
fn a_request_that_gives_up_lets_those_behind_it_go() {
    let credits = Credits::new(4);
    let _held = credits.try_take(2).expect("available");
    let mut large = Box::pin(credits.take(4));
    let mut small = pin!(credits.take(1));
    assert!(poll(large.as_mut()).is_pending());
    assert!(poll(small.as_mut()).is_pending());

    drop(large);

    assert!(poll(small.as_mut()).is_ready());
}

#[test]
fn a_grant_that_nobody_fetches_returns() {
    let credits = Credits::new(1);
    let held = credits.try_take(1).expect("available");
    let mut waiting = Box::pin(credits.take(1));
    assert!(poll(waiting.as_mut()).is_pending());
    drop(held);
    assert_eq!(credits.available(), 0, "granted");

    drop(waiting);

    assert_eq!(credits.available(), 1);
}

#[test]
#[should_panic(expected = "6 credits asked of 5")]
fn a_request_beyond_the_total_panics_instead_of_waiting_for_ever() {
    drop(Credits::new(5).take(6));
}

#[test]
fn a_waiting_task_is_woken_by_a_returned_credit() {
    let mut executor = Machine::default().executor(Config::default());
    let credits = Credits::new(1);
    let held = credits.try_take(1).expect("available");
    executor.handle().spawn(Class::Latency, async move {
        executor::yield_now().await;
        drop(held);
    });

    let credit = executor.run_until(credits.take(1));

    assert_eq!(credit.amount(), 1);
}

#[test]
fn any_order_of_taking_and_giving_up_keeps_the_total_and_the_order() {
    seeds(500, |rng| {
        let credits = Credits::new(10);
        let mut held: Vec<Credit> = Vec::new();
        let mut line: Vec<Pin<Box<Take>>> = Vec::new();
        for _ in 0..200 {
            match rng.u32(0..5) {
                0 => held.extend(credits.try_take(rng.u64(0..=10))),
                1 => line.push(Box::pin(credits.take(rng.u64(0..=10)))),
                2 if !held.is_empty() => {
                    let mut credit = held.swap_remove(rng.usize(..held.len()));
                    let (amount, asked) = (credit.amount(), rng.u64(0..=10));
                    held.push(credit.split(asked));
                    let part = held.last().map_or(0, Credit::amount);
                    assert_eq!((part, credit.amount()), (asked.min(amount), amount - part));
                }
                3 if !line.is_empty() => drop(line.remove(rng.usize(..line.len()))),
                4 if held.len() > 1 => {
                    let (credit, mut other) = (held.swap_remove(0), held.swap_remove(0));
                    let amount = credit.amount() + other.amount();
                    other.join(credit);
                    assert_eq!(other.amount(), amount);
                    held.push(other);
                }
                _ => {}
            }
            let mut blocked = false;
            line.retain_mut(|take| match poll(take.as_mut()) {
                Poll::Ready(credit) => {
                    assert!(!blocked, "overtook an earlier request");
                    held.push(credit);
                    false
                }
                Poll::Pending => {
                    blocked = true;
                    true
                }
            });
            let sum: u64 = held.iter().map(Credit::amount).sum();
            assert_eq!(sum + credits.available(), credits.total());
        }
        drop((line, held));
        assert_eq!(credits.available(), credits.total());
    });
}
