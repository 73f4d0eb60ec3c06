//! A table of files that the daemon has at rest, which clients read (`docs/reference/protocol.md`,
//! section 10). The daemon alone writes it: clients have it mapped read-only, and cannot map it
//! otherwise.
//!
//! An index of slots by a hash of the name leads to entries: a sequence and words that the owner of
//! the table gives a meaning. As many slots are in use as the entries need: few share the reader's
//! caches with the entries. Whoever looks while that number changes may not find what is there. The
//! sequence is odd while the daemon changes what the entry is about, also when that is elsewhere,
//! as the bytes of a file. Whoever finds the same even sequence before and after a look has seen
//! one state.
//!
//! A lookup touches one line of slots and one pair of lines of its entry. What few entries need is
//! elsewhere: the *further* words, which count only where the last one of the entry is not 0.
//!
//! # Memory ordering
//!
//! An entry is a seqlock. The daemon stores the odd sequence, passes a fence, and changes things;
//! it stores the even sequence with `Release` when they are as the words say. A reader loads the
//! sequence with `Acquire`, reads, passes an `Acquire` fence, and loads it again.
//!
//! [`Reading`] says which entries a client reads by. That is the sleeper's pattern of
//! [`doorbell`](crate::doorbell): the client stores the mark and then loads the sequence, the
//! daemon stores the odd sequence and then loads the marks, each with a `SeqCst` fence in between.
//! Either the client finds that the entry changes, or the daemon finds who reads by it.

#[cfg(not(loom))]
use core::{mem::offset_of, ops::Range};

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of an entry, with the further ones.
pub const PLACE_WORDS: usize = NEAR + FURTHER;
/// Those beside the sequence.
const NEAR: usize = if cfg!(loom) { 2 } else { 15 };
/// Those that count where the last of these is not 0.
const FURTHER: usize = if cfg!(loom) { 1 } else { 6 };
/// Slots of the index: twice as many as entries, and a power of two.
const SLOTS: usize = 2 * ENTRIES;
/// Those in use at first.
const FIRST_SLOTS: usize = if cfg!(miri) { 1 << 6 } else { 1 << 10 };
/// Files that a table has room for.
const ENTRIES: usize = CAPACITY as usize;
const CAPACITY: u32 = if cfg!(miri) { 1 << 7 } else { 1 << 18 };
/// Slots that are looked at for a name.
const PROBES: usize = 64;
/// Bits of a slot that say which entry it leads to; the others are the hash's.
const NUMBER_BITS: u32 = 19;
/// In a slot whose entry is elsewhere by now; no entry has this number.
const LEFT: u32 = (1 << NUMBER_BITS) - 1;
const _: () = assert!(SLOTS.is_power_of_two() && CAPACITY < LEFT);
const _: () = assert!(FIRST_SLOTS <= SLOTS && PROBES <= FIRST_SLOTS);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == 128);

/// The words of an entry.
pub type PlaceWords = [u64; PLACE_WORDS];

/// A state of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    entry: u32,
    sequence: u64,
}

impl Seen {
    /// The entry's number.
    #[must_use]
    pub const fn entry(self) -> u32 {
        self.entry
    }
}

/// One file, as far as it is known. Processors fetch lines by pairs.
#[derive(Debug)]
#[repr(C, align(128))]
struct Entry {
    sequence: AtomicU64,
    words: [AtomicU64; NEAR],
}

/// The further words of an entry.
#[derive(Debug)]
#[repr(C)]
struct Further([AtomicU64; FURTHER]);

/// All words of an entry.
#[derive(Clone, Copy)]
struct Whole<'a> {
    near: &'a Entry,
    further: &'a Further,
}

impl Entry {
    fn is_still(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    fn hide(&self) -> bool {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        sequence % 2 == 0
    }
}

impl Whole<'_> {
    /// The words, and the sequence that they belong to; `None`: they are about to change.
    fn read(self) -> Option<(u64, PlaceWords)> {
        let sequence = self.near.sequence.load(Ordering::Acquire);
        if sequence == 0 || sequence % 2 == 1 {
            return None;
        }
        let words = self.words();
        self.near.is_still(sequence).then_some((sequence, words))
    }

