//! Files that are made together: their bytes first, and then all names by one record. Whoever dies
//! leaves all that was published of a file, or nothing.
//!
//! Those that were closed are over then. One that is open is open as any other afterwards: its
//! client was [asked](shm::bundle::Bundle::recall) for it before its records were read, so there
//! are no bytes of it in the log that are not in the batch, but for a write that does not return
//! yet.

use std::{cell::RefCell, collections::HashSet, mem, rc::Rc};

use rustix::fs::OFlags;
use shm::NameHash;
use uring::Buffer;
use wire::CreateFlags;

use super::{
    Intake,
    source::{self, Making, Source, State},
};
use crate::{bundles::Entry, dense::Small, file::Packed, places::Disturbed, volume::Volume};

/// Files that are made together, and where they come from.
#[derive(Default)]
struct Batch {
    files: Vec<Small>,
    /// Bytes of all of them.
    data: Vec<Buffer>,
    names: HashSet<NameHash>,
    /// The source of each.
    origins: Vec<usize>,
    open: Vec<Opened>,
}

/// A file that its client has open.
struct Opened {
    origin: usize,
    inode: u64,
    file: Packed,
    appends: bool,
    /// Part of it that was taken.
    pieces: Vec<(u64, u64)>,
    _disturbed: Disturbed,
}

impl Intake {
    /// Makes the files that were closed, and of each source these open ones, which were recalled:
    /// those of each multifile together.
    pub(super) async fn take_whole(&self, sources: &[Rc<RefCell<Source>>], open: &[Vec<u64>]) {
        let mut volumes: Vec<(Rc<Volume>, Batch)> = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            let open = open.get(index).map(Vec::as_slice).unwrap_or_default();
            let is_wanted = |(inode, file): &(&u64, &mut Making)| {
                matches!(file.state, State::Claimed) && (file.is_closed || open.contains(inode))
            };
            let source = &mut *source.borrow_mut();
            for (inode, file) in source.files.iter_mut().filter(is_wanted) {
                let is_its = |(volume, _): &(Rc<Volume>, Batch)| Rc::ptr_eq(volume, &file.volume);
                let at = volumes.iter().position(is_its).unwrap_or_else(|| {
                    volumes.push((Rc::clone(&file.volume), Batch::default()));
                    volumes.len() - 1
                });
                let Some((volume, batch)) = volumes.get_mut(at) else { continue };
                batch.add(volume, index, &source.entry, *inode, file);
            }
        }
        for (volume, mut batch) in volumes.into_iter().filter(|(_, batch)| !batch.files.is_empty())
        {
            let taken = async {
                let changing = volume.begin().await?;
                volume.take_files(&changing, &mut batch.files, &batch.data).await
            };
            let taken = Box::pin(taken).await;
            match taken {
                Ok(()) => batch.keep_open(sources),
                Err(why) => {
                    tracing::debug!("{} files are not made together: {why}", batch.files.len());
                    batch.give_back(sources);
                }
            }
            volume.show_calm();
        }
        sources.iter().for_each(|source| source.borrow_mut().forget_batched());
    }
}

impl Batch {
    /// Takes a file, if its name is free.
    fn add(
        &mut self,
        volume: &Rc<Volume>,
        origin: usize,
        entry: &Entry,
        inode: u64,
        file: &mut Making,
    ) {
        let tree = volume.tree.borrow();
        let (folder, mode, time, start) = (file.folder, file.mode, file.time, self.data.len());
        // One whose name only hashes as another's is made by itself.
        let mut is_other = || self.names.insert(NameHash::new(tree.key_of(folder), &file.name));
        if !tree.is_free_in(folder, &file.name) || !is_other() {
            return;
        }
        if source::add_buffers(entry, &file.pieces, &mut self.data).is_none() {
            self.data.truncate(start);
            return;
        }
        let (data, name, is_open) = (start..self.data.len(), file.name.clone(), !file.is_closed);
        if is_open {
            let Ok(found) = tree.find_in(folder, &name) else {
                self.data.truncate(start);
                return;
            };
            drop(tree);
            let (opened, _disturbed) = Packed::to_be(volume, inode, &found);
            let (pieces, appends) =
                (mem::take(&mut file.pieces), file.how.has(CreateFlags::APPENDS));
            file.written = file.len;
            self.open.push(Opened { origin, inode, file: opened, appends, pieces, _disturbed });
        } else {
            file.state.batch();
        }
        self.files.push(Small { inode, folder, name, mode, time, data, is_open });
        self.origins.push(origin);
    }

    /// The files are made: those that are open are from here on as any other.
    fn keep_open(self, sources: &[Rc<RefCell<Source>>]) {
        for Opened { origin, inode, file, appends, .. } in self.open {
            let Some(source) = sources.get(origin) else { continue };
            let appending = OFlags::WRONLY.union(OFlags::APPEND);
            let file = if appends { file.reopened(appending) } else { file };
            if let Some(made) = source.borrow_mut().files.get_mut(&inode) {
                made.state.made(Ok(Rc::new(file)));
            }
        }
    }

    /// The files are made one by one, and each that cannot be is told of.
    fn give_back(self, sources: &[Rc<RefCell<Source>>]) {
        for (Small { inode, .. }, index) in self.files.into_iter().zip(self.origins) {
            let Some(source) = sources.get(index) else { continue };
            if let Some(file) = source.borrow_mut().files.get_mut(&inode) {
                file.state.give_back();
            }
        }
        for Opened { origin, inode, mut pieces, .. } in self.open {
            let Some(source) = sources.get(origin) else { continue };
            if let Some(file) = source.borrow_mut().files.get_mut(&inode) {
                // Others may have been read since.
                pieces.append(&mut file.pieces);
                (file.pieces, file.written) = (pieces, 0);
            }
        }
    }
}
