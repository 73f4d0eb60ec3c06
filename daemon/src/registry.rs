//! Open inodes and their sessions: consulted by the second opener, and to settle an inode.

use std::{collections::HashMap, sync::Arc};

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
}

impl Opener {
    /// From now on the file's writes wait until they are drained.
    pub(crate) fn demote(&self) {
        if let Some(slot) = self.segment.slot(self.slot) {
            slot.demote();
        }
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
    pub(crate) fn add(&mut self, identity: Identity, opener: Opener) -> Vec<Opener> {
        let viewed = self.viewed.get(&identity).copied().unwrap_or_default();
        let openers = self.files.entry(identity).or_default();
        let is_shared = !openers.is_empty() || viewed.count > 0;
        let conflicts = is_shared
            && (opener.can_write
                || viewed.writers > 0
                || openers.iter().any(|other| other.can_write));
        debug_assert!(!openers.iter().any(|other| other.is(opener.session, opener.slot)));
        let others = if conflicts { openers.clone() } else { Vec::new() };
        openers.push(opener);
        if conflicts {
            openers.iter().for_each(Opener::demote);
        }
        others
    }

    /// Adds a file that is open through a view. Demotes the inode's files if somebody writes, and
    /// returns them then, to be drained.
    pub(crate) fn view(&mut self, identity: Identity, can_write: bool) -> Vec<Opener> {
        let viewed = self.viewed.entry(identity).or_default();
        viewed.count += 1;
        viewed.writers += usize::from(can_write);
        let openers = self.files.get(&identity).map(Vec::as_slice).unwrap_or_default();
        if !can_write && openers.iter().all(|other| !other.can_write) {
            return Vec::new();
        }
        openers.iter().for_each(Opener::demote);
        openers.to_vec()
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
    pub(crate) fn demote(&self, identity: Identity) -> Vec<Opener> {
        self.files.get(&identity).into_iter().flatten().for_each(Opener::demote);
        self.openers(identity)
    }

    /// Demotes every file there is.
    pub(crate) fn demote_all(&self) {
        self.files.values().flatten().for_each(Opener::demote);
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

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: Identity = (8, 42);

    fn opener(session: u32, can_write: bool) -> Opener {
        let segment = Arc::new(Segment::create(4096).expect("memfd").0);
        Opener { core: 0, session, slot: 3, can_write, segment }
    }

    fn is_demoted(opener: &Opener) -> bool {
        opener.segment.slot(opener.slot).is_some_and(|slot| slot.is_synchronous())
    }

    #[test]
    fn second_opener_demotes_both() {
        let mut registry = Registry::default();
        let (first, second) = (opener(1, true), opener(2, false));
        assert!(registry.add(INODE, first.clone()).is_empty());
        assert!(!is_demoted(&first));
        assert_eq!(registry.add(INODE, second.clone()).len(), 1);
        assert!(is_demoted(&first) && is_demoted(&second));
    }

    #[test]
    fn readers_do_not_disturb_each_other() {
        let mut registry = Registry::default();
        let (first, second) = (opener(1, false), opener(2, false));
        registry.add(INODE, first.clone());
        assert!(registry.add(INODE, second.clone()).is_empty());
        assert!(!is_demoted(&first) && !is_demoted(&second));
    }

    #[test]
    fn view_that_writes_demotes_and_one_that_reads_does_not() {
        let mut registry = Registry::default();
        let (first, second, writer) = (opener(1, false), opener(2, false), opener(3, true));
        registry.add(INODE, first.clone());
        assert!(registry.view(INODE, false).is_empty() && !is_demoted(&first));
        assert_eq!(registry.view(INODE, true).len(), 1);
        assert!(is_demoted(&first));
        registry.add(INODE, second.clone());
        assert!(is_demoted(&second), "a view writes");
        assert_eq!(registry.count_of(INODE), 4);
        registry.unview(INODE, true);
        registry.unview(INODE, false);
        for session in [1, 2] {
            registry.remove(INODE, session, 3);
        }
        registry.view(INODE, false);
        registry.add(INODE, writer.clone());
        assert!(is_demoted(&writer), "a view reads what this writes");
    }

    #[test]
    fn closed_file_is_forgotten() {
        let mut registry = Registry::default();
        registry.add(INODE, opener(1, true));
        registry.remove(INODE, 1, 3);
        assert_eq!(registry.count(), 0);
        assert!(registry.add(INODE, opener(2, true)).is_empty());
    }
}
