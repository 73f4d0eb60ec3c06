//! All files a daemon serves: those of its machine, and those of a server below mapped folders.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CString, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    rc::{Rc, Weak},
};

use executor::{Credits, Handle};
use rustix::{
    fs::{Mode, SeekFrom},
    io::Errno,
};
use uring::Buffers;
use wire::{
    FileSystem, FoundLock, Listing, NameKind, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET,
    Status,
};

use super::{
    copy,
    dial::Dial,
    file::RemoteFile,
    group::Group,
    links,
    located::Located,
    mirror::{self, Listings},
    mount::{self, Mount},
    opened::exchanges,
    own::Own,
    pipe::{Pipe, StandIns},
};
use crate::{
    locks::{LockCall, process_of},
    names::{Answer, Attributes, Identity, NameCall, OpenCall},
    reactor::Reactor,
    storage::{Machine, Storage},
};

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
    /// The job's folder.
    pub(crate) folder: PathBuf,
    pub(crate) handle: Handle,
    pub(crate) reactor: Reactor,
    pub(crate) pipes: RefCell<Vec<Weak<Pipe>>>,
    pub(crate) stand_ins: StandIns,
    pub(crate) listings: Listings,
    pub(crate) own: Own,
}

impl Mounts {
    pub(crate) fn new(machine: Machine, server: Option<Rc<Servers>>) -> Self {
        Self { machine, server, process: None, rank: None }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Says whether a client sees the mounts that this daemon sees.
    pub(crate) fn shares_mounts(&self, session: u32, shares: bool) {
        if let Some(server) = &self.server {
            server.listings.shares_mounts(process_of(session), shares);
        }
    }

    /// Returns the files that undelegated programs have written into mapped folders, and where they
    /// are kept; known once the server was left.
    pub(crate) fn strays(&self) -> BTreeMap<String, String> {
        self.server.as_ref().map(|server| server.listings.kept()).unwrap_or_default()
    }

    /// Has everything that programs have written to pipes at the server.
    async fn settle(&self) {
        if let Some(server) = &self.server {
            server.settle().await;
        }
    }

    /// All names in a folder below a mapped one.
    ///
    /// # Errors
    ///
    /// As listing it; `ENOENT`: it is below none.
    pub(crate) async fn list(&self, path: &CString) -> io::Result<Vec<(NameKind, Vec<u8>)>> {
        let (server, remote) = self.find(path).ok_or(Errno::NOENT)?;
        let bytes = server.list(self.rank, &remote).await?;
        Ok(wire::names(&bytes).map(|(kind, name)| (kind, name.to_vec())).collect())
    }

    /// A remote file with everything in it that programs have written to pipes.
    async fn settled<'a>(&self, file: &'a RemoteFile<Dial>) -> &'a RemoteFile<Dial> {
        self.settle().await;
        file
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
                *path = remote;
                there = Some(server);
            }
        }
        Ok(there.map(|server| (server, call)))
    }
}

impl Servers {
    /// Makes the folder of all mirrors; `AlreadyExists`: the user has something there.
    pub(crate) fn make_mirrors(&self) -> io::Result<()> {
        mirror::prepare(&self.folder)
    }

