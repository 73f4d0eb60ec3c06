//! Idle policies of an executor.
//!
//! # Polling that pays
//!
//! Under [`Idle::PollIdle`] an idle executor polls for [`LINGER`], and then for as long as earlier
//! polls have repaid it ([`Savings`]). A find pays when a poll has made it, and also when it ended
//! a block but came so soon that a poll would have: so polling begins again when events come fast.
//! What only a timer has woken was not found: an executor that blocks between the ticks of a timer
//! goes on blocking.
//!
//! # Giving way
//!
//! Under [`Idle::PollIdle`] an idle executor polls as a thread like any other, and every
//! [`OFFER_EVERY`] offers its core to whoever wants it: it yields. When it gets the core back late,
//! somebody did want it, and it has lost a time slice, milliseconds in which it served nobody. Then
//! it blocks at once, as under [`Idle::Park`], and tries again after a pause, which grows with
//! every slice it loses. So a computation loses microseconds, and the executor has a time slice to
//! its credit when it is woken.
//!
//! Before it yields it looks whether more threads want to run than the machine has cores. Such a
//! *crowd* may be other daemons and clients that wait for each other: then every one of them soon
//! yields or sleeps, and passing a core round by yields costs a tenth of wake-ups. Or it computes.
//! What it is, a yield tells: a computation keeps the core until the kernel's next tick. It is not
//! asked again before a look finds no crowd, or [`DISTRUST`] has passed. Meanwhile the executor
//! blocks instead, from the second look in a row on: one alone may meet a thread that is just going
//! to sleep.

use std::{mem, time::Duration};

use crate::{
    savings::{Savings, WORTH},
    time::Instant,
};

/// Idle policy of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Blocks at once, and peers ring for every event: the conventional baseline of measurements.
    ///
    /// Here the same as [`Park`](Self::Park); the doorbells differ.
    Interrupt,
    /// Blocks at once; peers ring only when it does.
    #[default]
    Park,
    /// Never blocks: for a core that has nothing else to do.
    Spin,
    /// Polls while nobody else wants the core, for every executor that sleeps, and blocks when
    /// another one polls, when the core is wanted, and when polling has found too little to pay.
    PollIdle,
}

/// An idle executor that is not the poller polls on for about as long as waking it would take.
const LINGER: Duration = Duration::from_micros(50);
/// Longest time for which another runnable thread is left without the core.
const OFFER_EVERY: Duration = Duration::from_micros(20);
/// The same while threads are more than cores, most of which wait for each other and soon yield.
const OFFER_TO_CROWD_EVERY: Duration = Duration::from_micros(1);
/// Delay from which a core that comes back counts as shared. An interrupt takes less, a computation
/// more.
const WANTED: Duration = Duration::from_micros(50);
/// Delay from which the thread or its machine was stopped: that says nothing about a crowd.
const STOPPED: Duration = Duration::from_millis(100);
/// Pause of polling while more threads want to run than there are cores: clients that wait soon
/// sleep, and then polling for them pays again.
const CROWD_PAUSE: Duration = Duration::from_micros(200);
/// First and longest pause of polling on a core that is wanted, and how it grows.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(256);
const PAUSE_GROWTH: u32 = 4;
/// A crowd that keeps the core for so long computes.
const COMPUTES: Duration = Duration::from_millis(1);
/// For so long it is not yielded to again, unless it goes away.
const DISTRUST: Duration = Duration::from_secs(10);
/// A core that was polled for so long undisturbed is not wanted any more.
const UNDISTURBED: Duration = Duration::from_millis(1);

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Poll,
    /// Poll on, after everybody who wants the core.
    Offer,
    Block,
}

/// Kind of an offer of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Yield,
    /// A crowd was seen that is not yielded to; if it lasts, the next offer blocks.
    Nothing,
    Block,
}

