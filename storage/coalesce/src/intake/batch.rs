//! Batches of files that are made together.
//!
//! The daemon first writes their bytes to the multifile, which frees the log. It collects files for
//! some milliseconds, and then writes one record with all their names. A kill of client or daemon
//! leaves a whole file or no file.
//!
//! A closed file is finished then. An open one becomes an ordinary open file: the daemon
//! [recalled](shm::bundle::Bundle::recall) it before it read the records, so the batch has all
//! bytes in the log, except those of a write that has not returned.

use std::{cell::RefCell, collections::HashSet, mem, ops::Range, rc::Rc, slice, time::Duration};

use executor::Instant;
use rustix::fs::OFlags;
use shm::NameHash;
use uring::Buffer;
use wire::CreateFlags;

use super::{
    Intake,
    source::{self, Making, Source, State},
};
use crate::{bundles::Entry, dense::Small, file::Packed, places::Disturbed, volume::Volume};

/// Time that written files wait for their names while more files arrive: header, journal, and names
/// take as many calls for one file as for a thousand.
const MAKE_AFTER: Duration = Duration::from_millis(4);
/// Bytes of written files after which they get their names at once.
const MAKE_LEN: u64 = 8 << 20;

/// Files of one multifile that are made together.
pub(super) struct Batch {
    volume: Rc<Volume>,
    files: Vec<Small>,
    /// The source of each file.
    origins: Vec<Rc<RefCell<Source>>>,
    names: HashSet<NameHash>,
    /// Number of files at the front whose bytes are in the multifile.
    kept: usize,
    /// When the oldest file was first seen.
    since: Instant,
    /// Bytes written to the multifile.
    len: u64,
    /// Bytes of the files that are not written, and each file's part of them.
    data: Vec<Buffer>,
    parts: Vec<Range<usize>>,
    open: Vec<Opened>,
}

/// A file that its client has open.
struct Opened {
    origin: Rc<RefCell<Source>>,
    inode: u64,
    file: Packed,
    appends: bool,
    /// Its bytes in the log.
    pieces: Vec<(u64, u64)>,
    _disturbed: Disturbed,
}

impl Intake {
    /// Makes all closed files of a source, without waiting for more.
    pub(super) async fn make_whole(&self, source: &Rc<RefCell<Source>>) {
        self.keep_whole(slice::from_ref(source), &[]).await;
        self.make_kept().await;
    }

    /// Writes the bytes of files to their multifiles: of closed files, and of each source these
    /// open ones, which were recalled.
    pub(super) async fn keep_whole(&self, sources: &[Rc<RefCell<Source>>], open: &[Vec<u64>]) {
        let (mut batches, now) = (self.batches.take(), self.handle.now());
        for (index, origin) in sources.iter().enumerate() {
            let open = open.get(index).map(Vec::as_slice).unwrap_or_default();
            let is_wanted = |(inode, file): &(&u64, &mut Making)| {
                matches!(file.state, State::Claimed) && (file.is_closed || open.contains(inode))
            };
            let source = &mut *origin.borrow_mut();
            for (inode, file) in source.files.iter_mut().filter(is_wanted) {
                let is_its = |batch: &Batch| Rc::ptr_eq(&batch.volume, &file.volume);
                let at = batches.iter().position(is_its).unwrap_or_else(|| {
                    batches.push(Batch::new(&file.volume, now));
                    batches.len() - 1
                });
                let Some(batch) = batches.get_mut(at) else { continue };
                batch.add(origin, &source.entry, *inode, file);
            }
        }
        for batch in &mut batches {
            Box::pin(batch.keep()).await;
        }
        self.batches.replace(batches);
    }

    /// True if written files have waited long enough for their names.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_due = |batch: &Batch| {
            let is_old = now.saturating_since(batch.since) >= MAKE_AFTER;
            is_old || batch.len >= MAKE_LEN || !batch.open.is_empty()
        };
        self.batches.borrow().iter().any(is_due)
    }

    /// Makes all files that are written.
    pub(super) async fn make_kept(&self) {
        for mut batch in self.batches.take() {
            if batch.files.is_empty() {
                continue;
            }
            let volume = Rc::clone(&batch.volume);
            let made = async {
                let changing = volume.begin().await?;
                volume.take_files(&changing, &mut batch.files).await
            };
            let made = Box::pin(made).await;
            match made {
                Ok(()) => batch.keep_open(),
                Err(why) => {
                    tracing::debug!("{} files are not made together: {why}", batch.files.len());
                    batch.give_back(0);
                }
            }
            volume.show_calm();
        }
        self.sources.borrow().iter().for_each(|source| source.borrow_mut().forget_batched());
    }
}

