//! Calls on names in a view.

use std::ffi::CStr;

use executor::lock;
use fuse::{Changes, Header, Names, Open, Operation, ROOT, Time, Transfer};
use rustix::{
    fs::{FileType, Mode, OFlags, RenameFlags},
    io::Errno,
    process::{getegid, geteuid},
};
use storage::{
    Storage as _,
    names::{Attributes, CallPath, FileCall, NameCall},
    verdict::errno,
};
use wire::{FileSystem, NameKind, Status, Times};

use super::{Reply, View, files::Named, is_regular};
use crate::{mounts::Located, view_nodes::Leaf};

/// Nanoseconds that say "now", and "as it is" (`utimensat(2)`).
const NOW: i64 = (1 << 30) - 1;
const OMIT: i64 = (1 << 30) - 2;
/// `R_OK`.
const ACCESS_READ: u32 = 4;
/// A user or group that stays.
const STAYS: u32 = u32::MAX;

impl View {
    /// A call on a name, or on a folder.
    pub(super) async fn on_name(
        &self,
        header: &Header,
        operation: &Operation,
    ) -> Result<Reply, Errno> {
        let (unique, node) = (header.unique, header.node);
        let reply = match operation {
            Operation::Lookup { name } => {
                self.know_top().await;
                let status = self.look(self.child(node, name)?).await?;
                self.entry(unique, node, name, &status)
            }
            Operation::GetAttributes { handle } => {
                self.know_top().await;
                let file = handle.and_then(|handle| self.handles.borrow().file(handle).ok());
                let status = match file {
                    Some(file) => self.status_of(&file).await?,
                    None => match (self.status(node).await, self.top.get()) {
                        // Who is in the folder of a lost server can leave it by `..`.
                        (Err(Errno::IO), Some(top)) if node == ROOT => top,
                        (found, _) => found?,
                    },
                };
                fuse::attributes(unique, &self.attributes(&status))
            }
            Operation::SetAttributes(changes) => {
                let status = self.set(node, *changes).await?;
                fuse::attributes(unique, &self.attributes(&status))
            }
            Operation::ReadLink => {
                let path = self.path(node)?;
                fuse::text(unique, &self.call(NameCall::ReadLink { path }).await?)
            }
            Operation::FileSystem => {
                let path = self.path(node)?;
                let found = self.call(NameCall::FileSystem { path }).await?;
                let found = FileSystem::decode(&found).ok_or(Errno::IO)?;
                file_system(unique, &found)
            }
            Operation::Access { mode } => {
                let (path, mode) = (self.path(node)?, *mode);
                self.call(NameCall::Access { path, mode }).await?;
                fuse::empty(unique)
            }
            Operation::OpenFolder => {
                self.may_list(node).await?;
                let handle = self.handles.borrow_mut().add_folder();
                fuse::opened(unique, handle, false)
            }
            Operation::ReadFolder(transfer) => self.read_folder(header, *transfer).await?,
            Operation::ReleaseFolder { handle } => {
                self.handles.borrow_mut().remove_folder(*handle);
                fuse::empty(unique)
            }
            Operation::SyncFolder => {
                let path = self.path(node)?;
                self.call(NameCall::SyncFolder { path }).await?;
                fuse::empty(unique)
            }
            Operation::Create { name, open } => self.create(header, name, *open).await?,
            operation => self.change_names(header, operation).await?,
        };
        Ok(reply.into())
    }

    /// A call that makes a name, removes it, or moves it.
    async fn change_names(&self, header: &Header, operation: &Operation) -> Result<Vec<u8>, Errno> {
        let (unique, folder) = (header.unique, header.node);
        match operation {
            Operation::MakeFolder { name, mode } => {
                let path = self.child(folder, name)?;
                let call = NameCall::MakeDir { path: path.clone(), mode: mode & 0o7777 };
                self.call(call).await?;
                return self.made(header, name, path).await;
            }
            Operation::Symlink { name, text } => {
                let path = self.child(folder, name)?;
                self.call(NameCall::Symlink { text: text.clone(), name: path.clone() }).await?;
                return self.made(header, name, path).await;
            }
            Operation::MakeNode { name, mode } => {
                if !is_regular(*mode) {
                    return Err(Errno::OPNOTSUPP);
                }
                let path = self.child(folder, name)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let open = Open { flags: flags.bits(), mode: mode & 0o7777 };
                let (located, _) = self.open_path(path.clone(), open).await?;
                let given = self.give(header, &located).await;
                self.core.storage.close(located).await.map_err(errno)?;
                given?;
                let status = self.look(path).await?;
                return Ok(self.entry(unique, folder, name, &status));
            }
            Operation::Link { node, name } => {
                let (from, to) = (self.path(*node)?, self.child(folder, name)?);
                self.call(NameCall::Link { from, to: to.clone() }).await?;
                let status = self.look(to).await?;
                return Ok(self.entry(unique, folder, name, &status));
            }
            Operation::Unlink { name } => {
                self.call(NameCall::Unlink { path: self.child(folder, name)? }).await?;
                lock(&self.nodes).remove(folder, name);
            }
            Operation::RemoveFolder { name } => {
                self.call(NameCall::RemoveDir { path: self.child(folder, name)? }).await?;
                lock(&self.nodes).remove(folder, name);
            }
            Operation::Rename { name, to_folder, to_name, flags } => {
                let from = Leaf { folder, name };
                let to = Leaf { folder: *to_folder, name: to_name };
                self.rename(from, to, *flags).await?;
            }
            _ => return Err(Errno::NOSYS), // One that is not known here.
        }
        Ok(fuse::empty(unique))
    }

