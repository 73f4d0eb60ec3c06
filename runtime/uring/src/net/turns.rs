//! Turns of many streams: what is received and not yet served is no more than is worth holding.
//!
//! A stream that has something to receive asks for a turn. It gets one in order of asking: the
//! right to receive [`TURN_LEN`] bytes, which lie together where they come from and often where
//! they go to. Each frame takes its share of the turn along until it is served, and what is left
//! goes back as soon as the stream has nothing more to receive. So no more than [`BUDGET`] is being
//! served, but for what the last call of a turn brings beyond it; who sends nothing holds nothing,
//! and who sends without end waits for a turn like all others.
//!
//! A turn that does not come in time is not waited for any longer: what others hold is not being
//! served, as by a file system that hangs.

use std::{future::poll_fn, pin::pin, time::Duration};

use executor::{Credit, Credits, Handle, first};

/// Bytes being served: what a device has to do, and as much again that is received meanwhile. With
/// fewer it waits for the next of them; with more all that is touched again is out of the cache.
const BUDGET: u64 = 8 << 20;
/// Bytes of a turn: a part of what a ring hands over at once.
const TURN_LEN: u64 = 256 << 10;
/// The longest wait for a turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Turns of the streams of one executor. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    credits: Credits,
    handle: Handle,
}

impl Turns {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self { credits: Credits::new(BUDGET), handle: handle.clone() }
    }

    /// Waits for a turn; `None` when it does not come in time, which lets the stream receive once.
    pub(crate) async fn next(&self) -> Option<Credit> {
        let turn = async { Some(self.credits.take(TURN_LEN).await) };
        let too_late = async {
            self.handle.sleep(PATIENCE).await;
            None
        };
        first(turn, too_late).await
    }
}

/// Waits for something, and ends the turn if that takes time: who waits holds none.
pub(crate) async fn wait<T>(turn: &mut Option<Credit>, other: impl Future<Output = T>) -> T {
    let mut other = pin!(other);
    poll_fn(|context| {
        let polled = other.as_mut().poll(context);
        if polled.is_pending() {
            *turn = None;
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        pin::Pin,
        rc::Rc,
        task::{Context, Poll},
    };

    use executor::{Config, Executor, ManualClock};
    use fastrand::Rng;

    use super::*;
    use crate::parker::Events;

    /// Turns on an executor whose time stands still.
    fn turns() -> (Turns, Executor, Rc<ManualClock>) {
        let (events, clock) = (Events::new().unwrap(), Rc::new(ManualClock::new()));
        let executor = Executor::new(clock.clone(), Box::new(events.parker()), Config::default());
        (Turns::new(&executor.handle()), executor, clock)
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    /// All turns there are.
    fn all(turns: &Turns) -> Vec<Credit> {
        std::iter::from_fn(|| turns.credits.try_take(TURN_LEN)).collect()
    }

    /// A stream of the property test.
    #[derive(Default)]
    struct Stream {
        turn: Option<Credit>,
        served: VecDeque<Credit>,
    }

    /// Streams ask at random, take shares, have them served, end with all they hold, or give up.
    #[test]
    fn no_more_than_the_budget_is_held_and_turns_come_in_order_of_asking() {
        for seed in 0..200 {
            let (mut rng, (turns, _executor, _clock)) = (Rng::with_seed(seed), turns());
            let mut streams: Vec<_> = (0..32).map(|_| Stream::default()).collect();
            let mut line = VecDeque::new();
            for _ in 0..2000 {
                let at = rng.usize(..streams.len());
                let stream = &mut streams[at];
                match rng.u32(..8) {
                    0 => stream.turn = None,
                    1 => *stream = Stream::default(),
                    2 => line.retain(|(waiting, _)| *waiting != at),
                    3..5 => drop(stream.served.pop_front()),
                    _ if stream.turn.as_ref().is_some_and(|turn| turn.amount() > 0) => {
                        let share = stream.turn.as_mut().map(|turn| turn.split(rng.u64(..40_000)));
                        stream.served.extend(share);
                    }
                    _ if line.iter().all(|(waiting, _)| *waiting != at) => {
                        let turns = turns.clone();
                        line.push_back((at, Box::pin(async move { turns.next().await })));
                    }
                    _ => {}
                }
                let mut is_blocked = false;
                line.retain_mut(|(at, next)| {
                    let Poll::Ready(turn) = poll(next.as_mut()) else {
                        is_blocked = true;
                        return true;
                    };
                    assert!(!is_blocked, "seed {seed}: overtook one that asked earlier");
                    streams[*at].turn = turn;
                    false
                });
                let held = |stream: &Stream| -> u64 {
                    stream.turn.iter().chain(&stream.served).map(Credit::amount).sum()
                };
                let held: u64 = streams.iter().map(held).sum();
                assert_eq!(held + turns.credits.available(), BUDGET, "seed {seed}");
                assert!(!is_blocked || turns.credits.available() < TURN_LEN, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_not_served_is_waited_for_no_longer_than_patience() {
        let (turns, mut executor, clock) = turns();
        let held = all(&turns);
        let mut next = pin!(turns.next());
        assert!(poll(next.as_mut()).is_pending());
        clock.advance(PATIENCE);
        executor.turn();

        assert!(matches!(poll(next.as_mut()), Poll::Ready(None)));

        drop(held);
        assert_eq!(turns.credits.available(), BUDGET);
    }

    #[test]
    fn a_turn_ends_when_its_stream_waits_and_only_then() {
        let (turns, _executor, _clock) = turns();
        let mut turn = turns.credits.try_take(TURN_LEN);
        let Poll::Ready(()) = poll(pin!(wait(&mut turn, async {}))) else { panic!("it waits") };
        assert!(turn.is_some());

        assert!(poll(pin!(wait(&mut turn, std::future::pending::<()>()))).is_pending());

        assert!(turn.is_none());
        assert_eq!(turns.credits.available(), BUDGET);
    }
}