impl Batch {
    fn new(volume: &Rc<Volume>, now: Instant) -> Self {
        Self {
            volume: Rc::clone(volume),
            files: Vec::new(),
            origins: Vec::new(),
            names: HashSet::new(),
            kept: 0,
            since: now,
            len: 0,
            data: Vec::new(),
            parts: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds a file if its name is free.
    fn add(&mut self, origin: &Rc<RefCell<Source>>, entry: &Entry, inode: u64, file: &mut Making) {
        let tree = self.volume.tree.borrow();
        let (folder, mode, time, start) = (file.folder, file.mode, file.time, self.data.len());
        let hash = NameHash::new(tree.key_of(folder), &file.name);
        // Two names with one hash do not go into one batch.
        if !tree.is_free_in(folder, &file.name) || self.names.contains(&hash) {
            return;
        }
        if source::add_buffers(entry, &file.pieces, &mut self.data).is_none() {
            self.data.truncate(start);
            return;
        }
        let (name, is_open, origin) = (file.name.clone(), !file.is_closed, Rc::clone(origin));
        if is_open {
            let Ok(found) = tree.find_in(folder, &name) else {
                self.data.truncate(start);
                return;
            };
            let (opened, _disturbed) = Packed::to_be(&self.volume, inode, &found);
            let (pieces, appends) =
                (mem::take(&mut file.pieces), file.how.has(CreateFlags::APPENDS));
            file.written = file.len;
            let origin = Rc::clone(&origin);
            self.open.push(Opened { origin, inode, file: opened, appends, pieces, _disturbed });
        } else {
            file.state.batch();
        }
        drop(tree);
        self.since = self.since.min(file.since);
        self.names.insert(hash);
        self.parts.push(start..self.data.len());
        // It has a task if an earlier batch failed after its bytes were written.
        self.files.push(Small { inode, folder, name, mode, time, task: file.kept, is_open });
        self.origins.push(origin);
    }

    /// Writes the bytes of the files added since the last call.
    async fn keep(&mut self) {
        let (data, parts) = (mem::take(&mut self.data), mem::take(&mut self.parts));
        if parts.is_empty() {
            return;
        }
        let with_bytes = parts.iter().filter(|part| !part.is_empty());
        let with_bytes: Vec<&[Buffer]> =
            with_bytes.filter_map(|part| data.get(part.clone())).collect();
        let mut tasks = Vec::new();
        let kept = async {
            let _changing = self.volume.begin().await?;
            self.volume.keep(&with_bytes, &mut tasks).await
        };
        if let Err(why) = kept.await {
            tracing::debug!("{} files are not kept together: {why}", parts.len());
            self.volume.users.set_left(tasks);
            self.give_back(self.kept);
            return;
        }
        debug_assert_eq!(tasks.len(), with_bytes.len(), "every file with bytes has a task");
        let mut tasks = tasks.into_iter();
        let added = self.files.iter_mut().zip(&self.origins).skip(self.kept);
        for ((file, origin), part) in added.zip(&parts) {
            if !part.is_empty() {
                file.task = tasks.next();
            }
            if !file.is_open {
                origin.borrow_mut().set_kept(file.inode, file.task);
            }
        }
        self.len += data.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        self.kept = self.files.len();
    }

    /// After success: hands over the open files as ordinary ones.
    fn keep_open(self) {
        for Opened { origin, inode, file, appends, .. } in self.open {
            let appending = OFlags::WRONLY.union(OFlags::APPEND);
            let file = if appends { file.reopened(appending) } else { file };
            if let Some(made) = origin.borrow_mut().files.get_mut(&inode) {
                made.state.made(Ok(Rc::new(file)));
            }
        }
    }

    /// After a failure: returns all files but the `first` ones to their sources, which make them in
    /// another batch or one by one.
    fn give_back(&mut self, first: usize) {
        let tree = self.volume.tree.borrow();
        for (file, origin) in self.files.drain(first..).zip(self.origins.drain(first..)) {
            self.names.remove(&NameHash::new(tree.key_of(file.folder), &file.name));
            match origin.borrow_mut().files.get_mut(&file.inode) {
                Some(making) if !file.is_open => making.state.give_back(),
                // The log has the bytes of an open file; those of a broken source are dropped.
                _ => self.volume.users.set_left(file.task),
            }
        }
        for Opened { origin, inode, mut pieces, .. } in self.open.drain(..) {
            if let Some(file) = origin.borrow_mut().files.get_mut(&inode) {
                // Others may have been read since.
                pieces.append(&mut file.pieces);
                (file.pieces, file.written) = (pieces, 0);
            }
        }
    }
}