    async fn rename(&self, from: Leaf<'_>, to: Leaf<'_>, flags: u32) -> Result<(), Errno> {
        let call = NameCall::Rename {
            from: self.child(from.folder, from.name)?,
            to: self.child(to.folder, to.name)?,
            flags,
        };
        self.call(call).await?;
        let mut nodes = lock(&self.nodes);
        if RenameFlags::from_bits_retain(flags).contains(RenameFlags::EXCHANGE) {
            nodes.exchange(from, to);
        } else {
            nodes.rename(from, to);
        }
        Ok(())
    }

    /// The reply that tells of what was just made.
    async fn made(&self, header: &Header, name: &CStr, path: CallPath) -> Result<Vec<u8>, Errno> {
        if let Some(what) = self.owner(header).await? {
            let path = path.clone();
            given(self.call(NameCall::Set { path, follow: false, what }).await)?;
        }
        let status = self.look(path).await?;
        Ok(self.entry(header.unique, header.node, name, &status))
    }

    /// Gives a file that the daemon has made to who asked for it.
    async fn give(&self, header: &Header, located: &Located) -> Result<(), Errno> {
        let Some(what) = self.owner(header).await? else { return Ok(()) };
        given(self.core.storage.on(located, FileCall::Set(what)).await.map_err(errno))
    }

    /// The owner of what somebody else than the daemon's user makes in the folder of a request.
    async fn owner(&self, header: &Header) -> Result<Option<Attributes>, Errno> {
        let Some((user, group)) = self.maker(header) else { return Ok(None) };
        // The file system has given it the group of a set-group-id folder.
        let mode = Mode::from_raw_mode(self.status(header.node).await?.mode);
        let group = if mode.contains(Mode::SGID) { STAYS } else { group };
        Ok((user != STAYS || group != STAYS).then_some(Attributes::Owner(user, group)))
    }

    /// User and group of who asks, as far as they are not the daemon's.
    fn maker(&self, header: &Header) -> Option<(u32, u32)> {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let is_else = |id: u32, own: u32| if id == own { STAYS } else { id };
        let maker = (is_else(header.user, user), is_else(header.group, group));
        (self.mounted.is_for_all && maker != (STAYS, STAYS)).then_some(maker)
    }

    async fn create(&self, header: &Header, name: &CStr, open: Open) -> Result<Vec<u8>, Errno> {
        let path = self.child(header.node, name)?;
        let open = Open { mode: open.mode & 0o7777, ..open };
        let exclusive = Open { flags: open.flags | OFlags::EXCL.bits(), ..open };
        // Of another's file that came here meanwhile the owner stays.
        let made = match self.maker(header) {
            Some(_) => self.open_path(path.clone(), exclusive).await,
            None => Err(Errno::EXIST),
        };
        let (located, status) = match made {
            Err(Errno::EXIST) => self.open_path(path, open).await?,
            made => {
                let (located, _) = made?;
                if let Err(why) = self.give(header, &located).await {
                    // It was told why: what closing says is nothing more.
                    self.core.storage.close(located).await.ok();
                    return Err(why);
                }
                let status = self.core.storage.status(&located).await.map_err(errno)?;
                (located, status)
            }
        };
        let node = lock(&self.nodes).look_up(header.node, name, &status);
        let handle = self.keep(header, node, &status, open.flags, located).await;
        let attributes = self.attributes(&status);
        Ok(fuse::created(header.unique, node, &attributes, handle, self.is_direct.get()))
    }

