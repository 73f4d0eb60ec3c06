//! Which lanes have something new: found in time proportional to what is ready.
//!
//! One [`Ready`] word per session holds a bit per lane; one [`Board`] per executor holds a bit per
//! session. A client raises the lane's bit, then the session's, then looks whether the executor is
//! parked; the executor takes session bits, then lane bits, then looks into the lanes. A bit says
//! "look", never "there is exactly one": looking in vain is allowed, missing is not.
//!
//! # Memory ordering
//!
//! Bits are raised with `AcqRel` and taken with `AcqRel`, so whoever takes a bit sees what was
//! published before it was raised. A bit found raised already is left alone: the read-modify-write
//! of the lane's bit stands before the load of the session's, and the executor takes them in the
//! opposite order.

use crate::{
    doorbell::Parked,
    sync::{AtomicU64, Ordering, fence},
};

/// Sessions a daemon can serve at a time.
pub const SESSIONS_MAX: usize = 1024;
/// The model needs one word; more would only be more of the same to explore.
const WORDS: usize = if cfg!(loom) { 1 } else { SESSIONS_MAX / 64 };

/// What one executor looks at.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Board {
    /// Whether the executor sleeps.
    pub parked: Parked,
    sessions: [AtomicU64; WORDS],
}

/// The ready lanes of one session.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Ready(AtomicU64);

impl Ready {
    /// Says that lane `lane` of session `session` has something new.
    ///
    /// Returns whether the caller must send the doorbell message.
    pub fn raise(&self, lane: usize, board: &Board, session: usize) -> bool {
        self.0.fetch_or(1 << (lane % 64), Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if let Some(word) = board.sessions.get(session / 64) {
            let bit = 1 << (session % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
        board.parked.must_ring()
    }

    /// Takes the ready lanes, as bits.
    pub fn take(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.0.swap(0, Ordering::AcqRel)
    }
}

impl Board {
    /// Takes the ready sessions and calls `each` with their indices.
    pub fn take(&self, mut each: impl FnMut(usize)) {
        for (index, word) in self.sessions.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            while bits != 0 {
                each(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Whether any session is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.sessions.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn every_raised_session_is_taken_once() {
        let (board, ready) = (Board::default(), Ready::default());
        for session in [0, 63, 64, 1023] {
            ready.raise(5, &board, session);
        }
        assert!(board.is_ready());
        let mut taken = Vec::new();
        board.take(|session| taken.push(session));
        assert_eq!(taken, [0, 63, 64, 1023]);
        assert!(!board.is_ready());
        assert_eq!(ready.take(), 1 << 5);
        assert_eq!(ready.take(), 0);
    }

    #[test]
    fn a_parked_executor_is_rung_once() {
        let (board, ready) = (Board::default(), Ready::default());
        board.parked.announce();
        assert!(ready.raise(0, &board, 7));
        assert!(!ready.raise(1, &board, 7));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// The control socket, for the model: a count of doorbell messages one can wait on.
    #[derive(Default)]
    struct Socket(Mutex<u32>, Condvar);

    /// Two threads of one client raise their lanes while the executor looks, parks, and is woken:
    /// it sees both, or loom reports that it sleeps for ever.
    #[test]
    fn an_executor_that_parks_misses_no_lane() {
        loom::model(|| {
            let shared = Arc::new((Board::default(), Ready::default(), Socket::default()));
            let clients: std::vec::Vec<_> = (0..2)
                .map(|lane| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        let (board, ready, socket) = &*shared;
                        if ready.raise(lane, board, 0) {
                            *socket.0.lock().unwrap() += 1;
                            socket.1.notify_all();
                        }
                    })
                })
                .collect();
            let (board, ready, socket) = &*shared;
            let mut seen = 0;
            while seen != 0b11 {
                board.take(|_| seen |= ready.take());
                if seen == 0b11 {
                    break;
                }
                board.parked.announce();
                if !board.is_ready() {
                    let mut messages = socket.0.lock().unwrap();
                    while *messages == 0 {
                        messages = socket.1.wait(messages).unwrap();
                    }
                    *messages = 0;
                }
                board.parked.withdraw();
            }
            for client in clients {
                client.join().unwrap();
            }
        });
    }
}