/// Decides how long an executor polls.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Longest time for which polls find nothing.
    quiet: Duration,
    idle_since: Option<Instant>,
    /// Nothing was found since then, whatever timers have woken.
    quiet_since: Option<Instant>,
    /// The executor has blocked since then, and the polls before are accounted for.
    has_blocked: bool,
    busy_since: Option<Instant>,
    offered_at: Instant,
    /// The core was wanted: no polling before this, and then only if no crowd is seen.
    blocks_until: Option<Instant>,
    pause: Duration,
    /// A crowd is yielded to from then on.
    distrusts_until: Instant,
    /// When it was last looked whether there is a crowd.
    looked_at: Instant,
    /// At the last offer more threads wanted to run than there are cores.
    was_crowded: bool,
    /// Another core has been woken to poll.
    is_relieved: bool,
}

impl Pace {
    /// Polls for `quiet` at most while nothing happens.
    pub(crate) fn new(quiet: Duration) -> Self {
        Self {
            quiet,
            idle_since: None,
            quiet_since: None,
            has_blocked: false,
            busy_since: None,
            offered_at: Instant::default(),
            blocks_until: None,
            pause: PAUSE_MIN,
            distrusts_until: Instant::default(),
            looked_at: Instant::default(),
            was_crowded: false,
            is_relieved: false,
        }
    }

    /// A turn that began at `now` found something that a poll can find.
    pub(crate) fn found(&mut self, now: Instant, savings: &Savings) {
        let Some(since) = self.quiet_since.take() else { return };
        let quiet = now.saturating_since(since);
        let has_blocked = self.account(quiet, savings);
        self.has_blocked = false;
        if !has_blocked || quiet <= WORTH {
            savings.earn(self.quiet);
        }
    }

    /// A turn that began at `now` had something to do. Returns whether work goes on for so long
    /// that others should not count on this executor's polling for them.
    pub(crate) fn worked(&mut self, now: Instant) -> bool {
        (self.idle_since, self.is_relieved) = (None, false);
        let since = *self.busy_since.get_or_insert(now);
        now.saturating_since(since) >= LINGER
    }

    /// A turn that began at `now` found nothing. `may_poll` says whether this executor is, or has
    /// just become, the poller; `is_crowded` whether more threads want to run than there are cores.
    pub(crate) fn rested(
        &mut self,
        now: Instant,
        savings: &Savings,
        may_poll: impl FnOnce() -> bool,
        is_crowded: impl FnOnce() -> bool,
    ) -> Rest {
        self.busy_since = None;
        let idle = now.saturating_since(*self.idle_since.get_or_insert(now));
        let quiet = now.saturating_since(*self.quiet_since.get_or_insert(now));
        let polls_for = savings.left().max(LINGER).min(self.quiet);
        let blocks = self.is_relieved || quiet >= polls_for || self.pauses(now, is_crowded);
        if blocks || idle >= LINGER && !may_poll() {
            self.account(quiet, savings);
            return Rest::Block;
        }
        if idle >= UNDISTURBED {
            self.pause = PAUSE_MIN;
        }
        let offer_every = if self.was_crowded { OFFER_TO_CROWD_EVERY } else { OFFER_EVERY };
        if now.saturating_since(self.offered_at) < offer_every {
            return Rest::Poll;
        }
        self.offered_at = now;
        Rest::Offer
    }

    /// Returns how to offer the core at `now`.
    pub(crate) fn offer(&mut self, now: Instant, is_crowded: impl FnOnce() -> bool) -> Offer {
        let had_crowd = self.was_crowded;
        if !had_crowd || now.saturating_since(self.looked_at) >= OFFER_EVERY {
            self.looked_at = now;
            self.look(is_crowded);
        }
        if !self.was_crowded || now >= self.distrusts_until {
            return Offer::Yield;
        }
        if !had_crowd {
            return Offer::Nothing;
        }
        self.blocks_until = Some(now + CROWD_PAUSE);
        Offer::Block
    }

