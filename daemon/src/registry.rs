//! Open inodes and their sessions: consulted by the second opener, and to settle an inode.

use std::{collections::HashMap, sync::Arc};

use executor::{Clock, Instant};
use shm::staging::FileSlot;
use storage::{names::Identity, segment::Segment};

/// A registered file, as other executors know it.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    /// Executor that serves it.
    pub(crate) core: usize,
    pub(crate) session: u32,
    pub(crate) slot: u32,
    pub(crate) can_write: bool,
    pub(crate) segment: Arc<Segment>,
    /// When it was demoted, if it may have staged something.
    pub(crate) demoted_at: Option<Instant>,
}

impl Opener {
    /// From now on the file's writes wait until they are drained; returns whether that is news.
    fn demote(&mut self, clock: &impl Clock) -> bool {
        let is_news = self.segment.slot(self.slot).is_some_and(FileSlot::demote) && self.can_write;
        if is_news {
            // Not before, or it may be too early.
            self.demoted_at = Some(clock.now());
        }
        is_news
    }

    /// True if something is staged for the file.
    pub(crate) fn is_staged(&self) -> bool {
        self.segment.slot(self.slot).is_some_and(|slot| slot.head() != slot.tail())
    }

    fn is(&self, session: u32, slot: u32) -> bool {
        self.session == session && self.slot == slot
    }
}

/// Every registered file by inode, and the files that are open through views.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    files: HashMap<Identity, Vec<Opener>>,
    viewed: HashMap<Identity, Viewed>,
}

/// Open files of an inode through views.
#[derive(Clone, Copy, Debug, Default)]
struct Viewed {
    count: usize,
    /// Of these, those that may write.
    writers: usize,
}

impl Registry {
    /// Adds a file. When its inode is open already and somebody writes, demotes all of its files
    /// and returns the others, which are to be drained.
    pub(crate) fn add(
        &mut self,
        identity: Identity,
        opener: Opener,
        clock: &impl Clock,
    ) -> Vec<Opener> {
        let viewed = self.viewed.get(&identity).copied().unwrap_or_default();
        let openers = self.files.entry(identity).or_default();
        let is_shared = !openers.is_empty() || viewed.count > 0;
        let conflicts = is_shared
            && (opener.can_write
                || viewed.writers > 0
                || openers.iter().any(|other| other.can_write));
        debug_assert!(!openers.iter().any(|other| other.is(opener.session, opener.slot)));
        openers.push(opener);
        if !conflicts {
            return Vec::new();
        }
        demote(openers, clock);
        openers.split_last().map_or_else(Vec::new, |(_, others)| others.to_vec())
    }

    /// Adds a file that is open through a view. Demotes the inode's files if somebody writes, and
    /// returns them then, to be drained.
    pub(crate) fn view(
        &mut self,
        identity: Identity,
        can_write: bool,
        clock: &impl Clock,
    ) -> Vec<Opener> {
        let viewed = self.viewed.entry(identity).or_default();
        viewed.count += 1;
        viewed.writers += usize::from(can_write);
        let Some(openers) = self.files.get_mut(&identity) else { return Vec::new() };
        if !can_write && openers.iter().all(|other| !other.can_write) {
            return Vec::new();
        }
        demote(openers, clock);
        openers.clone()
    }

    /// Removes a file that was open through a view.
    pub(crate) fn unview(&mut self, identity: Identity, can_write: bool) {
        debug_assert!(self.viewed.contains_key(&identity), "the view has the file open");
        if let Some(viewed) = self.viewed.get_mut(&identity) {
            viewed.count -= 1;
            viewed.writers -= usize::from(can_write);
            debug_assert!(viewed.writers <= viewed.count, "writers are openers");
            if viewed.count == 0 {
                self.viewed.remove(&identity);
            }
        }
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, identity: Identity, session: u32, slot: u32) {
        if let Some(openers) = self.files.get_mut(&identity) {
            openers.retain(|opener| !opener.is(session, slot));
            if openers.is_empty() {
                self.files.remove(&identity);
            }
        }
    }

    /// Every file of an inode.
    pub(crate) fn openers(&self, identity: Identity) -> Vec<Opener> {
        self.files.get(&identity).cloned().unwrap_or_default()
    }

