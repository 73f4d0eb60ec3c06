//! Credits: the right to hold so much, given out in order of asking and returned by dropping.
//!
//! Every credit is either available or in exactly one [`Credit`]. A request that does not fit waits
//! and everyone behind it too, so a large request is not starved by small ones.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// A pool of credits of one executor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Credits(Rc<Pool>);

#[derive(Debug)]
struct Pool {
    total: u64,
    available: Cell<u64>,
    /// Requests that wait, in order of asking.
    waiting: RefCell<VecDeque<Rc<Request>>>,
}

#[derive(Debug)]
struct Request {
    amount: u64,
    /// Its credits have left `available`; they belong to the [`Take`].
    granted: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Credits {
    /// A pool of `total` credits, all available.
    #[must_use]
    pub fn new(total: u64) -> Self {
        let (available, waiting) = (Cell::new(total), RefCell::default());
        Self(Rc::new(Pool { total, available, waiting }))
    }

    /// Takes `amount` credits, or none when too few are available or an earlier request waits.
    #[must_use]
    pub fn try_take(&self, amount: u64) -> Option<Credit> {
        let left = self.0.available.get().checked_sub(amount)?;
        if !self.0.waiting.borrow().is_empty() {
            return None;
        }
        self.0.available.set(left);
        Some(Credit { pool: Rc::clone(&self.0), amount })
    }

    /// Takes `amount` credits, waiting until they are available and earlier requests are served.
    ///
    /// Dropping the future gives up the place in the line, and the credits if already granted.
    ///
    /// # Panics
    ///
    /// Panics when `amount` exceeds [`total`](Self::total): it could never be served.
    pub fn take(&self, amount: u64) -> Take {
        assert!(amount <= self.0.total, "{amount} credits asked of {}", self.0.total);
        Take { credits: self.clone(), amount, request: None }
    }

    /// Credits nobody holds.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.0.available.get()
    }

    /// Credits the pool was made with.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total
    }
}

impl Pool {
    fn give_back(&self, amount: u64) {
        self.available.set(self.available.get() + amount);
        self.serve();
    }

    /// Grants waiting requests from the front, as far as credits go.
    fn serve(&self) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(first) = waiting.front() else { return };
            let Some(left) = self.available.get().checked_sub(first.amount) else { return };
            self.available.set(left);
            first.granted.set(true);
            let waker = first.waker.borrow().clone();
            waiting.pop_front();
            drop(waiting);
            waker.wake();
        }
    }

    /// Takes a request that gave up out of the line; those behind it may fit now.
    fn leave(&self, request: &Rc<Request>) {
        self.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, request));
        self.serve();
    }
}

/// Credits taken from a pool; dropping them gives them back.
#[derive(Debug)]
#[must_use = "credits return to the pool when dropped"]
pub struct Credit {
    pool: Rc<Pool>,
    amount: u64,
}

impl Credit {
    /// How many credits this holds.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Takes `amount` credits, or as many as this holds, off it, to be given back by themselves.
    pub fn split(&mut self, amount: u64) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { pool: Rc::clone(&self.pool), amount }
    }

    /// Takes over what `other` holds, to be given back with this.
    ///
    /// # Panics
    ///
    /// Panics when `other` is of another pool.
    pub fn join(&mut self, mut other: Self) {
        assert!(Rc::ptr_eq(&self.pool, &other.pool), "credits of two pools");
        self.amount += mem::take(&mut other.amount);
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.pool.give_back(self.amount);
    }
}

/// Future of [`Credits::take`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Take {
    credits: Credits,
    amount: u64,
    /// In the line, or granted and not yet handed over.
    request: Option<Rc<Request>>,
}

impl Future for Take {
    type Output = Credit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Credit> {
        let this = &mut *self;
        if let Some(request) = &this.request {
            if !request.granted.get() {
                request.waker.borrow_mut().clone_from(context.waker());
                return Poll::Pending;
            }
            this.request = None;
            let pool = Rc::clone(&this.credits.0);
            return Poll::Ready(Credit { pool, amount: this.amount });
        }
        if let Some(credit) = this.credits.try_take(this.amount) {
            return Poll::Ready(credit);
        }
        let waker = RefCell::new(context.waker().clone());
        let request = Rc::new(Request { amount: this.amount, granted: Cell::new(false), waker });
        this.credits.0.waiting.borrow_mut().push_back(Rc::clone(&request));
        this.request = Some(request);
        Poll::Pending
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        match &self.request {
            Some(request) if request.granted.get() => self.credits.0.give_back(self.amount),
            Some(request) => self.credits.0.leave(request),
            None => {}
        }
    }
}
