//! Waiting, on one thread, for a condition that another task brings about.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Tells tasks of one executor that a condition may have changed. Cheap to clone.
///
/// ```
/// # use executor::Notify;
/// # async fn example(notify: Notify, queue: std::rc::Rc<std::cell::RefCell<Vec<u32>>>) {
/// notify.until(|| !queue.borrow().is_empty()).await;
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Notify {
    /// Made for the first who waits: mostly nobody ever does, and some owners are many.
    state: OnceCell<Rc<RefCell<State>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Signals so far.
    epoch: u64,
    /// Waiting tasks in the order they came.
    waiting: BTreeMap<u64, Waker>,
    next_key: u64,
}

impl Notify {
    /// A condition nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes every task that waits now.
    pub fn notify_all(&self) {
        // Whoever counts signals has a clone, and so there is a state.
        let Some(state) = self.state.get() else { return };
        let mut state = state.borrow_mut();
        state.epoch += 1;
        if state.waiting.is_empty() {
            return;
        }
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Waits for the first signal after this call, also one that comes before the first poll.
    pub fn notified(&self) -> Notified {
        let state = Rc::clone(self.state());
        let epoch = state.borrow().epoch;
        Notified { state, epoch, key: None }
    }

    /// Waits until `condition` holds, asked at once and after every signal.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.notified().await;
        }
    }

    fn state(&self) -> &Rc<RefCell<State>> {
        self.state.get_or_init(Rc::default)
    }
}

impl Clone for Notify {
    fn clone(&self) -> Self {
        Self { state: OnceCell::from(Rc::clone(self.state())) }
    }
}

/// Future of [`Notify::notified`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Notified {
    state: Rc<RefCell<State>>,
    /// The epoch at the call; any other means a signal.
    epoch: u64,
    key: Option<u64>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.state.borrow_mut();
        if state.epoch != this.epoch {
            return Poll::Ready(());
        }
        let key = *this.key.get_or_insert_with(|| {
            state.next_key += 1;
            state.next_key
        });
        state.waiting.insert(key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.state.borrow_mut().waiting.remove(&key);
        }
    }
}
