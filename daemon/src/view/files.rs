//! Open files of a view, and the calls on them.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::Rc,
};

use executor::lock;
use fuse::{Header, Open, Operation, Transfer};
use rustix::{
    fs::{OFlags, SeekFrom},
    io::Errno,
};
use storage::{
    Storage as _,
    names::{CallPath, FileCall, Identity, OpenCall},
    verdict::errno,
};
use uring::Buffer;
use wire::{Listed, NameKind, SEEK_DATA, SEEK_HOLE, Status};

use super::{Reply, View};
use crate::{mounts::Located, settle};

/// The open files and folders.
#[derive(Default)]
pub(super) struct Handles {
    files: HashMap<u64, Rc<OpenFile>>,
    folders: HashMap<u64, Rc<Folder>>,
    /// The requests that were answered by a handle last: the kernel may not have taken it.
    answered: HashMap<u64, u64>,
    next: u64,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) node: u64,
    pub(super) identity: Identity,
    can_read: bool,
    can_write: bool,
    appends: Cell<bool>,
    /// True if it was written since a descriptor of it was closed last.
    is_written: Cell<bool>,
    /// Owners of its locks: what they have not given up goes with it.
    pub(super) lockers: RefCell<HashSet<u64>>,
    located: RefCell<Option<Located>>,
    /// The same file, open to append if this is not, or the other way round, once it is needed.
    apart: RefCell<Option<Located>>,
}

/// A name in a folder.
pub(super) struct Named {
    pub(super) kind: NameKind,
    /// As in the file's attributes.
    pub(super) inode: u64,
    pub(super) name: Vec<u8>,
}

/// An open folder, as it was when it was last read from its start.
#[derive(Default)]
pub(super) struct Folder(RefCell<Option<Rc<Vec<Named>>>>);

impl OpenFile {
    pub(super) fn located(&self) -> Result<Located, Errno> {
        self.located.borrow().clone().ok_or(Errno::BADF)
    }
}

impl Handles {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn add_file(&mut self, file: OpenFile) -> u64 {
        let number = self.number();
        self.files.insert(number, Rc::new(file));
        number
    }

    pub(super) fn add_folder(&mut self) -> u64 {
        let number = self.number();
        self.folders.insert(number, Rc::default());
        number
    }