    /// The core was yielded at `from` and came back at `to`; returns whether it was wanted.
    pub(crate) fn yielded(&mut self, from: Instant, to: Instant) -> bool {
        let away = to.saturating_since(from);
        let is_wanted = away >= WANTED;
        match (is_wanted, self.was_crowded) {
            (true, true) if away < STOPPED => {
                self.blocks_until = Some(to + CROWD_PAUSE);
                if away >= COMPUTES {
                    self.distrusts_until = to + DISTRUST;
                }
            }
            (true, _) => {
                self.blocks_until = Some(to + self.pause);
                self.pause = (self.pause * PAUSE_GROWTH).min(PAUSE_MAX);
            }
            (false, _) => {}
        }
        is_wanted
    }

    /// True if it is too early to try again after the core was wanted.
    fn pauses(&mut self, now: Instant, is_crowded: impl FnOnce() -> bool) -> bool {
        let Some(until) = self.blocks_until else { return false };
        if now < until {
            return true;
        }
        self.look(is_crowded);
        let prolongs = self.was_crowded && now < self.distrusts_until;
        self.blocks_until = prolongs.then(|| now + CROWD_PAUSE);
        prolongs
    }

    /// Looks for a crowd. One that is gone is forgiven: the next is another.
    fn look(&mut self, is_crowded: impl FnOnce() -> bool) {
        self.was_crowded = is_crowded();
        if !self.was_crowded {
            self.distrusts_until = Instant::default();
        }
    }

    /// Polls have found something for another core, which was woken and polls from now on.
    pub(crate) fn relieved(&mut self, savings: &Savings) {
        self.is_relieved = true;
        savings.earn(self.quiet);
    }

    /// Spends the time of polls that found nothing, once; returns whether they ended before.
    fn account(&mut self, quiet: Duration, savings: &Savings) -> bool {
        let has_blocked = mem::replace(&mut self.has_blocked, true);
        if !has_blocked {
            savings.spend(quiet);
        }
        has_blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Savings that outlast any test.
    fn rich() -> Savings {
        let savings = Savings::default();
        savings.earn_all();
        savings
    }

    /// True if an executor that finds something each time `gap` has passed polls until then.
    fn polls_through(pace: &mut Pace, savings: &Savings, start: u64, gap: u64) -> bool {
        let is_polling = (start..start + gap)
            .all(|now| pace.rested(at(now), savings, || true, || false) != Rest::Block);
        pace.found(at(start + gap), savings);
        is_polling
    }

    #[test]
    fn poller_blocks_after_the_quiet_time_whatever_it_has_saved() {
        let mut pace = Pace::new(Duration::from_millis(10));
        assert_ne!(pace.rested(at(0), &rich(), || true, || false), Rest::Block);
        assert_ne!(pace.rested(at(9_999), &rich(), || true, || false), Rest::Block);
        assert_eq!(pace.rested(at(10_000), &rich(), || true, || false), Rest::Block);
        pace.found(at(10_001), &rich());
        assert_ne!(pace.rested(at(10_002), &rich(), || true, || false), Rest::Block);
    }

    #[test]
    fn poller_lingers_only_until_polls_have_found_something() {
        let (mut pace, savings) = (Pace::new(Duration::from_secs(1)), Savings::default());
        assert!(!polls_through(&mut pace, &savings, 0, 150), "nothing was found yet");
        assert!(polls_through(&mut pace, &savings, 1_000, 150), "the last poll would have paid");
        for start in (2_000..).step_by(1_000).take(100) {
            assert!(polls_through(&mut pace, &savings, start, 190), "every poll pays");
        }
        assert!(polls_through(&mut pace, &savings, 200_000, 1_000), "and a long one now and then");
    }

    #[test]
    fn poller_blocks_between_events_that_are_too_rare() {
        let (mut pace, savings) = (Pace::new(Duration::from_secs(1)), Savings::default());
        for start in (0..).step_by(1_000).take(100) {
            polls_through(&mut pace, &savings, start, 100);
        }
        let saved = savings.left();
        let mut polled = 0;
        for start in (1_000_000..).step_by(100_000).take(100) {
            let is_polling =
                |now: &u64| pace.rested(at(*now), &savings, || true, || false) != Rest::Block;
            polled += (start..start + 100_000).take_while(is_polling).count();
            pace.found(at(start + 100_000), &savings);
        }
        assert!(polled as u128 <= saved.as_micros() + 100 * LINGER.as_micros(), "{polled} us");
        assert_eq!(savings.left(), Duration::ZERO);
    }

    #[test]
    fn poller_that_wakes_for_a_timer_does_not_poll_again() {
        let (mut pace, savings) = (Pace::new(Duration::from_secs(1)), Savings::default());
        assert_ne!(pace.rested(at(0), &savings, || true, || false), Rest::Block);
        assert_eq!(pace.rested(at(50), &savings, || true, || false), Rest::Block);
        for tick in [2_000, 4_000, 6_000] {
            pace.worked(at(tick));
            assert_eq!(pace.rested(at(tick + 1), &savings, || true, || false), Rest::Block);
        }
    }

    #[test]
    fn poll_for_another_core_pays() {
        let (mut pace, savings) = (Pace::new(Duration::from_secs(1)), Savings::default());
        assert_ne!(pace.rested(at(0), &savings, || true, || false), Rest::Block);
        pace.relieved(&savings);
        assert_eq!(savings.left(), WORTH);
        assert_eq!(pace.rested(at(40), &savings, || true, || false), Rest::Block);
        assert_eq!(savings.left(), WORTH - Duration::from_micros(40), "spent once");
        assert_eq!(pace.rested(at(90), &savings, || true, || false), Rest::Block);
        assert_eq!(savings.left(), WORTH - Duration::from_micros(40));
    }

    #[test]
    fn who_may_not_poll_lingers_and_blocks() {
        let mut pace = Pace::new(Duration::from_secs(1));
        assert_ne!(pace.rested(at(0), &rich(), || false, || false), Rest::Block);
        assert_ne!(pace.rested(at(49), &rich(), || false, || false), Rest::Block);
        assert_eq!(pace.rested(at(50), &rich(), || false, || false), Rest::Block);
    }

    #[test]
    fn the_core_is_offered_every_few_microseconds() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let offers = (100..200)
            .filter(|now| pace.rested(at(*now), &rich(), || true, || false) == Rest::Offer);
        assert_eq!(offers.count(), 5);
    }