    /// Of files that only the daemon's user sees, the kernel leaves modes to the view.
    async fn may_list(&self, node: u64) -> Result<(), Errno> {
        let path = self.path(node).ok().filter(|_| !self.mounted.is_for_all);
        let Some(path) = path else { return Ok(()) };
        self.call(NameCall::Access { path, mode: ACCESS_READ }).await.map(drop)
    }

    async fn read_folder(&self, header: &Header, transfer: Transfer) -> Result<Vec<u8>, Errno> {
        let folder = self.handles.borrow().folder(transfer.handle)?;
        let names = folder.names(self, header.node, transfer.at).await?;
        let mut part = Names::new(transfer.len as usize);
        let (from, mut next) = (usize::try_from(transfer.at).map_err(|_| Errno::INVAL)?, 0);
        for Named { kind, inode, name } in names.iter().skip(from) {
            next += 1;
            let kind = match kind {
                NameKind::File => FileType::RegularFile.as_raw_mode(),
                NameKind::Folder => FileType::Directory.as_raw_mode(),
                NameKind::Link => FileType::Symlink.as_raw_mode(),
                NameKind::Other => 0,
            };
            if !part.push(*inode, kind, transfer.at + next, name) {
                break;
            }
        }
        Ok(part.reply(header.unique))
    }

    /// Sets attributes of a node, and tells what it is then.
    async fn set(&self, node: u64, changes: Changes) -> Result<Status, Errno> {
        let named = changes.handle.and_then(|handle| self.handles.borrow().file(handle).ok());
        let path = lock(&self.nodes).path(node);
        // Programs of the library remove and rename files that the kernel has open: an open file is
        // sure to be the one. By one that may not be written no length is set.
        let file = named.or_else(|| match path {
            Some(_) if changes.size.is_some() => None,
            _ => self.handles.borrow().of_node(node),
        });
        let attributes = attributes(&changes).into_iter().flatten().map(Change::Attribute);
        for change in changes.size.map(Change::Len).into_iter().chain(attributes) {
            if let Some(file) = &file {
                self.on(file, change.by_file()).await?;
            } else {
                let path = self.path(node)?;
                self.look(path.clone()).await?;
                self.call(change.by_name(path)).await?;
            }
        }
        match &file {
            Some(file) => self.status_of(file).await,
            None => self.status(node).await,
        }
    }
}

/// A server that an ordinary user has started gives nothing away: what is made there is that
/// user's, as what programs of the library make.
fn given<T>(done: Result<T, Errno>) -> Result<(), Errno> {
    match done {
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(why) => Err(why),
    }
}

/// One change to a file.
#[derive(Clone, Copy, Debug)]
enum Change {
    Len(u64),
    Attribute(Attributes),
}

impl Change {
    /// The call on an open file that makes it.
    fn by_file(self) -> FileCall {
        match self {
            Self::Len(len) => FileCall::Truncate { len },
            Self::Attribute(what) => FileCall::Set(what),
        }
    }

    /// The call on a name.
    fn by_name(self, path: CallPath) -> NameCall {
        match self {
            Self::Len(len) => NameCall::Truncate { path, len },
            // The kernel sets no mode of a link.
            Self::Attribute(what @ Attributes::Mode(_)) => {
                NameCall::Set { path, follow: true, what }
            }
            Self::Attribute(what) => NameCall::Set { path, follow: false, what },
        }
    }
}

/// The attributes to set, in the order in which they are: an owner may take bits off a mode.
fn attributes(changes: &Changes) -> [Option<Attributes>; 3] {
    let owner = (changes.user, changes.group);
    let owner = (owner != (None, None))
        .then(|| Attributes::Owner(owner.0.unwrap_or(STAYS), owner.1.unwrap_or(STAYS)));
    let mode = changes.mode.map(|mode| Attributes::Mode(mode & 0o7777));
    let time = |time: Option<Time>| match time {
        None => (0, OMIT),
        Some(Time::Now) => (0, NOW),
        Some(Time::At(seconds, nanoseconds)) => (seconds, i64::from(nanoseconds)),
    };
    let times = (changes.accessed, changes.modified);
    let times = (times != (None, None))
        .then(|| Attributes::Times(Times { accessed: time(times.0), modified: time(times.1) }));
    [owner, mode, times]
}

fn file_system(unique: u64, found: &FileSystem) -> Vec<u8> {
    let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
    let counts =
        [found.block_count, found.free, found.available, found.inode_count, found.inodes_free];
    fuse::file_system(unique, counts, narrow(found.block_size), narrow(found.name_len_max))
}
