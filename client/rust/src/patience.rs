//! How long a thread looks for an answer before it sleeps.
//!
//! Looking costs the core that somebody else may want, sleeping costs a wake-up. Which is the
//! better bet, the last answers tell: one that came doubles the bound, one that did not come halves
//! it, and one that was there already says nothing. A bound that is larger than needed costs
//! nothing. An answer that moves bytes is worth looking for longer, in proportion, whatever the
//! bound is: else a little more than it allows would make every such wait a sleep. On a core that
//! is wanted, above all by the daemon itself, looking is in vain, and soon ends at once; where a
//! core of the daemon polls, an answer comes within a microsecond or two.
//!
//! One bound for all threads of the process: they share its cores. It is a hint, so its updates
//! need no order.

use core::{
    hint,
    sync::atomic::{AtomicU32, Ordering},
};

/// About as long as waking a thread takes.
const LOOKS_MAX: u32 = 2048;
/// About as long as an answer takes that is under way.
const LOOKS_MIN: u32 = 32;
/// At the least bound, one vain wait in so many is granted the largest, to find out whether it
/// pays.
const TRIAL_EVERY: u32 = 64;
const _: () =
    assert!(LOOKS_MAX / LOOKS_MIN * LOOKS_MIN == LOOKS_MAX && LOOKS_MIN.is_power_of_two());

/// Bytes that the daemon moves in less time than the largest bound, on a slow core too.
const MOVED_MEANWHILE: u64 = 64 << 10;

/// The bound, as learnt so far.
#[derive(Debug)]
pub(crate) struct Patience {
    looks: AtomicU32,
    /// Waits that found nothing at the least bound since the last trial.
    vain: AtomicU32,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self { looks: AtomicU32::new(LOOKS_MAX), vain: AtomicU32::new(0) }
    }

    /// Looks until `done()` holds or the bound is reached, once more for every 64 KiB of the `len`
    /// bytes that the daemon moves before; returns whether it holds.
    pub(crate) fn wait(&self, len: u64, done: impl Fn() -> bool) -> bool {
        if done() {
            return true;
        }
        let bound = self.looks.load(Ordering::Relaxed);
        let vain = self.vain.load(Ordering::Relaxed);
        debug_assert!((LOOKS_MIN..=LOOKS_MAX).contains(&bound), "the bound is kept in its range");
        let is_trial = vain >= TRIAL_EVERY;
        let times = u32::try_from(1 + len / MOVED_MEANWHILE).unwrap_or(u32::MAX);
        let looks = times.saturating_mul(if is_trial { LOOKS_MAX } else { bound });
        if !look(looks, done) {
            self.looks.store((bound / 2).max(LOOKS_MIN), Ordering::Relaxed);
            let vain = if is_trial || bound > LOOKS_MIN { 0 } else { vain + 1 };
            self.vain.store(vain, Ordering::Relaxed);
            return false;
        }
        // Stores only what changes: the line is shared by all threads of the process.
        if is_trial {
            self.vain.store(0, Ordering::Relaxed);
            self.looks.store(LOOKS_MAX, Ordering::Relaxed);
        } else if bound < LOOKS_MAX {
            self.looks.store(bound * 2, Ordering::Relaxed);
        }
        true
    }
}

/// Looks at most `bound` times; returns whether `done()` held.
pub(crate) fn look(bound: u32, done: impl Fn() -> bool) -> bool {
    (0..bound).any(|_| {
        let is_done = done();
        if !is_done {
            hint::spin_loop();
        }
        is_done
    })
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// Waits for an answer that comes after `looks` looks; returns how often it looked.
    fn looks_for(patience: &Patience, looks: u32) -> u32 {
        let count = Cell::new(0);
        patience.wait(0, || {
            count.set(count.get() + 1);
            count.get() > looks
        });
        count.get()
    }

    #[test]
    fn looking_in_vain_is_soon_given_up() {
        let patience = Patience::new();
        for _ in 0..10 {
            looks_for(&patience, u32::MAX);
        }
        assert_eq!(looks_for(&patience, u32::MAX), 1 + LOOKS_MIN);
    }

    #[test]
    fn an_answer_that_moves_bytes_is_worth_more_looks_of_the_same_bound() {
        let patience = Patience::new();
        let looks_for = |looks: u32| {
            let left = Cell::new(looks);
            patience.wait(1 << 20, || left.replace(left.get().saturating_sub(1)) == 0)
        };
        assert!(looks_for(17 * LOOKS_MAX));
        assert!(!looks_for(17 * LOOKS_MAX + 1));
        assert!(!looks_for(17 * LOOKS_MAX), "the bound was halved");
    }

    #[test]
    fn answers_that_come_in_time_keep_the_bound() {
        let patience = Patience::new();
        for _ in 0..100 {
            assert_eq!(looks_for(&patience, 100), 101);
        }
        assert_eq!(looks_for(&patience, u32::MAX), 1 + LOOKS_MAX);
    }

    #[test]
    fn answers_that_were_there_do_not_keep_patience_away() {
        let patience = Patience::new();
        for _ in 0..100 {
            looks_for(&patience, u32::MAX);
        }
        for _ in 0..2 * TRIAL_EVERY {
            looks_for(&patience, 500);
            looks_for(&patience, 0);
        }
        assert_eq!(looks_for(&patience, 500), 501);
    }

    #[test]
    fn patience_comes_back_when_it_pays_again() {
        let patience = Patience::new();
        for _ in 0..100 {
            looks_for(&patience, u32::MAX);
        }
        let waits = (0..2 * TRIAL_EVERY).take_while(|_| looks_for(&patience, 500) <= 500).count();
        assert!(waits <= TRIAL_EVERY as usize, "{waits}");
        assert_eq!(looks_for(&patience, 500), 501, "and stays");
    }
}
