//! Folders whose files are in a multifile: `kakehi run --coalesce`, `kakehi serve --coalesce`.
//!
//! A server's files are those below its root. Some folders there may be *coalesced*: the names
//! below them are in the catalogue of a multifile, and their bytes in its streams, one for each
//! file. Everything else of a server, and all of its clients, sees files as ever: so what holds for
//! remote files holds for these, and a run whose files are to be coalesced on its own node is its
//! own server's client.
//!
//! The way of a write: `Coalesced::write` finds the open file, `file` its stream, `stream` the
//! places of its bytes in the physical file, and the engines write them there; then the journal
//! says how long the stream is. `tree` knows what calls on names mean, `records` writes down what
//! they change, `rewriting` forgets what is no more, and `inodes` knows which task has which file's
//! bytes.
#![forbid(unsafe_code)]
#![expect(missing_debug_implementations, reason = "what tasks share leads round in circles")]

#[macro_use]
extern crate invariant;

mod bundles;
mod clear_tails;
mod clients;
mod condition;
mod dense;
mod emptying;
mod extensions;
mod file;
mod freeing;
mod hold;
mod inodes;
mod intake;
mod keeping;
mod member;
mod names;
mod opening;
mod piece;
mod places;
mod placing;
mod records;
mod rewriting;
mod shape;
mod stream;
mod streams;
mod syncing;
mod tasks;
#[cfg(test)]
mod tests;
mod tree;
mod turn;
mod unfit;
mod volume;
mod way;

use std::{
    any::Any,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use executor::{Class, Handle};
use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Resource, getrlimit},
};
use storage::{
    Locking, Machine, Storage,
    lock_call::LockCall,
    names::{Answer, FileCall, NameCall, OpenCall},
};
use uring::Buffers;
use wire::{FoundLock, Status};

pub use self::{
    bundles::Bundles,
    clients::{Clients, Shares},
    file::Packed,
    unfit::advice,
};
use self::{
    intake::Intake,
    shape::Shape,
    volume::Volume,
    way::{Way, way, written},
};

/// A folder whose files are in a multifile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// From the server's root.
    pub folder: PathBuf,
    /// The multifile; made when it is missing.
    pub multifile: PathBuf,
    /// It is only read, also where it may be written.
    pub is_read_only: bool,
}

/// The files of a machine, and of multifiles. Cheap to clone.
#[derive(Clone)]
pub struct Coalesced {
    machine: Machine,
    /// By the path of the folder, as `/a/b`; one that is in another comes before that.
    volumes: Rc<[(Vec<u8>, Rc<Volume>)]>,
    /// Files that clients on this node make by their bundles.
    intake: Option<Rc<Intake>>,
}

/// An open file.
#[derive(Clone)]
pub enum Open {
    /// Of the machine.
    Plain(uring::File),
    /// In a multifile.
    Packed(Rc<Packed>),
}

impl Coalesced {
    /// The files of `machine`, with those of some folders in multifiles.
    ///
    /// # Errors
    ///
    /// The multifile that cannot be used, and why.
    pub async fn open(
        machine: Machine,
        folders: &[Coalesce],
    ) -> Result<Self, (PathBuf, io::Error)> {
        let mut volumes = Vec::new();
        let shape = Shape::within(getrlimit(Resource::Fsize).current);
        for Coalesce { folder, multifile, is_read_only } in folders {
            let volume = Volume::open(machine.clone(), multifile, shape, *is_read_only).await;
            let volume = volume.map_err(|why| (multifile.clone(), why))?;
            volumes.push((folder.as_os_str().as_encoded_bytes().to_vec(), volume));
        }
        volumes.sort_by_key(|(folder, _): &(Vec<u8>, _)| Reverse(folder.len()));
        let files = Self { machine, volumes: volumes.into(), intake: None };
        files.cover().await.map(|()| files)
    }

    /// Has who lists a folder see those of other multifiles in it.
    async fn cover(&self) -> Result<(), (PathBuf, io::Error)> {
        for (inner, (folder, _)) in self.volumes.iter().enumerate() {
            // The nearest one around it comes first.
            let others = self.volumes.iter().map(|(other, _)| &other[..]).skip(inner + 1);
            let Some((outer, path)) = written(others, folder) else { continue };
            let Some((_, volume)) = self.volumes.get(inner + 1 + outer) else { continue };
            let covered = names::cover(volume, &path).await;
            covered.map_err(|why| (volume.path().to_owned(), why))?;
        }
        Ok(())
    }

    /// Takes in what the clients of this daemon make without asking.
    pub fn taking_in(self, clients: &Arc<Clients>, handle: &Handle) -> Self {
        if self.volumes.iter().all(|(_, volume)| volume.is_near()) {
            clients.shared().names.say_near();
        }
        let files = self.taking_in_by(Intake::new(clients, handle).start());
        files.populate_ahead(handle);
        files
    }