    /// Makes a folder that is mapped, and those above it, with this mode.
    ///
    /// # Errors
    ///
    /// Why it cannot be one.
    pub(crate) async fn make_folder(&self, remote: &Path, mode: Mode) -> io::Result<()> {
        let (mut path, mut why) = (PathBuf::from("/"), None);
        for part in remote {
            path.push(part);
            let path = CString::new(path.as_os_str().as_bytes())?;
            match self.group.name(None, NameCall::MakeDir { path, mode: mode.bits() }).await {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    why.get_or_insert(error);
                }
                _ => {}
            }
        }
        // What is there already may be no folder; and a server that was killed in the middle may
        // have made one, and not know.
        let path = CString::new(path.as_os_str().as_bytes())?;
        let listed = self.group.name(None, NameCall::ReadDir { path, from: 0, room: 0 }).await;
        listed.map(drop).map_err(|error| why.unwrap_or(error))
    }

    /// Has everything that programs have written to pipes at the server.
    async fn settle(&self) {
        let pipes: Vec<_> = {
            let mut pipes = self.pipes.borrow_mut();
            pipes.retain(|pipe| pipe.strong_count() > 0);
            pipes.iter().filter_map(Weak::upgrade).collect()
        };
        for pipe in pipes {
            pipe.settle().await;
        }
    }

    /// Where those who were handed an open file have left its position: `EBUSY` while there are
    /// any, `EINVAL` when there were none.
    async fn take_back(&self, file: &Rc<RemoteFile<Dial>>) -> io::Result<u64> {
        self.settle().await;
        if Pipe::find(&self.pipes.borrow(), file).is_some() {
            return Err(Errno::BUSY.into());
        }
        match file.take_left_at().ok_or(Errno::INVAL)? {
            u64::MAX => Ok(file.status().await?.size),
            at => Ok(at),
        }
    }

    /// Moves the position of those who were handed an open file to write it.
    async fn seek_pipe(
        &self,
        file: &Rc<RemoteFile<Dial>>,
        offset: i64,
        whence: u32,
    ) -> io::Result<u64> {
        self.settle().await;
        let pipe = Pipe::find(&self.pipes.borrow(), file).ok_or(Errno::SPIPE)?;
        let from = |at: u64| at.checked_add_signed(offset).ok_or(Errno::INVAL);
        let unsigned = u64::try_from(offset).map_err(|_| Errno::NXIO);
        let at = match whence {
            SEEK_SET => from(0)?,
            SEEK_CUR if pipe.position() != u64::MAX => from(pipe.position())?,
            SEEK_CUR | SEEK_END => from(file.status().await?.size)?,
            SEEK_DATA => file.seek(SeekFrom::Data(unsigned?)).await?,
            SEEK_HOLE => file.seek(SeekFrom::Hole(unsigned?)).await?,
            _ => return Err(Errno::INVAL.into()),
        };
        i64::try_from(at).map_err(|_| Errno::INVAL)?;
        pipe.set_position(at);
        Ok(at)
    }

    /// The names in a remote folder, as [`wire::names`] takes them.
    async fn list(&self, rank: Option<u32>, remote: &CString) -> io::Result<Vec<u8>> {
        let (mut names, mut from) = (Vec::new(), 0);
        loop {
            let call = NameCall::ReadDir { path: remote.clone(), from, room: 0 };
            let part = self.group.name(rank, call).await?.bytes;
            let Some(part) = Listing::decode(&part) else { return Ok(names) };
            from = part.next;
            names.extend(part.names);
        }
    }

    /// A local folder with the names of a remote one.
    async fn mirror(
        &self,
        machine: &Machine,
        rank: Option<u32>,
        local: &CString,
        remote: CString,
    ) -> io::Result<Answer> {
        let (listings, number) = (self.listings.clone(), self.listings.number());
        let listing = match self.list(rank, &remote).await {
            // It can be entered all the same.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            listed => Some(listed?),
        };
        let local = self.real_path(machine, rank, mount::local(local)).await?;
        let mirror = mirror::path(&self.folder, local.as_os_str().as_bytes());
        let path = mirror.as_os_str().as_bytes().to_vec();
        machine.call(move || listings.show(&mirror, listing.as_deref(), number)).await?;
        Ok(Answer::counted(path))
    }

    /// Where a folder is once links are followed; its own name where they lead out of the map.
    async fn real_path(
        &self,
        machine: &Machine,
        rank: Option<u32>,
        path: &Path,
    ) -> io::Result<PathBuf> {
        let top = mount::of(&self.mounts, path).map_or(path, |mount| &mount.local);
        let (job, folder) = (self.folder.clone(), path.to_owned());
        let known = machine.call(move || Ok(mirror::known(&job, &folder))).await?;
        let known = if known.starts_with(top) { &known } else { top };
        let text_of = async |path: &Path| {
            let path = mount::remote(&self.mounts, path)?;
            let text = self.group.name(rank, NameCall::ReadLink { path }).await.ok()?.bytes;
            Some(PathBuf::from(OsString::from_vec(text)))
        };
        Ok(links::followed((top, known), path, text_of).await.unwrap_or_else(|| path.to_owned()))
    }
}

