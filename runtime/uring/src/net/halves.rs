//! How much of what has been sent is being served at a time: half of what may be sent. Whose half,
//! is the caller's affair: each peer's, or that of all peers of a disk together, which would get
//! short requests from a half for each of many.
//!
//! A disk may report nothing before it has done all it was given, as virtual ones do that interrupt
//! once their queue is empty. One that is given all a peer may send has nothing to do from then on
//! until the peer has its credits back and has sent more. So one half is being served while the
//! other is received, and follows it at once.

use executor::{Credit, Credits};

/// Bytes or transfers that may be sent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Halves(Credits);

impl Halves {
    /// Halves of `total`, what may have been sent that is not answered.
    #[must_use]
    pub fn of(total: u64) -> Self {
        Self(Credits::new(total.div_ceil(2)))
    }

    /// Waits until `amount` more may be served, in order of asking; what is more than a half, until
    /// nothing else is. To be kept until it is served.
    pub async fn serve(&self, amount: u64) -> Credit {
        self.0.take(amount.min(self.0.total())).await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_second_half_waits_for_the_first_in_order_of_asking() {
        let halves = Halves::of(8);
        let mut served: Vec<_> = (0..4).map(|_| poll(pin!(halves.serve(1)))).collect();
        assert!(served.iter().all(Poll::is_ready));
        let (mut fifth, mut sixth) = (pin!(halves.serve(1)), pin!(halves.serve(1)));
        assert!(poll(fifth.as_mut()).is_pending() && poll(sixth.as_mut()).is_pending());

        drop(served.pop());

        assert!(poll(sixth.as_mut()).is_pending());
        assert!(poll(fifth.as_mut()).is_ready());
        assert!(poll(sixth.as_mut()).is_ready());
    }

    #[test]
    fn what_is_more_than_a_half_is_served_by_itself() {
        let halves = Halves::of(3);
        let Poll::Ready(one) = poll(pin!(halves.serve(1))) else { panic!("nothing is served") };
        let mut all = pin!(halves.serve(3));
        assert!(poll(all.as_mut()).is_pending());
        drop(one);
        let Poll::Ready(all) = poll(all.as_mut()) else { panic!("nothing else is served") };

        assert!(poll(pin!(halves.serve(1))).is_pending());

        drop(all);
    }
}
