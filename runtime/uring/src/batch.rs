//! When the entries that are queued for the kernel are worth a system call.
//!
//! As soon as they are as many as the device has left to do (at least 2, at most 32), so that it
//! never waits while a long batch is prepared.
//!
//! A task that is served mostly asks for more. The last of those that follow goes by the call that
//! the executor blocks in: one call less. If it does not block it is late by one turn.
//!
//! Short transfers that continue each other go as one (`run`), and each call for them costs as much
//! time of a core as many of them: it wakes the device, whose interrupt follows. So they wait for
//! 512 KiB of them, also when the device has nothing to do, as long as more of them come. More does
//! not wait, of whatever kind: the kernel would make longer requests of it, which begin later and
//! take a device longer.

use std::{mem, time::Duration};

use executor::Instant;

use crate::span::Span;

/// So many queued operations are worth a system call at once, whatever the device has to do,
pub(crate) const BATCH_LEN: usize = 32;
/// and so many when it has nothing.
pub(crate) const BATCH_LEN_MIN: usize = 2;

/// So many bytes are worth one at once, too.
pub(crate) const BATCH_BYTES: usize = 512 << 10;
/// Short transfers that continue each other stay queued so long for that at most.
pub(crate) const GATHERING_MAX: Duration = Duration::from_micros(400);

/// The longest any other stays queued while some are in flight.
pub(crate) const HELD_MAX: Duration = Duration::from_micros(20);

/// Operations not yet given to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) len: usize,
    /// Of the transfers among them.
    byte_len: usize,
    /// When the first of them was pushed.
    oldest: Instant,
    /// The transfer pushed last, if it is short, or of short buffers.
    last: Option<Span>,
    form: Form,
    /// Operations that there were when it was last asked whether they are due.
    len_before: usize,
    /// How many the last visit has served: as many will probably follow.
    served: usize,
    /// How many have followed.
    followed: usize,
    /// The last of those has been noted since the last visit.
    is_complete: bool,
    /// At the last visit it was left to a block.
    is_left: bool,
}

/// How the operations of a batch follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// The last of them does not continue the one before it.
    #[default]
    Cut,
    /// It does.
    Continued,
    /// One of them neither continues another nor is continued.
    Scattered,
}

impl Batch {
    /// Notes an operation whose entry is pushed next, and where it goes if it is a transfer.
    pub(crate) fn note(&mut self, span: Option<&Span>, now: Instant) {
        self.followed += 1;
        self.is_complete = self.followed == self.served;
        let continues = self.continues_last(span);
        if self.len == 0 {
            (self.byte_len, self.form, self.len_before) = (0, Form::Continued, 0);
            self.oldest = now;
        }
        self.form = match (self.form, continues) {
            (Form::Scattered, _) | (Form::Cut, false) => Form::Scattered,
            (Form::Cut | Form::Continued, true) => Form::Continued,
            (Form::Continued, false) => Form::Cut,
        };
        self.byte_len += span.map_or(0, |span| span.len);
        self.len += 1;
    }

    /// Notes how many operations a visit has served.
    pub(crate) fn served(&mut self, count: usize) {
        (self.served, self.followed) = (count, 0);
    }

    /// True if it is worth a system call of its own while the device has `left` operations to do.
    pub(crate) fn is_worth_a_call(&self, left: usize) -> bool {
        !self.is_complete && self.is_full(left)
    }

    /// True if it is full while the device has `left` operations to do.
    fn is_full(&self, left: usize) -> bool {
        let full_len = left.clamp(BATCH_LEN_MIN, BATCH_LEN);
        self.byte_len >= BATCH_BYTES || !self.is_gathered() && self.len >= full_len
    }

    /// Counts a visit. True if the batch has waited for long enough; at a visit at which nothing
    /// else is in flight when `is_alone`, and which a block will probably follow when `may_block`.
    pub(crate) fn visit(&mut self, is_alone: bool, may_block: bool, now: Instant) -> bool {
        let is_complete = mem::take(&mut self.is_complete);
        let was_left = mem::replace(&mut self.is_left, is_complete && may_block);
        let grows = mem::replace(&mut self.len_before, self.len) < self.len;
        if self.len == 0 {
            return false;
        }
        let gathers = self.is_gathered() && grows;
        let held_max = if gathers { GATHERING_MAX } else { HELD_MAX };
        let waits_for_more = gathers || !(is_alone || is_complete || was_left);
        !waits_for_more && !self.is_left
            || self.is_full(usize::MAX)
            || now.saturating_since(self.oldest) >= held_max
    }