    fn taking_in_by(self, intake: Rc<Intake>) -> Self {
        if let Some(places) = &intake.places {
            self.volumes.iter().for_each(|(_, volume)| volume.show_in(places));
        }
        Self { intake: Some(intake), ..self }
    }

    /// Has memory to show the files that there are, before a program asks for them.
    fn populate_ahead(&self, handle: &Handle) {
        let Some(places) = self.intake.as_ref().and_then(|intake| intake.places.as_ref()) else {
            return;
        };
        let counts = self.volumes.iter().map(|(_, volume)| volume.tree.borrow().all_names_count());
        handle.spawn(Class::Throughput, Rc::clone(places).populate_ahead(counts.sum()));
    }

    /// Shows clients what nobody changes any more.
    fn show_calm(&self) {
        if self.intake.is_some() {
            self.volumes.iter().for_each(|(_, volume)| volume.show_calm());
        }
    }

    /// Has in the multifiles what clients have made without asking.
    async fn taken(&self) {
        if let Some(intake) = &self.intake {
            intake.take_all().await;
        }
    }

    /// An open file, with all that was written to it.
    async fn current<'a>(&self, file: &'a Rc<Packed>) -> &'a Rc<Packed> {
        if let Some(intake) = &self.intake {
            intake.take_of(file).await;
        }
        file
    }

    /// The path of an inode in a multifile that has had this one, or was in this folder.
    pub fn path_of(&self, path: &[u8], inode: u64) -> Option<Vec<u8>> {
        let folders = self.volumes.iter().map(|(folder, _)| &folder[..]);
        let (index, rest) = written(folders, path)?;
        let (folder, volume) = self.volumes.get(index)?;
        let tree = volume.tree.borrow();
        if tree.find(&rest, false).is_ok_and(|found| found.inode == Some(inode)) {
            return Some(path.to_vec());
        }
        let named = tree.name_in(&rest, inode).map(|name| [path, b"/", &name].concat());
        // Folders around it may have been renamed since.
        named.or_else(|| Some([&folder[..], &tree.path_of(inode)?].concat()))
    }

    /// Closes the multifiles; which could not be, and why, and which were removed meanwhile.
    pub async fn close(&self) -> (BTreeMap<String, String>, BTreeSet<String>) {
        self.taken().await;
        if let Some(places) = self.intake.as_ref().and_then(|intake| intake.places.as_ref()) {
            places.end();
        }
        let (mut failed, mut removed) = (BTreeMap::new(), BTreeSet::new());
        for (_, volume) in &*self.volumes {
            let path = volume.path().display().to_string();
            if volume.is_removed() {
                removed.insert(path.clone());
            }
            if let Err(why) = volume.close().await {
                if !removed.contains(&path) {
                    failed.insert(path, why.to_string());
                }
            }
        }
        (failed, removed)
    }

    /// Removes all names from memory and returns them: millions of names take a while to free.
    pub fn take_names(&self) -> Box<dyn Any> {
        let names = self.volumes.iter().map(|(_, volume)| volume.tree.borrow_mut().take());
        Box::new(names.collect::<Vec<_>>())
    }

    /// The multifile that a path leads to, and the path in it; else the path without links.
    async fn find(
        &self,
        path: &CStr,
        follow: bool,
    ) -> io::Result<Result<(&Rc<Volume>, CString), Vec<u8>>> {
        let folders = self.volumes.iter().map(|(folder, _)| &folder[..]);
        let way = match written(folders.clone(), path.to_bytes()) {
            Some((index, rest)) => Way::Folder(index, rest),
            None if self.volumes.is_empty() => Way::Else(path.to_bytes().to_vec()),
            None => {
                let folders: Vec<_> = folders.map(<[u8]>::to_vec).collect();
                let (scope, path) = (self.machine.scope().clone(), path.to_owned());
                let call = move || Ok(way(&scope, &folders, &path, follow)?);
                self.machine.call(call).await?
            }
        };
        Ok(match way {
            Way::Else(path) => Err(path),
            Way::Folder(index, rest) => {
                let (_, volume) = self.volumes.get(index).ok_or(Errno::IO)?;
                Ok((volume, rest))
            }
        })
    }

    /// A call on names with its paths in the multifile that it is about; `None`: about none.
    async fn moved(&self, call: &NameCall) -> io::Result<Option<(&Rc<Volume>, NameCall)>> {
        let mut call = call.clone();
        let (follow, renames) = (call.follows(), matches!(call, NameCall::Rename { .. }));
        let mut volumes: Vec<Option<&Rc<Volume>>> = Vec::new();
        for path in call.paths_mut().into_iter().flatten() {
            volumes.push(match self.find(path, follow).await? {
                Ok((volume, rest)) => {
                    path.enter(rest);
                    Some(volume)
                }
                // It would be somewhere else then, and its files be where it was.
                Err(above) if renames && self.is_above(&above) => return Err(Errno::BUSY.into()),
                Err(_) => None,
            });
        }
        match volumes[..] {
            [None, Some(_)] | [Some(_), None] => Err(Errno::XDEV.into()),
            [Some(a), Some(b)] if !Rc::ptr_eq(a, b) => Err(Errno::XDEV.into()),
            [Some(volume), ..] => Ok(Some((volume, call))),
            _ => Ok(None),
        }
    }

    /// True if a folder is somewhere in this one.
    fn is_above(&self, path: &[u8]) -> bool {
        let folders = self.volumes.iter().map(|(folder, _)| folder);
        folders.filter_map(|folder| folder.strip_prefix(path)).any(|rest| rest.starts_with(b"/"))
    }
}

