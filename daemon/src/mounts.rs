//! All files a daemon serves: those of its machine, and those of a server below mapped folders.
//! `mount` says where a path leads, `located` where an open file is.

mod located;
mod mount;

use std::{
    ffi::CString,
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    rc::Rc,
};

use coalesce::Coalesced;
use executor::Credits;
use remote::{Group, Own, RemoteFile};
use rustix::{
    fs::{FileType, Mode},
    io::Errno,
};
use storage::{
    Locking, Machine, Storage,
    lock_call::{LockCall, process_of},
    names::{Answer, FileCall, Identity, NameCall, OpenCall},
};
use uring::Buffers;
use wire::{FoundLock, Listing, Status};

pub(crate) use self::located::Located;
pub use self::mount::Mount;
use crate::session_storage::SessionStorage;

/// The way to a server, which may be this daemon itself.
pub(crate) type Dial = remote::Dial<Coalesced>;

/// The files of this machine and of a server, as one process asks for them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Mounts {
    machine: Machine,
    server: Option<Rc<Servers>>,
    /// Number of the process that asks, at this daemon.
    process: Option<u16>,
    /// And in its parallel job.
    rank: Option<u32>,
}

/// The way to a server, or to several that serve the same folder.
pub(crate) struct Servers {
    pub(crate) group: Group<Dial>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) own: Own<Coalesced>,
}

impl Mounts {
    pub(crate) fn new(machine: Machine, server: Option<Rc<Servers>>) -> Self {
        Self { machine, server, process: None, rank: None }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// All names in a folder below a mapped one, as [`wire::names`] takes them.
    ///
    /// # Errors
    ///
    /// As listing it; `ENOENT`: it is below none.
    pub(crate) async fn list(&self, path: &CString) -> io::Result<Vec<u8>> {
        let (server, remote) = self.find(path).ok_or(Errno::NOENT)?;
        server.list(self.rank, &remote).await
    }

    /// The server that has a path, and the path from its root.
    fn find(&self, path: &CString) -> Option<(&Rc<Servers>, CString)> {
        let server = self.server.as_ref()?;
        mount::remote(&server.mounts, mount::local(path)).map(|remote| (server, remote))
    }

    /// A call on names with its paths from the server's root; `None` when it is about this machine.
    fn moved(&self, call: &NameCall) -> io::Result<Option<(&Rc<Servers>, NameCall)>> {
        let mut call = call.clone();
        let (mut there, mut count) = (None, 0);
        for path in call.paths_mut().into_iter().flatten() {
            let moved = self.find(path);
            if count > 0 && moved.is_some() != there.is_some() {
                return Err(Errno::XDEV.into());
            }
            count += 1;
            if let Some((server, remote)) = moved {
                path.text = remote;
                there = Some(server);
            }
        }
        Ok(there.map(|server| (server, call)))
    }
}

impl Servers {
    /// Makes a folder that is mapped, and those above it, with this mode.
    ///
    /// # Errors
    ///
    /// Why it cannot be one.
    pub(crate) async fn make_folder(&self, remote: &Path, mode: Mode) -> io::Result<()> {
        let whole = CString::new(Path::new("/").join(remote).into_os_string().into_vec())?;
        // Most are there already.
        if self.is_folder(whole.clone()).await.is_ok_and(|is_folder| is_folder) {
            return Ok(());
        }
        let (mut path, mut why) = (PathBuf::from("/"), None);
        for part in remote {
            path.push(part);
            let path = CString::new(path.as_os_str().as_bytes())?;
            match self
                .group
                .name(None, NameCall::MakeDir { path: path.into(), mode: mode.bits() })
                .await
            {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    why.get_or_insert(error);
                }
                _ => {}
            }
        }
        // What is there already may be no folder; and a server that was killed in the middle may
        // have made one, and not know.
        match self.is_folder(whole).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(why.unwrap_or_else(|| Errno::NOTDIR.into())),
            Err(error) => Err(why.unwrap_or(error)),
        }
    }

    /// True if a folder has this path at the server, or a link to one.
    async fn is_folder(&self, path: CString) -> io::Result<bool> {
        let found =
            self.group.name(None, NameCall::Stat { path: path.into(), follow: true }).await?;
        let mode = Status::decode(&found.bytes).map(|status| FileType::from_raw_mode(status.mode));
        Ok(mode == Some(FileType::Directory))
    }

    /// The path of an open file from the server's root. One that was opened by its number has that
    /// of the folder that it was in then.
    fn path_of(&self, file: &RemoteFile<Dial>) -> Option<Vec<u8>> {
        let path = file.path()?;
        let coalesced = self.own.storage().zip(file.inode());
        Some(coalesced.and_then(|(files, inode)| files.path_of(&path, inode)).unwrap_or(path))
    }

    /// The names in a remote folder.
    async fn list(&self, rank: Option<u32>, remote: &CString) -> io::Result<Vec<u8>> {
        let (mut names, mut from) = (Vec::new(), 0);
        loop {
            let call = NameCall::ReadDir { path: remote.clone().into(), from, room: 0 };
            let part = self.group.name(rank, call).await?.bytes;
            let Some(part) = Listing::decode(&part) else { return Ok(names) };
            from = part.next;
            names.extend(part.names);
        }
    }
}