    /// Demotes every file of an inode and returns them.
    pub(crate) fn demote(&mut self, identity: Identity, clock: &impl Clock) -> Vec<Opener> {
        let Some(openers) = self.files.get_mut(&identity) else { return Vec::new() };
        demote(openers, clock);
        openers.clone()
    }

    /// Demotes every file there is; returns whether that is news for any.
    pub(crate) fn demote_all(&mut self, clock: &impl Clock) -> bool {
        let mut is_news = false;
        for openers in self.files.values_mut() {
            is_news |= demote(openers, clock);
        }
        is_news
    }

    /// Registered files of an inode, and those that are open through views.
    pub(crate) fn count_of(&self, identity: Identity) -> usize {
        let viewed = self.viewed.get(&identity).map_or(0, |viewed| viewed.count);
        viewed + self.files.get(&identity).map_or(0, Vec::len)
    }

    /// Registered files.
    pub(crate) fn count(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

/// Demotes files; returns whether that is news for any.
fn demote(openers: &mut [Opener], clock: &impl Clock) -> bool {
    let mut is_news = false;
    for opener in openers {
        is_news |= opener.demote(clock);
    }
    is_news
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use executor::ManualClock;

    use super::*;

    const INODE: Identity = (8, 42);

    fn opener(session: u32, can_write: bool) -> Opener {
        let segment = Arc::new(Segment::create(4096).expect("memfd").0);
        Opener { core: 0, session, slot: 3, can_write, segment, demoted_at: None }
    }

    fn is_demoted(opener: &Opener) -> bool {
        opener.segment.slot(opener.slot).is_some_and(|slot| slot.is_synchronous())
    }

    #[test]
    fn second_opener_demotes_both() {
        let mut registry = Registry::default();
        let (first, second) = (opener(1, true), opener(2, false));
        assert!(registry.add(INODE, first.clone(), &ManualClock::new()).is_empty());
        assert!(!is_demoted(&first));
        assert_eq!(registry.add(INODE, second.clone(), &ManualClock::new()).len(), 1);
        assert!(is_demoted(&first) && is_demoted(&second));
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        registry.add(INODE, opener(3, true), &clock);
        let demoted_at = |registry: &mut Registry| {
            clock.advance(Duration::from_secs(1));
            let openers = registry.demote(INODE, &clock);
            openers.iter().map(|opener| opener.demoted_at).collect::<Vec<_>>()
        };
        let (first, third) = (Instant::from_nanos(0), Instant::from_nanos(1_000_000_000));
        let expected = [Some(first), None, Some(third)];
        assert_eq!(demoted_at(&mut registry), expected, "a reader stages nothing");
        assert_eq!(demoted_at(&mut registry), expected, "no news");
    }

    #[test]
    fn readers_do_not_disturb_each_other() {
        let mut registry = Registry::default();
        let (first, second) = (opener(1, false), opener(2, false));
        registry.add(INODE, first.clone(), &ManualClock::new());
        assert!(registry.add(INODE, second.clone(), &ManualClock::new()).is_empty());
        assert!(!is_demoted(&first) && !is_demoted(&second));
    }

    #[test]
    fn view_that_writes_demotes_and_one_that_reads_does_not() {
        let mut registry = Registry::default();
        let (first, second, writer) = (opener(1, false), opener(2, false), opener(3, true));
        registry.add(INODE, first.clone(), &ManualClock::new());
        assert!(registry.view(INODE, false, &ManualClock::new()).is_empty() && !is_demoted(&first));
        assert_eq!(registry.view(INODE, true, &ManualClock::new()).len(), 1);
        assert!(is_demoted(&first));
        registry.add(INODE, second.clone(), &ManualClock::new());
        assert!(is_demoted(&second), "a view writes");
        assert_eq!(registry.count_of(INODE), 4);
        registry.unview(INODE, true);
        registry.unview(INODE, false);
        for session in [1, 2] {
            registry.remove(INODE, session, 3);
        }
        registry.view(INODE, false, &ManualClock::new());
        registry.add(INODE, writer.clone(), &ManualClock::new());
        assert!(is_demoted(&writer), "a view reads what this writes");
    }

    #[test]
    fn closed_file_is_forgotten() {
        let mut registry = Registry::default();
        registry.add(INODE, opener(1, true), &ManualClock::new());
        registry.remove(INODE, 1, 3);
        assert_eq!(registry.count(), 0);
        assert!(registry.add(INODE, opener(2, true), &ManualClock::new()).is_empty());
    }
}
