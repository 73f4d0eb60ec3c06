//! Names that clients claim: who may, and who has claimed in vain.
//!
//! The set of names only grows, until it is full. Then it is [begun anew](Intake::begin_anew), with
//! more slots if there are many: the epochs are raised, and leases end with them, so nobody claims
//! in it who does not ask first. A client that has claimed before and publishes after that is
//! *unsure* of the name, and asks. Whoever has claimed the name since is sure of it, so an unsure
//! file is made last.

use std::{io, rc::Rc};

use rustix::io::Errno;
use shm::NameHash;
use wire::Uses;

use super::{GROWTH, Intake, NUMBERS, Volume};
use crate::tree::Found;

/// The set is begun anew if names fill less than this part of it.
const FILLED_PART: usize = 2;

/// Names that a call is about to make: nobody can claim them as long as this is there.
pub(crate) struct Reserved<'a> {
    intake: &'a Intake,
    names: Vec<NameHash>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut making = self.intake.making.borrow_mut();
        for name in &self.names {
            match making.get_mut(name) {
                Some(count @ 2..) => *count -= 1,
                _ => drop(making.remove(name)),
            }
        }
    }
}

impl Intake {
    /// Has a client make files in this folder by its bundle, or read those that are there: the
    /// first inode number that it may give, their count, the epoch of folders, and what its names
    /// are hashed with. It gets no numbers where it makes nothing, or may not, or where there is no
    /// room to know the names.
    ///
    /// # Errors
    ///
    /// It may not enter the folder.
    pub(crate) fn lease(
        &self,
        volume: &Rc<Volume>,
        folder: u64,
        session: u32,
        uses: Uses,
    ) -> Result<[u64; 4], Errno> {
        self.learn();
        let sources = self.sources.borrow();
        let source = sources.iter().find(|source| source.borrow().entry.is_of(session));
        let source = source.ok_or(Errno::OPNOTSUPP)?;
        let key = volume.tree.borrow().enter(folder)?;
        if uses.reads {
            volume.show_folder(folder);
        }
        let may_make = uses.makes
            && volume.is_writable
            && volume.tree.borrow().find_in(folder, b"a name").is_ok();
        let count = volume.tree.borrow().name_count(folder);
        let is_listed =
            || self.list(volume, folder) || self.begin_anew(count) && self.list(volume, folder);
        if !may_make || !is_listed() {
            return Ok([0, 0, self.names().epochs().folders, key]);
        }
        let epoch = self.names().epochs().folders;
        let start = volume.tree.borrow_mut().reserve(NUMBERS);
        source.borrow_mut().grant(volume, folder, start..start.saturating_add(NUMBERS));
        Ok([start, NUMBERS, epoch, key])
    }

    /// Before a call that makes these names, and with `folders` may change where a path leads: who
    /// has not published yet asks, and what is published is in the multifile on return.
    pub(crate) async fn prepare(
        &self,
        volume: &Volume,
        made: &[Found],
        folders: bool,
    ) -> Reserved<'_> {
        let names: Vec<_> = made.iter().map(|found| volume.tree.borrow().hash(found)).collect();
        let mut claimed = Vec::new();
        for (name, found) in names.iter().zip(made) {
            *self.making.borrow_mut().entry(*name).or_default() += 1;
            if self.names().claim(*name) {
                continue;
            }
            claimed.push((*name, found));
            if !self.names().insert(*name) && self.begin_anew(1) {
                self.names().insert(*name);
            }
        }
        let reserved = Reserved { intake: self, names };
        self.names().raise(folders);
        self.take_all().await;
        let is_there = |found: &Found| volume.tree.borrow().has(found);
        let by_nobody = claimed.into_iter().filter(|(_, found)| !is_there(found));
        self.contested.borrow_mut().extend(by_nobody.map(|(name, _)| name));
        reserved
    }

    /// After a call: names that are there no more can be claimed again.
    pub(crate) fn settle(&self, volume: &Volume, names: &[Found]) {
        let tree = volume.tree.borrow();
        for found in names {
            let hash = tree.hash(found);
            let is_others =
                self.making.borrow().contains_key(&hash) || self.contested.borrow().contains(&hash);
            if !tree.has(found) && !is_others {
                self.names().remove(hash);
            }
        }
    }

    /// Puts all names of a folder into the set, once; false: there is no room.
    fn list(&self, volume: &Rc<Volume>, folder: u64) -> bool {
        let tree = volume.tree.borrow();
        let (its, key) = ((tree.number(), folder), tree.key_of(folder));
        if self.listed.borrow().contains_key(&its) {
            return true;
        }
        let is_known = |name| self.names().insert(NameHash::new(key, name));
        let is_listed = tree.names_of(folder).all(is_known);
        if is_listed {
            self.listed.borrow_mut().insert(its, Rc::clone(volume));
        }
        is_listed
    }

    /// Forgets names that no file has any more, and has room for so many more than there are.
    /// False: it cannot.
    fn begin_anew(&self, more: usize) -> bool {
        let count = |((_, folder), volume): (&(u64, u64), &Rc<Volume>)| {
            volume.tree.borrow().name_count(*folder)
        };
        let count = more + self.listed.borrow().iter().map(count).sum::<usize>();
        let mut slots = self.slots.get();
        while count > slots / FILLED_PART && slots < self.slots_max {
            slots = (slots * GROWTH).min(self.slots_max);
        }
        if count > slots / FILLED_PART {
            return false;
        }
        self.names().raise(true);
        let sources = self.sources.borrow();
        for source in &*sources {
            // What was published until now its client is sure of.
            self.read(source);
            source.borrow_mut().outdate();
        }
        self.names().clear();
        self.contested.borrow_mut().clear();
        self.names().offer(slots);
        self.slots.set(slots);
        self.listed.borrow_mut().clear();
        for source in &*sources {
            for file in source.borrow().files.values() {
                let key = file.volume.tree.borrow().key_of(file.folder);
                self.names().insert(NameHash::new(key, &file.name));
            }
        }
        for name in self.making.borrow().keys() {
            self.names().insert(*name);
        }
        true
    }

    /// Before a file is made whose client is unsure of the name: whoever is sure of it is first.
    pub(super) async fn give_way(
        &self,
        volume: &Rc<Volume>,
        folder: u64,
        name: &[u8],
    ) -> io::Result<()> {
        let found = volume.tree.borrow().find_in(folder, name)?;
        self.names().insert(volume.tree.borrow().hash(&found));
        self.names().raise(false);
        let sources = self.sources.borrow().clone();
        for source in &sources {
            self.read(source);
            let sure = source.borrow().sure_of(volume, folder, name);
            if let Some(inode) = sure {
                // One that is closed at once: whoever is killed leaves all of it or nothing.
                Box::pin(self.make_whole(source)).await;
                Box::pin(self.advance(source, inode)).await;
            }
        }
        Ok(())
    }
}