    /// The words as they are found.
    #[inline]
    fn words(self) -> PlaceWords {
        let mut words = [0; PLACE_WORDS];
        let (near, further) = words.split_at_mut(NEAR);
        for (word, from) in near.iter_mut().zip(&self.near.words) {
            *word = from.load(Ordering::Relaxed);
        }
        if near.last() != Some(&0) {
            for (word, from) in further.iter_mut().zip(&self.further.0) {
                *word = from.load(Ordering::Relaxed);
            }
        }
        words
    }

    /// Of an entry that is hidden, or was never shown.
    fn show(self, words: &PlaceWords) {
        let (near, further) = words.split_at(NEAR);
        for (word, new) in self.near.words.iter().zip(near) {
            word.store(*new, Ordering::Relaxed);
        }
        if near.last() != Some(&0) {
            for (word, new) in self.further.0.iter().zip(further) {
                word.store(*new, Ordering::Relaxed);
            }
        }
        let hidden = self.near.sequence.load(Ordering::Relaxed) | 1;
        self.near.sequence.store(hidden.wrapping_add(1), Ordering::Release);
    }
}

/// The shared table.
#[derive(Debug)]
#[repr(C)]
pub struct PlacesShared {
    /// 1 as long as the daemon keeps it.
    kept: AtomicU64,
    /// How often the slots in use have been doubled.
    doublings: AtomicU64,
    /// The number of an entry plus one, below the upper bits of the hash.
    slots: [AtomicU32; SLOTS],
    entries: [Entry; ENTRIES],
    further: [Further; ENTRIES],
}

impl PlacesShared {
    // ---- clients

    /// An entry of this hash whose words are those that are looked for.
    pub fn find(
        &self,
        hash: u64,
        is_it: impl Fn(&PlaceWords) -> bool,
    ) -> Option<(Seen, PlaceWords)> {
        for slot in self.probe(hash) {
            let found = slot.load(Ordering::Acquire);
            if found == 0 {
                return None;
            }
            let Some(entry) = entry_of(found, hash) else { continue };
            let Some((sequence, words)) = self.whole(entry).and_then(Whole::read) else { continue };
            if is_it(&words) && self.is_kept() {
                return Some((Seen { entry, sequence }, words));
            }
        }
        None
    }

    /// True if all is as it was seen.
    #[must_use]
    pub fn is_still(&self, seen: Seen) -> bool {
        self.entry(seen.entry).is_some_and(|entry| entry.is_still(seen.sequence)) && self.is_kept()
    }

    /// The words as they were seen; `None`: they are others by now.
    #[must_use]
    pub fn words(&self, seen: Seen) -> Option<PlaceWords> {
        let (sequence, words) = self.whole(seen.entry)?.read()?;
        Some(words).filter(|_| sequence == seen.sequence && self.is_kept())
    }

    fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire) == 1
    }

    // ---- the daemon

    /// The bytes of these entries in a table.
    #[cfg(not(loom))]
    pub(crate) fn bytes_of(entries: Range<usize>) -> Range<usize> {
        let at = |entry: usize| offset_of!(Self, entries) + entry.min(ENTRIES) * size_of::<Entry>();
        at(entries.start)..at(entries.end)
    }

    /// Says whether the table holds.
    pub fn keep(&self, is_kept: bool) {
        self.kept.store(is_kept.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Entries that there are.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        CAPACITY
    }

    /// From now on, until it is shown again, nobody takes the entry for true. Look at who
    /// [reads](Reading::readers) by it after this. False: it was hidden.
    pub fn hide(&self, entry: u32) -> bool {
        self.entry(entry).is_some_and(Entry::hide)
    }

    /// Shows an entry that is hidden, or never was shown, with these words. The [further](self)
    /// ones are 0 where they do not count.
    pub fn show(&self, entry: u32, words: &PlaceWords) {
        self.whole(entry).into_iter().for_each(|entry| entry.show(words));
    }

    /// The words of an entry, hidden or not; for the one who writes them.
    #[must_use]
    pub fn known(&self, entry: u32) -> PlaceWords {
        self.whole(entry).map(Whole::words).unwrap_or([0; PLACE_WORDS])
    }

    /// Has slots for so many entries. True: no hash leads anywhere now, so all that are known are
    /// to be [entered](Self::enter) anew.
    pub fn make_room(&self, count: usize) -> bool {
        let before = self.used().len();
        if count.saturating_mul(2) <= before || before == SLOTS {
            return false;
        }
        self.used().iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        let wanted = count.saturating_mul(2).checked_next_power_of_two().unwrap_or(SLOTS);
        let doublings = (wanted.min(SLOTS) / FIRST_SLOTS).ilog2();
        self.doublings.store(doublings.into(), Ordering::Release);
        true
    }

    /// Has a hash lead to an entry; false: there is no slot for it.
    pub fn enter(&self, hash: u64, entry: u32) -> bool {
        let is_free = |slot: &&AtomicU32| matches!(slot.load(Ordering::Relaxed), 0 | LEFT);
        let Some(slot) = self.probe(hash).find(is_free) else { return false };
        slot.store(slot_of(entry, hash), Ordering::Release);
        true
    }

    /// Has a hash lead to an entry no more.
    pub fn leave(&self, hash: u64, entry: u32) {
        let its = slot_of(entry, hash);
        let slot = self.probe(hash).find(|slot| slot.load(Ordering::Relaxed) == its);
        slot.into_iter().for_each(|slot| slot.store(LEFT, Ordering::Release));
    }

    fn entry(&self, entry: u32) -> Option<&Entry> {
        self.entries.get(entry as usize)
    }

    fn whole(&self, entry: u32) -> Option<Whole<'_>> {
        let (near, further) = (self.entry(entry)?, self.further.get(entry as usize)?);
        Some(Whole { near, further })
    }

    /// The slots in use.
    fn used(&self) -> &[AtomicU32] {
        let doublings = self.doublings.load(Ordering::Acquire).min(u64::from(SLOTS.ilog2()));
        self.slots.get(..FIRST_SLOTS << doublings).unwrap_or(&self.slots)
    }

    fn probe(&self, hash: u64) -> impl Iterator<Item = &AtomicU32> {
        let used = self.used();
        // The two lowest bits are the same in each: see `NameHash`.
        let first = usize::try_from(hash >> 2).unwrap_or(0) & (used.len() - 1);
        let (before, after) = used.split_at(first);
        after.iter().chain(before).take(PROBES)
    }
}

/// The bits of a hash that a slot has.
const fn tag_of(hash: u64) -> u32 {
    let [.., a, b, c, d] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]) & !LEFT
}

const fn slot_of(entry: u32, hash: u64) -> u32 {
    tag_of(hash) | (entry + 1)
}

fn entry_of(slot: u32, hash: u64) -> Option<u32> {
    let number = slot ^ tag_of(hash);
    number.checked_sub(1).filter(|_| number < LEFT)
}

/// Which entries a client reads by, in its session's segment: one in each file slot at most.
#[derive(Debug)]
#[repr(C)]
pub struct Reading<const SLOT_COUNT: usize> {
    /// How many there may be.
    count: AtomicU32,
    /// Their numbers plus one.
    entries: [AtomicU32; SLOT_COUNT],
}