impl Storage for Coalesced {
    type File = Open;

    async fn on(&self, file: &Open, call: FileCall) -> io::Result<Answer> {
        match file {
            Open::Plain(file) => self.machine.on(file, call).await,
            Open::Packed(file) if call == FileCall::FileSystem => {
                self.machine.on(&file.volume().physical()?, call).await
            }
            // On the heap: the future of a plain file stays small.
            Open::Packed(file) => {
                let done = Box::pin(async { self.current(file).await.on(call).await }).await;
                if let FileCall::Set(_) = call {
                    self.show_calm();
                }
                done
            }
        }
    }

    async fn read(&self, file: &Open, at: u64, into: Buffers) -> io::Result<usize> {
        match file {
            Open::Plain(file) => self.machine.read(file, at, into).await,
            // On the heap, as above.
            Open::Packed(file) => {
                Box::pin(async { self.current(file).await.read(at, &into).await }).await
            }
        }
    }

    async fn write(&self, file: &Open, at: u64, from: Buffers) -> io::Result<usize> {
        match file {
            Open::Plain(file) => self.machine.write(file, at, from).await,
            Open::Packed(file) => {
                Box::pin(async { self.current(file).await.write(at, &from).await }).await
            }
        }
    }

    async fn open(&self, mut call: OpenCall) -> io::Result<(Open, Status)> {
        let Ok((volume, path)) = self.find(&call.path, call.follows()).await? else {
            let (file, status) = self.machine.open(call).await?;
            return Ok((Open::Plain(file), status));
        };
        call.path.enter(path);
        let intake = self.intake.as_deref();
        let file = if call.inode == 0 {
            self.taken().await;
            let file = Box::pin(Packed::open(volume, &call, intake)).await?;
            if let Some(intake) = intake {
                intake.recall(volume, file.inode()).await;
            }
            file
        } else {
            let flags = OFlags::from_bits_retain(call.flags);
            intake.ok_or(Errno::STALE)?.hand_over(volume, call.inode, flags).await?
        };
        let status = file.status()?;
        Ok((Open::Packed(Rc::new(file)), status))
    }

    async fn close(&self, file: Open) -> io::Result<()> {
        match file {
            Open::Plain(file) => self.machine.close(file).await,
            Open::Packed(file) => {
                let volume = Rc::clone(file.volume());
                drop(file);
                self.show_calm();
                Box::pin(volume.reclaim()).await;
                Ok(())
            }
        }
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        match self.moved(&call).await? {
            None => self.machine.name(call).await,
            Some((volume, call)) => {
                self.taken().await;
                let done = Box::pin(names::execute(volume, call, self.intake.as_deref())).await;
                self.show_calm();
                Box::pin(volume.reclaim()).await;
                done
            }
        }
    }
}

impl Locking for Coalesced {
    async fn lock(&self, file: &Open, call: LockCall) -> io::Result<()> {
        match file {
            Open::Plain(file) => self.machine.lock(file, call).await,
            Open::Packed(file) => self.machine.lock(&file.anchor()?, call).await,
        }
    }

    async fn find_lock(&self, file: &Open, call: LockCall) -> io::Result<Option<FoundLock>> {
        match file {
            Open::Plain(file) => self.machine.find_lock(file, call).await,
            Open::Packed(file) => self.machine.find_lock(&file.anchor()?, call).await,
        }
    }

    async fn another(&self, file: &Open) -> io::Result<Open> {
        match file {
            Open::Plain(file) => self.machine.another(file).await.map(Open::Plain),
            Open::Packed(file) => Ok(Open::Packed(Rc::new(file.another()))),
        }
    }
}

/// Makes the folder below `root` that a coalesced one is seen as by who lists what is above it.
/// Returns what was missing, innermost first.
///
/// # Errors
///
/// Those of making folders.
pub fn make_folder(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let place = root.join(folder.strip_prefix("/").unwrap_or(folder));
    let is_missing = |folder: &&Path| folder.symlink_metadata().is_err();
    let missing: Vec<_> = place.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    std::fs::create_dir_all(&place)?;
    Ok(missing)
}