    pub(super) fn file(&self, handle: u64) -> Result<Rc<OpenFile>, Errno> {
        self.files.get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn folder(&self, handle: u64) -> Result<Rc<Folder>, Errno> {
        self.folders.get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn remove_folder(&mut self, handle: u64) {
        self.folders.remove(&handle);
    }

    /// An open file of a node, one that may be written if there is one.
    pub(super) fn of_node(&self, node: u64) -> Option<Rc<OpenFile>> {
        let of_node = |file: &&Rc<OpenFile>| file.node == node;
        self.files.values().filter(of_node).max_by_key(|file| file.can_write).cloned()
    }

    /// One by which a file without a name can be opened once more.
    fn like(&self, node: u64, flags: OFlags) -> Option<Rc<OpenFile>> {
        let (reads, writes) = access(flags);
        let fits = |file: &&Rc<OpenFile>| {
            file.node == node
                && (file.can_read || !reads)
                && (file.can_write || !writes)
                && file.appends.get() == flags.contains(OFlags::APPEND)
        };
        self.files.values().find(fits).cloned()
    }

    /// One that is written at its end if it `appends`, else where it is told to.
    fn writer(&self, node: u64, appends: bool) -> Option<Rc<OpenFile>> {
        let fits = |file: &&Rc<OpenFile>| {
            file.node == node && file.can_write && file.appends.get() == appends
        };
        self.files.values().find(fits).cloned()
    }

    /// Everything that is open, which is closed then.
    pub(super) fn take_files(&mut self) -> Vec<Rc<OpenFile>> {
        self.files.drain().map(|(_, file)| file).collect()
    }

    pub(super) fn has_writers(&self) -> bool {
        self.files.values().any(|file| file.can_write)
    }

    fn answered(&mut self, unique: u64, handle: u64) {
        self.answered.retain(|_, known| *known != handle);
        self.answered.insert(unique, handle);
    }

    /// What was opened for a request whose answer nobody has taken.
    pub(super) fn forget_reply(&mut self, unique: u64) -> Option<u64> {
        self.answered.remove(&unique)
    }
}

impl Folder {
    /// The names, read anew where a listing begins.
    pub(super) async fn names(
        &self,
        view: &View,
        node: u64,
        at: u64,
    ) -> Result<Rc<Vec<Named>>, Errno> {
        let known = self.0.borrow().clone().filter(|_| at > 0);
        if let Some(known) = known {
            return Ok(known);
        }
        let path = view.path(node)?;
        let bytes = view.core.storage.list(&path).await.map_err(errno)?;
        let (device, own) = view.identity(node);
        let number = |inode| view.number((device, inode));
        let above = lock(&view.nodes).above(node);
        let above = match above {
            Some(above) => view.number(view.identity(above)),
            None => view.mounted.above,
        };
        let dots = [(&b"."[..], number(own)), (b"..", above)];
        let dots = dots.map(|(name, inode)| (NameKind::Folder, inode, name));
        let listed = |Listed { kind, inode, name }| (kind, number(inode), name);
        // Not every file system lists its dots.
        let others = wire::names(&bytes).filter(|listed| !matches!(listed.name, b"." | b".."));
        let all = dots.into_iter().chain(others.map(listed));
        let named = |(kind, inode, name): (_, _, &[u8])| Named { kind, inode, name: name.to_vec() };
        let names = Rc::new(all.map(named).collect::<Vec<_>>());
        *self.0.borrow_mut() = Some(Rc::clone(&names));
        Ok(names)
    }
}

/// True if a file is opened to be read, and to be written.
fn access(flags: OFlags) -> (bool, bool) {
    match flags & OFlags::RWMODE {
        OFlags::WRONLY => (false, true),
        OFlags::RDWR => (true, true),
        _ => (true, false),
    }
}

impl View {
    /// A call on an open file, or the one that opens it; any other is one on names.
    pub(super) async fn on_file(
        &self,
        header: &Header,
        operation: &Operation,
        data: Buffer,
    ) -> Result<Reply, Errno> {
        let unique = header.unique;
        let file = |handle: u64| self.handles.borrow().file(handle);
        let reply = match *operation {
            Operation::Open(open) => self.open_node(header, open).await?,
            Operation::Read(transfer) => return self.read(unique, transfer).await,
            Operation::Write(transfer) => {
                let len = self.write(transfer, data).await?;
                fuse::written(unique, len)
            }
            Operation::Flush { handle, owner } => {
                let file = file(handle)?;
                self.unlock_all(&file, owner).await;
                self.flush(&file).await?;
                fuse::empty(unique)
            }
            Operation::Release { handle } => {
                self.release(handle).await;
                fuse::empty(unique)
            }
            Operation::Sync { handle, data_only } => {
                self.on(&*file(handle)?, FileCall::Sync { data_only }).await?;
                fuse::empty(unique)
            }
            Operation::Allocate { handle, at, len, mode } => {
                self.on(&*file(handle)?, FileCall::Allocate { mode, at, len }).await?;
                fuse::empty(unique)
            }
            Operation::Seek { handle, at, whence } => {
                let to = match whence {
                    SEEK_DATA => SeekFrom::Data(at),
                    SEEK_HOLE => SeekFrom::Hole(at),
                    _ => return Err(Errno::INVAL),
                };
                fuse::position(unique, self.on(&*file(handle)?, FileCall::Seek(to)).await?)
            }
            _ => return self.on_name(header, operation).await,
        };
        Ok(reply.into())
    }

    /// Executes a call on an open file, after all that was staged for it; returns its value.
    pub(super) async fn on(&self, file: &OpenFile, call: FileCall) -> Result<u64, Errno> {
        self.drain(file.identity).await;
        let done = self.core.storage.on(&file.located()?, call).await;
        done.map(|answer| answer.value).map_err(errno)
    }

    async fn open_node(&self, header: &Header, open: Open) -> Result<Vec<u8>, Errno> {
        let path = lock(&self.nodes).path(header.node);
        let (located, status) = match path {
            Some(path) => self.open_path(path.into(), open).await?,
            None => self.open_unnamed(header.node, open).await?,
        };
        if !lock(&self.nodes).is(header.node, &status) {
            self.core.storage.close(located).await.map_err(errno)?;
            return Err(Errno::STALE); // The kernel looks the name up again.
        }
        let handle = self.keep(header, header.node, &status, open.flags, located).await;
        Ok(fuse::opened(header.unique, handle, self.is_direct.get()))
    }

    /// Opens a path for the kernel, which has followed all links.
    pub(super) async fn open_path(
        &self,
        path: CallPath,
        open: Open,
    ) -> Result<(Located, Status), Errno> {
        let kept = OFlags::RWMODE | OFlags::APPEND | OFlags::TRUNC | OFlags::CREATE | OFlags::EXCL;
        let flags = OFlags::from_bits_retain(open.flags);
        if flags.contains(OFlags::TRUNC) {
            // What was written before must not come behind it.
            self.look(path.clone()).await.ok();
        }
        let flags = (flags & kept) | OFlags::NOFOLLOW;
        let call = OpenCall { path, flags: flags.bits(), mode: open.mode, inode: 0 };
        self.core.storage.open(call).await.map_err(errno)
    }

    /// Opens a file that has no name any more, as by `/proc/self/fd/3`: what has it open already.
    async fn open_unnamed(&self, node: u64, open: Open) -> Result<(Located, Status), Errno> {
        let flags = OFlags::from_bits_retain(open.flags);
        let file = self.handles.borrow().like(node, flags).ok_or(Errno::STALE)?;
        let located = file.located()?;
        if flags.contains(OFlags::TRUNC) {
            self.core.storage.truncate(&located, 0).await.map_err(errno)?;
        }
        let status = self.status_of(&file).await?;
        Ok((located, status))
    }

    /// Takes an open file in: its clients stage no more if somebody writes. Returns its handle.
    pub(super) async fn keep(
        &self,
        header: &Header,
        node: u64,
        status: &Status,
        flags: u32,
        located: Located,
    ) -> u64 {
        let flags = OFlags::from_bits_retain(flags);
        let (identity, (can_read, can_write)) = (status.identity(), access(flags));
        let inodes = &self.core.node.shared().inodes;
        inodes.add(identity.0, identity.1);
        let clock = &self.core.handle;
        let others = lock(&self.core.node.registry).view(identity, can_write, clock);
        inodes.tell(identity.0, identity.1);
        settle::drain_all(&self.core, &others).await;
        let appends = flags.contains(OFlags::APPEND);
        let located = RefCell::new(Some(located));
        let mut handles = self.handles.borrow_mut();
        let handle = handles.add_file(OpenFile {
            node,
            identity,
            can_read,
            can_write,
            appends: Cell::new(appends),
            is_written: Cell::default(),
            lockers: RefCell::default(),
            located,
            apart: RefCell::default(),
        });
        handles.answered(header.unique, handle);
        handle
    }

    /// Tells what the file system refuses at a close. The kernel takes no error of the release,
    /// which comes later.
    async fn flush(&self, file: &OpenFile) -> Result<(), Errno> {
        if !file.is_written.take() {
            return Ok(());
        }
        let both = [file.located.borrow().clone(), file.apart.borrow().clone()];
        for located in both.into_iter().flatten() {
            self.core.storage.on(&located, FileCall::CloseDuplicate).await.map_err(errno)?;
        }
        Ok(())
    }

    /// Closes a handle.
    pub(super) async fn release(&self, handle: u64) {
        let file = {
            let mut handles = self.handles.borrow_mut();
            handles.answered.retain(|_, known| *known != handle);
            handles.files.remove(&handle)
        };
        if let Some(file) = file {
            self.release_locked(&file).await;
        }
    }

    pub(super) async fn close(&self, file: &OpenFile) {
        let (device, inode) = file.identity;
        for owner in file.lockers.take() {
            self.unlock_all(file, owner).await;
        }
        for located in [file.apart.take(), file.located.take()].into_iter().flatten() {
            if let Err(why) = self.core.storage.close(located).await {
                tracing::warn!("a file that was written through its view: {why}");
            }
        }
        lock(&self.core.node.registry).unview(file.identity, file.can_write);
        self.core.node.shared().inodes.remove(device, inode);
    }

    async fn read(&self, unique: u64, transfer: Transfer) -> Result<Reply, Errno> {
        let file = self.handles.borrow().file(transfer.handle)?;
        self.drain(file.identity).await;
        let (located, into) = (file.located()?, self.pool.take().await);
        let into = into.prefix(transfer.len as usize);
        let read = self.core.storage.read_full(&located, transfer.at, &into.clone().into()).await;
        let len = read.map_err(errno)?;
        Ok(Reply::Data(fuse::read_header(unique, len), into.prefix(len)))
    }

    async fn write(&self, transfer: Transfer, data: Buffer) -> Result<u32, Errno> {
        let mut file = self.handles.borrow().file(transfer.handle)?;
        // What was changed in a mapping has its place, and `F_SETFL` changes an open file.
        let appends = transfer.appends && !transfer.is_cached;
        file.is_written.set(true);
        if appends != file.appends.get() {
            let other = self.handles.borrow().writer(file.node, appends);
            match other {
                Some(other) => {
                    file = other;
                    file.is_written.set(true);
                }
                None => return self.write_apart(&file, appends, transfer, data).await,
            }
        }
        self.drain(file.identity).await;
        self.put(&file.located()?, transfer.at, data).await
    }

    /// Writes to a file as it is not open: in place where it appends, or at its end, which the
    /// kernel may not know.
    async fn write_apart(
        &self,
        file: &OpenFile,
        appends: bool,
        transfer: Transfer,
        data: Buffer,
    ) -> Result<u32, Errno> {
        let apart = self.apart(file, appends).await;
        self.drain(file.identity).await;
        let at = match apart {
            Ok(apart) => return self.put(&apart, transfer.at, data).await,
            // It has another name by now, or none.
            Err(Errno::NOENT | Errno::STALE | Errno::BADF | Errno::ACCESS) if appends => {
                self.status_of(file).await?.size
            }
            Err(Errno::NOENT | Errno::STALE | Errno::BADF | Errno::ACCESS) => {
                self.on(file, FileCall::SetAppend(false)).await?;
                file.appends.set(false);
                transfer.at
            }
            Err(why) => return Err(why),
        };
        // From now on an append goes to the end that it is told: another's may come in between.
        self.put(&file.located()?, at, data).await
    }

    /// The file, open to append or not, as it is not open yet.
    async fn apart(&self, file: &OpenFile, appends: bool) -> Result<Located, Errno> {
        if let Some(apart) = &*file.apart.borrow() {
            return Ok(apart.clone());
        }
        let how = if appends { OFlags::APPEND } else { OFlags::empty() };
        let open = Open { flags: (OFlags::WRONLY | how).bits(), mode: 0 };
        let (located, status) = self.open_path(self.path(file.node)?, open).await?;
        if status.identity() != file.identity {
            self.core.storage.close(located).await.map_err(errno)?;
            return Err(Errno::STALE);
        }
        if let Some(other) = file.apart.replace(Some(located.clone())) {
            // Another write has opened it meanwhile, and says what comes of that.
            self.core.storage.close(other).await.unwrap_or_default();
        }
        Ok(located)
    }

    async fn put(&self, located: &Located, at: u64, data: Buffer) -> Result<u32, Errno> {
        let written = self.core.storage.write_full(located, at, &data.into()).await;
        u32::try_from(written.map_err(errno)?).map_err(|_| Errno::IO)
    }
}
