//! A mapped or coalesced folder as a file system, for programs that the library does not reach.
//!
//! The kernel asks by `/dev/fuse`, a source of the first executor like the lanes (`device`), and is
//! answered by the same [`Storage`](storage::Storage) as they are. A node of the kernel has
//! a path (`view_nodes`), which is what `Storage` takes; `names` has the calls on these, `files`
//! those on open files, `locks` the locks.
//!
//! # Coherence
//!
//! The kernel may keep nothing: names and attributes are valid for no time, and bytes of files
//! bypass the page cache, but for what is mapped. On kernels that could not map such files (before
//! 6.6) bytes are cached and compared by size and time at each read. Before anything is answered
//! that could show it, what the clients of this daemon have staged for the file is drained. A file
//! that is open here counts as one more opener in the registry: if anybody writes, its clients
//! stage no more, and read nothing ahead.
//!
//! # Deadlock
//!
//! This executor answers, so it must never ask: no call here, or on it elsewhere, may touch a file
//! below the folder. Other threads may.

pub(crate) mod apart;
mod device;
mod files;
mod locks;
pub(crate) mod mount;
mod names;

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString},
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Mutex},
};

use executor::lock;
use fuse::{Attributes, Operation, ROOT, Request, Settings};
use rustix::{fs::FileType, io::Errno};
use storage::{
    Storage as _,
    names::{CallPath, Identity, NameCall, show_in_view},
    verdict::errno,
};
use uring::{Buffer, Pool, Reactor, write_message};
use wire::Status;

use self::{
    device::Device,
    files::{Handles, OpenFile},
    locks::Locks,
    mount::Mounted,
};
use crate::{Config, core::Core, mounts::Mounts, settle, view_nodes::Nodes};

/// Longest read or write.
const TRANSFER_LEN_MAX: u32 = 1 << 20;
/// Reads and writes at a time that have memory.
const TRANSFERS: usize = 64;
/// Bytes that the kernel may read ahead of a mapping.
const READAHEAD: u32 = 1 << 20;

/// A mounted view. Lives on the first executor.
pub(crate) struct View {
    core: Rc<Core<Mounts>>,
    mounted: Arc<Mounted>,
    nodes: Arc<Mutex<Nodes>>,
    handles: RefCell<Handles>,
    locks: Locks,
    pool: Pool,
    /// True if bytes of files bypass the page cache.
    is_direct: Cell<bool>,
    /// The folder itself, as it was when it was first looked at.
    top: Cell<Option<Status>>,
}

/// A folder to be mounted.
pub(crate) struct Top {
    pub(crate) local: PathBuf,
    /// As it is at the server, if that can be asked.
    status: Option<Status>,
}

impl Top {
    pub(crate) async fn look(core: &Core<Mounts>, local: PathBuf) -> Self {
        let status = async {
            let path = CString::new(mount::bytes_of(&local)).ok()?.into();
            let answer = core.storage.name(NameCall::Stat { path, follow: false }).await.ok()?;
            Status::decode(&answer.bytes)
        };
        Self { status: status.await, local }
    }
}

/// The outcome of a request.
enum Reply {
    /// Nothing is said.
    None,
    Message(Vec<u8>),
    /// A message with these bytes behind it.
    Data(Vec<u8>, Buffer),
}

impl From<Vec<u8>> for Reply {
    fn from(message: Vec<u8>) -> Self {
        Self::Message(message)
    }
}

impl View {
    /// Mounts the view of a folder, and serves it from now on.
    pub(crate) fn mount(
        core: &Rc<Core<Mounts>>,
        reactor: &Reactor,
        Top { local, status }: Top,
        config: &Config,
    ) -> io::Result<Rc<Self>> {
        let mounted = Mounted::at(&local, config.is_read_only, config.has_own_mounts)?;
        uring::note_elsewhere(mounted.number);
        let top = status.map(|status| {
            let device = show_in_view(status.device, mounted.number);
            Status { device, ..status }
        });
        let nodes = Arc::new(Mutex::new(Nodes::new(mount::bytes_of(&local))));
        let heeded = reactor.heed(mounted.device.try_clone()?)?;
        let view = Rc::new(Self {
            core: Rc::clone(core),
            nodes: Arc::clone(&nodes),
            mounted: Arc::new(mounted),
            handles: RefCell::default(),
            locks: Locks::default(),
            pool: Pool::reserve(TRANSFER_LEN_MAX as usize, TRANSFERS),
            is_direct: Cell::new(false),
            top: Cell::new(top),
        });
        lock(&core.node.viewed).push(nodes);
        core.handle.add_source(Box::new(Device::new(Rc::clone(&view), heeded)));
        Ok(view)
    }

