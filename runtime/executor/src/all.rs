//! Waiting for several futures at the same time.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

/// Waits until all of `futures` are ready; returns their values in the same order. Each is polled
/// whenever one of them may go on: for some dozens, not for thousands.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<State<F>> = futures.into_iter().map(|f| State::Waits(Box::pin(f))).collect();
    poll_fn(|context| {
        let left = all.iter_mut().filter_map(|state| state.advance(context)).count();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(State::value).collect()
}

enum State<F: Future> {
    Waits(Pin<Box<F>>),
    Ready(F::Output),
}

impl<F: Future> State<F> {
    /// `None`: it is ready.
    fn advance(&mut self, context: &mut Context<'_>) -> Option<()> {
        let Self::Waits(future) = self else { return None };
        let Poll::Ready(value) = future.as_mut().poll(context) else { return Some(()) };
        *self = Self::Ready(value);
        None
    }

    fn value(self) -> Option<F::Output> {
        match self {
            Self::Ready(value) => Some(value),
            Self::Waits(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, pin::pin, task::Waker};

    use super::*;

    #[test]
    fn values_come_in_order_once_the_last_is_ready() {
        let context = &mut Context::from_waker(Waker::noop());
        let turn = Cell::new(0);
        let ready_at = |at: u32| {
            let turn = &turn;
            poll_fn(move |_| if turn.get() >= at { Poll::Ready(at) } else { Poll::Pending })
        };
        let mut whole = pin!(all([2, 0, 1].map(ready_at)));
        for _ in 0..2 {
            assert!(whole.as_mut().poll(context).is_pending());
            turn.set(turn.get() + 1);
        }
        assert_eq!(whole.poll(context), Poll::Ready(vec![2, 0, 1]));
        assert_eq!(pin!(all([(); 0].map(|()| async {}))).poll(context), Poll::Ready(vec![]));
    }
}