impl Storage for Mounts {
    type File = Located;

    fn identify(&self, file: &Located) -> Option<Identity> {
        match file {
            Located::Here(file) => self.machine.identify(file),
            Located::There(_) => None,
        }
    }

    async fn status(&self, file: &Located) -> io::Result<Status> {
        match file {
            Located::Here(file) => self.machine.status(file).await,
            Located::There(file) => self.settled(file).await.status().await,
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

    async fn read(&self, file: &Located, at: u64, into: Buffers) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.read(file, at, into).await,
            // On the heap: the future of a local file stays small.
            Located::There(file) => {
                Box::pin(async { self.settled(file).await.read(at, &into).await }).await
            }
        }
    }

    async fn write(&self, file: &Located, at: u64, from: Buffers) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.write(file, at, from).await,
            Located::There(file) => {
                Box::pin(async { self.settled(file).await.write(at, &from).await }).await
            }
        }
    }

    async fn sync(&self, file: &Located, data_only: bool) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.sync(file, data_only).await,
            Located::There(file) => self.settled(file).await.sync(data_only).await,
        }
    }

    async fn fetch(&self, file: &Located, at: u64, len: usize) -> io::Result<usize> {
        match file {
            Located::Here(file) => self.machine.fetch(file, at, len).await,
            // There is no page cache here to fetch it into.
            Located::There(_) => Ok(0),
        }
    }

    async fn truncate(&self, file: &Located, len: u64) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.truncate(file, len).await,
            Located::There(file) => self.settled(file).await.truncate(len).await,
        }
    }

    async fn allocate(&self, file: &Located, mode: u32, at: u64, len: u64) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.allocate(file, mode, at, len).await,
            Located::There(file) => self.settled(file).await.allocate(mode, at, len).await,
        }
    }

    async fn seek(&self, file: &Located, to: SeekFrom) -> io::Result<u64> {
        match file {
            Located::Here(file) => self.machine.seek(file, to).await,
            Located::There(file) => match (to, &self.server) {
                (SeekFrom::Current(_), Some(server)) => server.take_back(file).await,
                _ => self.settled(file).await.seek(to).await,
            },
        }
    }

    async fn seek_stand_in(&self, file: &Located, offset: i64, whence: u32) -> io::Result<u64> {
        match (file, &self.server) {
            (Located::There(file), Some(server)) => server.seek_pipe(file, offset, whence).await,
            _ => Err(Errno::SPIPE.into()),
        }
    }

    async fn set(&self, file: &Located, what: Attributes) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.set(file, what).await,
            Located::There(file) => self.settled(file).await.set(what).await,
        }
    }

    async fn file_system(&self, file: &Located) -> io::Result<FileSystem> {
        match file {
            Located::Here(file) => self.machine.file_system(file).await,
            Located::There(file) => file.file_system().await,
        }
    }

    async fn stand_in(&self, file: &Located, at: u64, is_copy: bool) -> io::Result<Located> {
        let (Located::There(remote), Some(server)) = (file, &self.server) else {
            return Ok(file.clone());
        };
        if is_copy {
            server.settle().await;
            return copy::of(remote, at, &self.machine, &server.folder).await.map(Located::Here);
        }
        let (handle, reactor) = (&server.handle, &server.reactor);
        if let Some(pipe) = Pipe::find(&server.pipes.borrow(), remote) {
            return uring::File::new(pipe.another_end()?).map(Located::Here);
        }
        let at = remote.take_left_at().unwrap_or(at);
        let (pipe, end) = Pipe::start(handle, reactor, &server.stand_ins, (Rc::clone(remote), at))?;
        server.pipes.borrow_mut().push(pipe);
        uring::File::new(end).map(Located::Here)
    }

    async fn open(&self, mut call: OpenCall) -> io::Result<(Located, Status)> {
        let Some((server, remote)) = self.find(&call.path) else {
            let (file, status) = self.machine.open(call).await?;
            return Ok((Located::Here(file), status));
        };
        server.settle().await;
        call.path = remote;
        let (file, status) = server.group.open((self.process, self.rank), call).await?;
        Ok((Located::There(file), status))
    }

    async fn close(&self, file: Located) -> io::Result<()> {
        match file {
            Located::Here(file) => self.machine.close(file).await,
            Located::There(file) => RemoteFile::close(file).await,
        }
    }

    async fn lock(&self, file: &Located, call: LockCall) -> io::Result<()> {
        match file {
            Located::Here(_) => Err(Errno::NOSYS.into()),
            Located::There(file) => self.settled(file).await.lock(call).await,
        }
    }

    async fn find_lock(&self, file: &Located, call: LockCall) -> io::Result<Option<FoundLock>> {
        match file {
            Located::Here(_) => Err(Errno::NOSYS.into()),
            Located::There(file) => self.settled(file).await.find_lock(call).await,
        }
    }

    fn name_in_view(&self, file: &Located) -> Option<Vec<u8>> {
        let (Located::There(file), Some(server)) = (file, &self.server) else { return None };
        let path = server.own.path_of(file).filter(|_| server.listings.has_view(self.process))?;
        mount::mapped(&server.mounts, &path)
    }

    async fn adopt(&self, stand_in: Identity) -> io::Result<Located> {
        let server = self.server.as_ref().ok_or(Errno::NOENT)?;
        let found = {
            let pipes = server.pipes.borrow();
            let mut pipes = pipes.iter().filter_map(Weak::upgrade);
            pipes.find_map(|pipe| pipe.file_of(stand_in))
        };
        match found {
            Some(file) => Ok(Located::There(file)),
            // Another core has it, which alone could lock it.
            None if server.stand_ins.has(stand_in) => Err(Errno::NOLCK.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn seen_by(&self, session: u32, rank: Option<u32>) -> Self {
        Self { process: Some(process_of(session)), rank, ..self.clone() }
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        let Some((server, moved)) = self.moved(&call)? else {
            return self.machine.name(call).await;
        };
        server.settle().await;
        match (call, moved) {
            (NameCall::Mirror { path }, _) if server.listings.has_view(self.process) => {
                Ok(Answer::counted(path.into_bytes()))
            }
            (NameCall::Mirror { path: local }, NameCall::Mirror { path: remote }) => {
                server.mirror(&self.machine, self.rank, &local, remote).await
            }
            // The lane's buffer has less room than a frame, but nobody lists a remote folder so.
            (NameCall::ReadDir { .. }, _) => Err(Errno::NOTSUP.into()),
            (NameCall::Rename { from, to, flags }, moved) => {
                let answer = server.group.name(self.rank, moved).await?;
                let mirror = |path: &CString| mirror::path(&server.folder, path.to_bytes());
                let (from, to) = (mirror(&from), mirror(&to));
                let rename = move || {
                    if exchanges(flags) {
                        mirror::exchange(&from, &to);
                    } else {
                        mirror::rename(&from, &to);
                    }
                    Ok(())
                };
                self.machine.call(rename).await?;
                Ok(answer)
            }
            (_, moved) => server.group.name(self.rank, moved).await,
        }
    }

    async fn leave(&self) {
        if let Some(server) = &self.server {
            server.settle().await;
            server.group.leave().await;
            server.listings.remove_all(&server.folder);
        }
    }

    fn describe(&self) -> String {
        self.machine.describe()
    }
}