    #[test]
    fn a_wanted_core_is_left_for_a_pause_that_grows() {
        let mut pace = Pace::new(Duration::from_secs(100));
        let mut now = 1_000_000;
        for pause in [1_000, 4_000, 16_000, 64_000, 256_000, 256_000] {
            assert_ne!(pace.rested(at(now), &rich(), || true, || false), Rest::Block);
            assert!(!pace.yielded(at(now), at(now + 49)));
            assert!(pace.yielded(at(now), at(now + 50)));
            now += 50;
            assert_eq!(pace.rested(at(now), &rich(), || true, || false), Rest::Block);
            pace.worked(at(now + pause - 1));
            assert_eq!(pace.rested(at(now + pause - 1), &rich(), || true, || false), Rest::Block);
            pace.worked(at(now + pause));
            now += pause;
        }
        assert_ne!(pace.rested(at(now), &rich(), || true, || false), Rest::Block);
        assert_ne!(pace.rested(at(now + 1_000), &rich(), || true, || false), Rest::Block);
        assert!(pace.yielded(at(now), at(now + 50)));
        assert_ne!(
            pace.rested(at(now + 1_050), &rich(), || true, || false),
            Rest::Block,
            "it began anew"
        );
    }

    #[test]
    fn a_crowd_that_gives_cores_back_is_yielded_to_at_once_and_polled_for() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let mut looks = 0;
        for now in 1_000..1_100 {
            assert_eq!(pace.rested(at(now), &rich(), || true, || false), Rest::Offer);
            let mut look = || {
                looks += 1;
                true
            };
            assert_eq!(pace.offer(at(now), &mut look), Offer::Yield);
            assert!(!pace.yielded(at(now), at(now + 40)));
        }
        assert_eq!(looks, 5, "a look costs more than a yield");
    }

    #[test]
    fn a_computation_is_not_asked_again_for_a_time_and_a_client_is() {
        let mut pace = Pace::new(Duration::from_secs(100));
        let mut now = 1_000_000;
        for (kept, distrust) in [(999, 0), (1_000, 10_000_000), (4_000, 10_000_000)] {
            assert_eq!(pace.offer(at(now), || true), Offer::Yield);
            assert!(pace.yielded(at(now), at(now + kept)));
            now += kept;
            let until = distrust.max(200);
            assert_eq!(pace.rested(at(now + until - 1), &rich(), || true, || true), Rest::Block);
            assert_ne!(pace.rested(at(now + until + 199), &rich(), || true, || true), Rest::Block);
            now += until + 219;
        }
    }

    #[test]
    fn a_computation_that_is_gone_is_forgotten() {
        let mut pace = Pace::new(Duration::from_secs(100));
        for now in [1_000_000, 2_000_000] {
            assert_eq!(pace.offer(at(now), || true), Offer::Yield);
            assert!(pace.yielded(at(now), at(now + 4_000)));
            assert_eq!(pace.rested(at(now + 4_199), &rich(), || true, || true), Rest::Block);
            assert_eq!(
                pace.rested(at(now + 4_200), &rich(), || true, || true),
                Rest::Block,
                "still there"
            );
            assert_ne!(pace.rested(at(now + 4_400), &rich(), || true, || false), Rest::Block);
        }
    }

    #[test]
    fn who_was_stopped_does_not_distrust_the_crowd() {
        let mut pace = Pace::new(Duration::from_secs(1));
        assert_eq!(pace.offer(at(1_000), || true), Offer::Yield);
        assert!(pace.yielded(at(1_000), at(101_000)));
        assert_eq!(pace.rested(at(101_999), &rich(), || true, || true), Rest::Block);
        assert_ne!(pace.rested(at(102_000), &rich(), || true, || true), Rest::Block);
        assert_eq!(pace.offer(at(102_020), || true), Offer::Yield);
    }

    #[test]
    fn a_distrusted_crowd_prolongs_the_pause() {
        let mut pace = Pace::new(Duration::from_secs(1));
        pace.distrusts_until = at(10_000);
        pace.rested(at(0), &rich(), || true, || panic!("nothing was wanted yet"));
        assert_eq!(pace.offer(at(80), || true), Offer::Nothing, "once is chance");
        assert_ne!(pace.rested(at(80), &rich(), || true, || panic!("not yet")), Rest::Block);
        assert_eq!(pace.offer(at(100), || true), Offer::Block);
        assert_eq!(
            pace.rested(at(299), &rich(), || true, || panic!("asked too early")),
            Rest::Block
        );
        assert_eq!(pace.rested(at(300), &rich(), || true, || true), Rest::Block);
        assert_eq!(
            pace.rested(at(499), &rich(), || true, || panic!("asked too often")),
            Rest::Block
        );
        assert_ne!(pace.rested(at(500), &rich(), || true, || false), Rest::Block);
        assert_eq!(pace.offer(at(520), || true), Offer::Yield, "not the one of before");
    }

    #[test]
    fn long_work_ends_an_office_and_short_work_does_not() {
        let mut pace = Pace::new(Duration::from_secs(1));
        assert!(!pace.worked(at(0)));
        assert!(!pace.worked(at(49)));
        assert!(pace.worked(at(50)));
        pace.rested(at(60), &rich(), || true, || false);
        assert!(!pace.worked(at(70)));
    }

    #[test]
    fn who_was_relieved_blocks_until_there_is_work() {
        let mut pace = Pace::new(Duration::from_secs(1));
        pace.relieved(&rich());
        assert_eq!(pace.rested(at(1), &rich(), || true, || false), Rest::Block);
        pace.worked(at(2));
        assert_ne!(pace.rested(at(3), &rich(), || true, || false), Rest::Block);
    }
}