impl Storage for Mounts {
    type File = Located;

    async fn on(&self, file: &Located, call: FileCall) -> io::Result<Answer> {
        match file {
            Located::Here(file) => self.machine.on(file, call).await,
            Located::There(file) => file.on(call).await,
        }
    }

    async fn read(&self, file: &Located, at: u64, into: Buffers) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.read(file, at, into).await,
            // On the heap: the future of a local file stays small.
            Located::There(file) => Box::pin(async { file.read(at, &into).await }).await,
        }
    }

    async fn write(&self, file: &Located, at: u64, from: Buffers) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.write(file, at, from).await,
            Located::There(file) => Box::pin(async { file.write(at, &from).await }).await,
        }
    }

    async fn open(&self, mut call: OpenCall) -> io::Result<(Located, Status)> {
        let Some((server, remote)) = self.find(&call.path) else {
            let (file, status) = self.machine.open(call).await?;
            return Ok((Located::Here(file), status));
        };
        call.path.text = remote;
        let (file, status) = server.group.open(self.process, self.rank, call).await?;
        Ok((Located::There(file), status))
    }

    async fn close(&self, file: Located) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.close(file).await,
            Located::There(file) => RemoteFile::close(file).await,
        }
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        let Some((server, moved)) = self.moved(&call)? else {
            return self.machine.name(call).await;
        };
        if let NameCall::ReadDir { .. } = moved {
            // The lane's buffer has less room than a frame, but nobody lists a remote folder so.
            return Err(Errno::NOTSUP.into());
        }
        server.group.name(self.rank, moved).await
    }
}

impl Locking for Mounts {
    async fn lock(&self, file: &Located, call: LockCall) -> io::Result<()> {
        match file {
            Located::Here(_) => Err(Errno::NOSYS.into()),
            Located::There(file) => file.lock(call).await,
        }
    }

    async fn find_lock(&self, file: &Located, call: LockCall) -> io::Result<Option<FoundLock>> {
        match file {
            Located::Here(_) => Err(Errno::NOSYS.into()),
            Located::There(file) => file.find_lock(call).await,
        }
    }

    async fn another(&self, file: &Located) -> io::Result<Located> {
        match file {
            Located::Here(file) => self.machine.another(file).await.map(Located::Here),
            Located::There(_) => Err(Errno::NOSYS.into()),
        }
    }
}

impl SessionStorage for Mounts {
    fn identify(&self, file: &Located) -> Option<Identity> {
        match file {
            Located::Here(file) => Machine::identify(file),
            Located::There(_) => None,
        }
    }

    async fn fetch(&self, file: &Located, at: u64, len: usize) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.fetch(file, at, len).await,
            // There is no page cache here to fetch it into.
            Located::There(_) => Ok(0),
        }
    }

    fn has_lost_server(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.group.has_lost_one())
    }

    fn permits(&self, file: &Located) -> Option<Credits> {
        match file {
            Located::Here(_) => None,
            Located::There(file) => Some(file.permits()),
        }
    }

    fn name_in_view(&self, file: &Located) -> Option<Vec<u8>> {
        let (Located::There(file), Some(server)) = (file, &self.server) else { return None };
        mount::mapped(&server.mounts, &server.path_of(file)?)
    }

    fn seen_by(&self, session: u32, rank: Option<u32>) -> Self {
        Self { process: Some(process_of(session)), rank, ..self.clone() }
    }

    async fn leave(&self) {
        if let Some(server) = &self.server {
            server.group.leave().await;
        }
    }

    fn describe(&self) -> String {
        self.machine.describe()
    }
}