    /// Takes the view away: nobody finds it any more, and who has a file of it open gets errors
    /// once the daemon is gone.
    pub(crate) async fn end(&self) {
        let mounted = Arc::clone(&self.mounted);
        let taken = self.core.storage.machine().call(move || mounted.take_away());
        if let Err(why) = taken.await {
            tracing::warn!("{}: not unmounted: {why}", self.mounted.local.display());
        }
        let open = self.handles.borrow_mut().take_files();
        for file in open {
            self.close(&file).await;
        }
    }

    /// True if any file is open to be written.
    pub(crate) fn has_writers(&self) -> bool {
        self.handles.borrow().has_writers()
    }

    /// Answers one request; `data` is what was to be written.
    async fn serve(self: Rc<Self>, request: Request, data: Buffer) {
        let unique = request.header.unique;
        let reply = match self.answer(&request, data).await {
            Ok(reply) => reply,
            Err(errno) => fuse::error(unique, errno.raw_os_error()).into(),
        };
        let sent = match &reply {
            Reply::None => return,
            Reply::Message(message) => {
                rustix::io::write(&self.mounted.device, message).map_err(io::Error::from)
            }
            Reply::Data(head, data) => write_message(self.mounted.device.as_fd(), head, data),
        };
        // `ENOENT`: whoever asked was killed meanwhile, and does not know what was opened for it.
        if sent.is_err_and(|why| errno(why) == Errno::NOENT) {
            let opened = self.handles.borrow_mut().forget_reply(unique);
            if let Some(handle) = opened {
                self.release(handle).await;
            }
        }
    }

    async fn answer(&self, request: &Request, data: Buffer) -> Result<Reply, Errno> {
        let (header, unique) = (&request.header, request.header.unique);
        match &request.operation {
            Operation::Initialise { major, minor, readahead_max, flags } => {
                Ok(self.initialise(unique, *major, *minor, *readahead_max, *flags)?.into())
            }
            Operation::Destroy => Ok(fuse::empty(unique).into()),
            Operation::Forget(lookups) => {
                let mut nodes = lock(&self.nodes);
                lookups.iter().for_each(|lookups| nodes.forget(*lookups));
                Ok(Reply::None)
            }
            Operation::Interrupt { unique } => {
                self.locks.interrupt(*unique);
                Ok(Reply::None)
            }
            Operation::FindLock { handle, owner, lock, is_whole } => {
                let found = self.find_lock(*handle, *owner, *lock, *is_whole).await?;
                Ok(fuse::locked(unique, found).into())
            }
            Operation::SetLock { handle, owner, lock, is_whole, waits } => {
                let waits = waits.then_some(unique);
                self.set_lock(*handle, *owner, *lock, *is_whole, waits).await?;
                Ok(fuse::empty(unique).into())
            }
            operation => self.on_file(header, operation, data).await,
        }
    }

    /// Agrees on what both sides can do.
    fn initialise(
        &self,
        unique: u64,
        major: u32,
        minor: u32,
        readahead_max: u32,
        offered: u64,
    ) -> Result<Vec<u8>, Errno> {
        /// The version whose structures are those that are known here.
        const MINOR: u32 = 36;
        /// The first one that has all that is needed (Linux 4.20).
        const MINOR_MIN: u32 = 28;
        if major != 7 || minor < MINOR_MIN {
            return Err(Errno::PROTO);
        }
        let wanted = Settings::ASYNC_READ
            | Settings::POSIX_LOCKS
            | Settings::ATOMIC_TRUNCATE
            | Settings::BIG_WRITES
            | Settings::FLOCK_LOCKS
            | Settings::INVALIDATE
            | Settings::ASYNC_DIRECT
            | Settings::PARALLEL_FOLDERS
            | Settings::MAX_PAGES
            | Settings::EXTENDED
            | Settings::DIRECT_MAPS;
        let flags = wanted & offered;
        self.is_direct.set(flags & Settings::DIRECT_MAPS != 0);
        let readahead_max = readahead_max.min(READAHEAD);
        let settings = Settings { flags, readahead_max, write_max: TRANSFER_LEN_MAX };
        Ok(fuse::initialised(unique, minor.min(MINOR), settings))
    }

    // ---- what a name leads to

    fn path(&self, node: u64) -> Result<CallPath, Errno> {
        lock(&self.nodes).path(node).map(CallPath::from).ok_or(Errno::STALE)
    }

    fn child(&self, folder: u64, name: &CStr) -> Result<CallPath, Errno> {
        lock(&self.nodes).child(folder, name).ok_or(Errno::STALE)
    }

    /// Executes a call on names.
    async fn call(&self, call: NameCall) -> Result<Vec<u8>, Errno> {
        self.core.storage.name(call).await.map(|answer| answer.bytes).map_err(errno)
    }