impl<const SLOT_COUNT: usize> Reading<SLOT_COUNT> {
    /// For a client: reads by an entry, if that is [still](PlacesShared::is_still) what it was
    /// after this.
    pub fn begin(&self, slot: u32, seen: Seen) {
        let Some(place) = self.entries.get(slot as usize) else { return };
        self.count.fetch_add(1, Ordering::AcqRel);
        place.store(seen.entry + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// For a client: does so no more.
    pub fn end(&self, slot: u32) {
        let Some(place) = self.entries.get(slot as usize) else { return };
        if place.swap(0, Ordering::AcqRel) != 0 {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// For the daemon: the slots that read by an entry, which is hidden.
    pub fn readers(&self, entry: u32) -> impl Iterator<Item = u32> {
        let some = if self.count.load(Ordering::Relaxed) == 0 { &[] } else { &self.entries[..] };
        let places = (0..).zip(some);
        places.filter(move |(_, place)| reads(place, entry)).map(|(slot, _)| slot)
    }

    /// For the daemon: true if a slot reads by an entry.
    #[must_use]
    pub fn reads(&self, slot: u32, entry: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|place| reads(place, entry))
    }
}

fn reads(place: &AtomicU32, entry: u32) -> bool {
    place.load(Ordering::Relaxed) == entry.wrapping_add(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;

    use super::*;

    /// A zeroed table, as in a segment.
    fn table() -> Box<PlacesShared> {
        let layout = std::alloc::Layout::new::<PlacesShared>();
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        // SAFETY: as much memory as that, which any bytes are a valid value of.
        let table: Box<PlacesShared> = unsafe { Box::from_raw(memory.cast()) };
        table.keep(true);
        table
    }

    fn words(first: u64) -> PlaceWords {
        let mut words = [7; PLACE_WORDS];
        words[0] = first;
        words
    }

    #[test]
    fn entry_is_found_by_its_words_until_it_is_hidden() {
        let table = table();
        let find = |first| table.find(42, |words| words[0] == first);
        assert!(table.enter(42, 5) && table.enter(42, 6));
        assert_eq!(find(1), None, "nothing is shown");
        for (entry, first) in [(5, 1), (6, 2)] {
            table.hide(entry);
            table.show(entry, &words(first));
        }
        let (seen, found) = find(2).expect("shown");
        assert_eq!((seen.entry(), found), (6, words(2)));
        assert_eq!(table.words(seen), Some(words(2)));
        table.hide(6);
        assert!(find(2).is_none() && !table.is_still(seen) && table.words(seen).is_none());
        table.show(6, &words(2));
        assert!(find(2).is_some() && !table.is_still(seen), "another state");
        table.leave(42, 5);
        assert!(find(1).is_none() && find(2).is_some());
        table.keep(false);
        assert_eq!(find(2), None);
    }

    #[test]
    fn further_words_count_where_the_last_one_says_so() {
        let table = table();
        let shown = |words: &PlaceWords| {
            table.hide(7);
            table.show(7, words);
            table.find(44, |_| true).map(|(_, found)| found)
        };
        assert!(table.enter(44, 7));
        assert_eq!(shown(&words(1)), Some(words(1)));
        let mut near = words(2);
        near[NEAR - 1..].fill(0);
        assert_eq!(shown(&near), Some(near), "what was there before counts no more");
        assert_eq!(table.known(7), near);
        assert_eq!(shown(&words(3)), Some(words(3)));
    }

    #[test]
    fn slots_are_used_again_and_end_somewhere() {
        let table = table();
        for entry in 0..u32::try_from(PROBES).expect("few") {
            assert!(table.enter(9, entry));
        }
        assert!(!table.enter(9, 1000));
        table.leave(9, 3);
        assert!(table.enter(9, 1000));
    }

    #[test]
    fn entries_are_found_again_with_more_slots() {
        let table = table();
        let hash = |entry: u32| u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut entered = 0;
        let grown = (0..table.capacity()).filter(|entry| {
            let has_grown = table.make_room(*entry as usize + 1);
            let from = if has_grown { 0 } else { *entry };
            entered += (from..=*entry).filter(|entry| table.enter(hash(*entry), *entry)).count();
            table.hide(*entry);
            table.show(*entry, &words(u64::from(*entry)));
            has_grown
        });
        assert!(grown.count() <= SLOTS.ilog2() as usize);
        let find = |entry: &u32| table.find(hash(*entry), |words| words[0] == u64::from(*entry));
        let found = (0..table.capacity()).filter(|entry| find(entry).is_some()).count();
        assert!(found > ENTRIES * 99 / 100, "{found} of {ENTRIES}");
        assert!(entered >= found);
    }

    #[test]
    fn readers_are_found_by_their_entry() {
        let reading = Reading::<4> { count: AtomicU32::new(0), entries: Default::default() };
        let seen = |entry| Seen { entry, sequence: 2 };
        reading.begin(1, seen(8));
        reading.begin(3, seen(8));
        reading.begin(2, seen(9));
        assert!(reading.readers(8).eq([1, 3]) && reading.reads(2, 9));
        reading.end(1);
        reading.end(1);
        assert!(reading.readers(8).eq([3]) && !reading.reads(1, 8));
        reading.begin(100, seen(8));
        assert!(!reading.reads(100, 8));
    }
}

#[cfg(all(test, loom))]
#[path = "places_loom_tests.rs"]
mod loom_tests;