    /// True if it is short transfers that continue each other.
    pub(crate) fn is_gathered(&self) -> bool {
        self.form == Form::Continued && self.len > 1
    }

    /// True if what goes there is short, or of short buffers, and begins where the last one ended:
    /// what goes to the kernel together becomes one request to the device.
    fn continues_last(&mut self, span: Option<&Span>) -> bool {
        let Some(span) = span else { return false };
        let short = span.is_of_short.then_some(*span);
        let last = mem::replace(&mut self.last, short);
        short.is_some() && last.is_some_and(|last| span.continues(&last))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use super::*;
    use crate::{memory::Heap, operation::Operation};

    const LEN: usize = 4096;

    /// A batch of short writes at these places, all noted at the start of time.
    fn batch_of(places: &[u64]) -> (Batch, impl Fn(&mut Batch, u64)) {
        batch_of_len(LEN, places)
    }

    fn batch_of_len(len: usize, places: &[u64]) -> (Batch, impl Fn(&mut Batch, u64)) {
        let file = Arc::new(OwnedFd::from(File::open("/dev/null").expect("is there")));
        let note = move |batch: &mut Batch, at| {
            let (file, from) = (Arc::clone(&file), Heap::buffer(len).into());
            let write = Operation::Write { file, at, from, is_whole: false };
            batch.note(Span::of(&write).as_ref(), Instant::default());
        };
        let mut batch = Batch::default();
        places.iter().for_each(|at| note(&mut batch, *at));
        (batch, note)
    }

    #[test]
    fn what_continues_waits_for_more_as_long_as_more_comes_but_not_for_ever() {
        let (mut batch, note) = batch_of(&[0, LEN as u64]);
        let after = |time| Instant::default() + time;
        for (place, time) in (2..).zip([HELD_MAX, GATHERING_MAX / 2, GATHERING_MAX * 99 / 100]) {
            assert!(!batch.visit(true, true, after(time)));
            note(&mut batch, place * LEN as u64);
        }
        assert!(batch.visit(true, true, after(GATHERING_MAX)));

        let (mut batch, _) = batch_of(&[0, LEN as u64]);
        assert!(!batch.visit(true, true, Instant::default()));
        assert!(batch.visit(true, true, Instant::default()), "no more of them has come");
    }

    #[test]
    fn what_is_scattered_waits_for_as_many_as_the_device_has_left() {
        let scattered: Vec<_> = (0..8).map(|place| place << 20).collect();
        for len in [3, 8] {
            let (batch, _) = batch_of(scattered.get(..len).expect("so many"));
            assert!(batch.is_full(len) && !batch.is_full(len + 1), "{len} transfers");
        }
        let (one, note) = batch_of(&[1 << 20]);
        assert!(!one.is_full(0));
        let mut two = one;
        note(&mut two, 0);
        assert!(two.is_full(0));
    }

    #[test]
    fn what_is_long_enough_waits_for_no_more_whatever_the_device_has_left() {
        for (len, worth) in [(BATCH_BYTES, 1), (BATCH_BYTES / 2, 2), (BATCH_BYTES / 8, 8)] {
            let places: Vec<_> = (0..worth).map(|place| place << 30).collect();
            let (batch, note) = batch_of_len(len, &places);
            assert!(batch.is_full(usize::MAX), "{worth} of {len} bytes");
            let (mut fewer, _) = batch_of_len(len, &places[1..]);
            assert!(!fewer.is_full(usize::MAX), "{worth} of {len} bytes less one");
            note(&mut fewer, 0);
            assert!(fewer.is_full(usize::MAX));
        }
    }

    #[test]
    fn the_last_that_follows_is_left_to_a_block_once() {
        for is_alone in [true, false] {
            let followed = || {
                let (mut batch, note) = batch_of(&[]);
                batch.served(1);
                note(&mut batch, 0);
                batch
            };
            let mut batch = followed();
            assert!(!batch.visit(is_alone, true, Instant::default()));
            assert!(batch.visit(is_alone, true, Instant::default()), "it did not block");
            assert!(followed().visit(is_alone, false, Instant::default()), "it will not");
        }
    }

    #[test]
    fn what_stands_alone_does_not_wait_for_what_continues() {
        let (mut batch, _) = batch_of(&[1 << 30, 0, LEN as u64]);
        assert!(batch.visit(true, true, Instant::default()));
    }
}