    /// What a path leads to, links not followed, with all that was staged for it.
    async fn look(&self, path: CallPath) -> Result<Status, Errno> {
        let stat = || NameCall::Stat { path: path.clone(), follow: false };
        let status = |bytes: Vec<u8>| Status::decode(&bytes).ok_or(Errno::IO);
        let found = status(self.call(stat()).await?)?;
        if self.drain(found.identity()).await {
            status(self.call(stat()).await?)
        } else {
            Ok(found)
        }
    }

    /// Drains what clients have staged for a file; returns whether any has it open.
    async fn drain(&self, identity: Identity) -> bool {
        let openers = lock(&self.core.node.registry).openers(identity);
        settle::drain_all(&self.core, &openers).await;
        !openers.is_empty()
    }

    /// What a node is. By its name, unless that leads to another file by now, or is gone: then by
    /// one of its open files.
    async fn status(&self, node: u64) -> Result<Status, Errno> {
        loop {
            let path = lock(&self.nodes).path(node);
            let Some(path) = path else { break };
            match self.look(path.into()).await {
                Ok(found) if lock(&self.nodes).is(node, &found) => return Ok(found),
                Err(why) if why != Errno::NOENT => return Err(why),
                _ if node == ROOT => return Err(Errno::NOENT),
                _ => lock(&self.nodes).mistrust(node),
            }
        }
        let file = self.handles.borrow().of_node(node).ok_or(Errno::STALE)?;
        self.status_of(&file).await
    }

    async fn status_of(&self, file: &OpenFile) -> Result<Status, Errno> {
        self.drain(file.identity).await;
        self.core.storage.status(&file.located()?).await.map_err(errno)
    }

    /// A file's number. Files of several devices are in one view, so numbers of those that are not
    /// on the folder's own are mixed with the device's.
    fn number(&self, identity: Identity) -> u64 {
        let (device, inode) = identity;
        if self.top.get().is_none_or(|top| top.device == device) {
            return inode;
        }
        inode ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63
    }

    /// Device and inode of a node that the kernel knows.
    fn identity(&self, node: u64) -> Identity {
        let known = lock(&self.nodes).identity(node);
        known.or(self.top.get().map(|top| top.identity())).unwrap_or_default()
    }

    /// A file as the kernel sees it.
    fn attributes(&self, status: &Status) -> Attributes {
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        Attributes {
            inode: self.number(status.identity()),
            size: status.size,
            block_count: status.block_count,
            accessed: status.accessed,
            modified: status.modified,
            changed: status.changed,
            mode: status.mode,
            link_count: narrow(status.link_count),
            user: status.user,
            group: status.group,
            special_device: narrow(status.special_device),
            block_size: narrow(status.block_size),
        }
    }

    /// The reply that tells of a name in a folder, which the kernel knows from now on.
    fn entry(&self, unique: u64, folder: u64, name: &CStr, status: &Status) -> Vec<u8> {
        let node = lock(&self.nodes).look_up(folder, name, status);
        fuse::entry(unique, node, &self.attributes(status))
    }

    /// Notes what the folder itself is.
    async fn know_top(&self) {
        if self.top.get().is_none() {
            self.top.set(self.status(ROOT).await.ok());
        }
    }
}

/// The folders of which there are to be views: each by its one true name, and none in another.
pub(crate) fn tops<'a>(locals: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let mut real: Vec<_> = locals.filter_map(|local| local.canonicalize().ok()).collect();
    real.sort();
    real.dedup_by(|next, above| next.starts_with(&*above));
    real
}

/// Says which programs miss the view of a folder that could not be mounted.
pub(crate) fn tell_of_none(local: &Path, why: &io::Error) {
    let local = local.display();
    if why.kind() == io::ErrorKind::ResourceBusy {
        tracing::warn!(
            "{local}: programs past the library see the files of another job; give this job \
             another folder"
        );
    } else {
        tracing::warn!(
            "{local}: no view can be mounted: {why}: listing it, '>{local}/file', and static \
             programs fail in it; 'kakehi doctor' says what helps, --view none does without"
        );
    }
}

/// True if a mode is that of a regular file.
fn is_regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_in_another_has_no_view_and_one_with_two_names_has_one() {
        let base = tempfile::tempdir().expect("folder");
        let base = base.path().canonicalize().expect("there");
        for name in ["a/b", "a-c", "d"] {
            std::fs::create_dir_all(base.join(name)).expect("folder");
        }
        std::os::unix::fs::symlink("a", base.join("link")).expect("link");
        let locals: Vec<_> =
            ["a/b", "link", "a", "d", "a-c", "gone"].map(|name| base.join(name)).into();
        let expected: Vec<_> = ["a", "a-c", "d"].map(|name| base.join(name)).into();
        let mut found = tops(locals.iter());
        found.sort_by_key(|path| path.as_os_str().to_owned());
        let mut expected = expected;
        expected.sort_by_key(|path| path.as_os_str().to_owned());
        assert_eq!(found, expected);
    }
}
