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
//! published before it was raised.
//!
//! A session's bit found raised is left alone. That is the pattern of
//! [`doorbell`](crate::doorbell), once more: the client raises the lane's bit and then looks at the
//! session's, the executor takes the session's bit and then looks at the lane's, and each has a
//! `SeqCst` fence between the two. Either the client sees that the session's bit was taken and
//! raises it anew, or the executor sees the lane's.
//!
//! Waking the executor is the duty of the thread that raised the session's bit, and it alone needs
//! the fence of [`Parked::must_ring`]. One that found the bit raised looks at the flag all the
//! same, without a fence: it helps when the thread whose duty it is has lost its core.

use crate::{
    doorbell::Parked,
    sync::{AtomicU64, Ordering, fence},
};

/// Sessions a daemon can serve at a time.
pub const SESSIONS_MAX: usize = 1024;
/// The model needs one word; more would only be more of the same to explore.
const WORDS: usize = if cfg!(loom) { 1 } else { SESSIONS_MAX / 64 };

/// Shared words by which sessions reach one executor.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Board {
    /// The executor's parked flag.
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
        let bit = 1 << (session % 64);
        self.0.fetch_or(1 << (lane % 64), Ordering::AcqRel);
        let Some(word) = board.sessions.get(session / 64) else { return false };
        let is_raised = || word.load(Ordering::Relaxed) & bit != 0;
        // The first look only saves the fence: it may find a bit that was taken long ago.
        if is_raised() {
            fence(Ordering::SeqCst);
            if is_raised() {
                return board.parked.may_ring();
            }
        }
        word.fetch_or(bit, Ordering::AcqRel);
        board.parked.must_ring()
    }

    /// True if lane `lane` was raised and has not been taken since.
    pub fn is_raised(&self, lane: usize) -> bool {
        self.0.load(Ordering::Relaxed) & 1 << (lane % 64) != 0
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

    /// True if any session is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.sessions.iter().any(|word| word.load(Ordering::Relaxed) != 0)
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
        assert!(ready.is_raised(5) && !ready.is_raised(4));
        assert_eq!(ready.take(), 1 << 5);
        assert!(!ready.is_raised(5));
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
    use crate::sync::AtomicU32;

    /// Entries the two lanes get.
    const ENTRIES: [u32; 2] = [1, 2];

    #[derive(Default)]
    struct Shared {
        board: Board,
        ready: Ready,
        socket: Socket,
        /// Newest entry of each lane.
        published: [AtomicU32; 2],
    }

    /// The control socket, for the model: a doorbell message one can wait for.
    #[derive(Default)]
    struct Socket(Mutex<bool>, Condvar);

    impl Socket {
        fn send(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn receive(&self) {
            let mut message = self.0.lock().unwrap();
            while !core::mem::take(&mut *message) {
                message = self.1.wait(message).unwrap();
            }
        }
    }

    /// Two threads of one client raise their lanes, one of them twice, while the executor looks,
    /// parks, and is woken: it sees every entry, or loom reports that it sleeps for ever.
    #[test]
    fn an_executor_that_parks_misses_no_lane() {
        crate::sync::model(3, || {
            let shared = Arc::new(Shared::default());
            let clients = [0, 1].map(|lane| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    for entry in 1..=ENTRIES[lane] {
                        shared.published[lane].store(entry, Ordering::Relaxed);
                        if shared.ready.raise(lane, &shared.board, 0) {
                            shared.socket.send();
                        }
                    }
                })
            });
            let Shared { board, ready, socket, published } = &*shared;
            let mut seen = [0; 2];
            loop {
                board.take(|_| {
                    let bits = ready.take();
                    for lane in (0..2).filter(|lane| bits & 1 << lane != 0) {
                        seen[lane] = published[lane].load(Ordering::Relaxed);
                    }
                });
                if seen == ENTRIES {
                    break;
                }
                board.parked.announce();
                if !board.is_ready() {
                    socket.receive();
                }
                board.parked.withdraw();
            }
            for client in clients {
                client.join().unwrap();
            }
        });
    }
}
