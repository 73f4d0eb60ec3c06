//! Waiting for whichever of two futures is ready first.

use std::{future::poll_fn, pin::pin, task::Poll};

/// Waits for the first of two futures and drops the other. Where both are ready `one` counts.
pub async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn either_is_enough_and_of_both_the_one_counts() {
        let context = &mut Context::from_waker(Waker::noop());
        assert_eq!(pin!(first(ready(1), ready(2))).poll(context), Poll::Ready(1));
        assert_eq!(pin!(first(pending(), ready(2))).poll(context), Poll::Ready(2));
        assert_eq!(pin!(first(ready(1), pending())).poll(context), Poll::Ready(1));
        assert!(pin!(first(pending::<()>(), pending())).poll(context).is_pending());
    }
}
