//! Locks of a process of one thread, until it has two.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    thread,
};

use shm::{Lock, Reentered, alone_while};

static FLAG: AtomicU8 = AtomicU8::new(1);

/// The only test of this process: the flag is everybody's.
#[test]
fn one_thread_locks_as_many_do_and_many_may_follow() {
    alone_while(&FLAG);
    let lock = Lock::new(0_u64);
    let guard = lock.lock().expect("free");
    assert_eq!(lock.lock().err(), Some(Reentered));
    assert!(lock.is_mine() && lock.try_lock().is_none());
    // The second thread starts while the lock is held.
    FLAG.store(0, Ordering::Relaxed);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| *lock.lock().expect("another's") += 1);
        (0..1000).for_each(|_| thread::yield_now());
        assert!(!waiter.is_finished(), "it waits");
        drop(guard);
    });
    assert_eq!(*lock.lock().expect("free"), 1);
}
