//! One multifile that holds the files of a folder: its names, its streams, and who has which.
//!
//! # Order
//!
//! Names change in memory at once, so calls see each other, and a call is answered when its record
//! is in the stream of names. Space for the record is found before anything changes, so a full disk
//! refuses the call as a whole. A file gets a task with its first byte; the record that says so is
//! written before the byte. A task whose file is gone is empty before another file gets it.
//!
//! A multifile that is only read is not changed at all.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    fs, future,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use executor::Notify;
use multifile::{
    Disk, Growing, Held, Options, Reader,
    catalogue::{self, Catalogue, Change, Node, Time, Unreadable},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{getegid, geteuid},
};
use uring::Buffer;

use super::{
    stream::{Member, Stream, Turn},
    tree::{FOLDER, Tree, User},
};
use crate::{mail::lock, storage::Machine};

/// Tasks of a physical file that is made, and bytes of their chunks: what is drained at a time.
pub(super) const SHAPE: (u32, u64) = (1024, 256 << 10);
/// Bytes that are reserved for names at a time.
const NAMES_AHEAD: u64 = 64 << 10;

/// A multifile as the storage of a folder's files.
pub(crate) struct Volume {
    machine: Machine,
    path: PathBuf,
    /// Others that would write it are kept out as long as this is open.
    _lock: OwnedFd,
    growing: Arc<Mutex<Option<Growing<Disk>>>>,
    is_begun: Cell<bool>,
    is_over: Cell<bool>,
    /// Changes that are being made.
    changing: Cell<usize>,
    settled: Notify,
    members: RefCell<Vec<Rc<Member>>>,
    /// By task.
    streams: RefCell<Vec<Rc<Stream>>>,
    pub(super) tree: RefCell<Tree>,
    /// Records that are not in the stream of names yet, and how many bytes of records there were.
    queued: RefCell<Vec<u8>>,
    queued_len: Cell<u64>,
    written_len: Cell<u64>,
    reserved_len: Cell<u64>,
    users: Rc<Users>,
    /// To write names, to give away a task, and to begin or end.
    names: Turn,
    tasks: Turn,
    change: Turn,
}

/// Who has which inode open, and which task.
#[derive(Debug, Default)]
struct Users {
    live: RefCell<HashMap<u64, Weak<Live>>>,
    /// Tasks that nobody has, which may have bytes of who had them.
    free: RefCell<BTreeSet<u64>>,
    /// When inodes were written, of those whose names do not say it yet.
    written: RefCell<HashMap<u64, Time>>,
}

impl Users {
    /// An inode as it is, also where the names do not say it yet.
    fn now(&self, inode: u64, node: Node) -> Node {
        let [accessed, modified, changed] = node.times;
        let written = self.written.borrow().get(&inode).copied();
        let times = [accessed, written.unwrap_or(modified), written.unwrap_or(changed)];
        Node { times, ..node }
    }
}

/// An inode that somebody has open.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) inode: u64,
    /// What it was as its last name went.
    gone: RefCell<Option<Node>>,
    /// A file in memory that has the inode's locks.
    pub(super) anchor: RefCell<Option<uring::File>>,
    users: Rc<Users>,
}

impl Drop for Live {
    fn drop(&mut self) {
        match self.gone.get_mut() {
            Some(gone) => self.users.free.borrow_mut().extend(gone.task),
            None => drop(self.users.live.borrow_mut().remove(&self.inode)),
        }
    }
}

/// A change that is being made: the multifile is not closed before it is.
pub(super) struct Changing<'a>(&'a Volume);

impl<'a> Changing<'a> {
    fn new(volume: &'a Volume) -> Self {
        volume.changing.set(volume.changing.get() + 1);
        Self(volume)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.set(self.0.changing.get() - 1);
        self.0.settled.notify_all();
    }
}

/// A multifile that was opened, on the way to its executor.
struct Opened {
    lock: OwnedFd,
    growing: Growing<Disk>,
    lens: Vec<u64>,
    catalogue: Catalogue,
    is_new: bool,
}

fn options(path: &Path) -> Options {
    let name = path.file_name().unwrap_or_default();
    // What is on the disk was asked for by `fsync`, as with any file.
    Options { name: Some(name.as_encoded_bytes().to_vec()), ..Options::default() }
}

/// Opens a multifile, or makes it.
fn open(path: &Path, shape: (u32, u64)) -> io::Result<Opened> {
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another daemon or server writes it",
            ));
        }
        // Some file systems know no locks.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let (disk, options) = (Disk::new(), options(path));
    let is_new = file.metadata()?.len() == 0;
    if is_new {
        let growing = Growing::create(&disk, path, shape, &options)?;
        let (number, now) = (RandomState::new().build_hasher().finish(), now());
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let root = Node { mode: FOLDER | 0o755, user, group, times: [now; 3], ..Node::default() };
        let lens = vec![0; shape.0 as usize];
        let catalogue = Catalogue::new(number, root);
        return Ok(Opened { lock: file.into(), growing, lens, catalogue, is_new });
    }
    let opened = Growing::open(&disk, path, shape, &options);
    let (growing, Held { mut lens, was_repaired }) = opened?;
    if was_repaired {
        tracing::warn!("{} was never closed, and has been repaired", path.display());
    }
    let reader = Reader::open(&disk, path)?;
    let mut names = Vec::new();
    io::Read::read_to_end(&mut reader.stream(catalogue::TASK)?, &mut names)?;
    let (catalogue, len) = Catalogue::read(&names).map_err(|why| {
        let why = match why {
            Unreadable::NoNames => "it has no names of files: `kakehi multifile split` reads it",
            Unreadable::Version => "a later version of Kakehi wrote it",
            Unreadable::Damaged => "its names are damaged: `kakehi multifile split` reads the rest",
        };
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    if let Some(names) = lens.first_mut() {
        *names = len as u64;
    }
    Ok(Opened { lock: file.into(), growing, lens, catalogue, is_new })
}

pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

impl Volume {
    /// Opens the multifile at `path`, or makes it; the physical files that it gets have this shape.
    ///
    /// # Errors
    ///
    /// Why it cannot hold the files of a folder.
    pub(crate) async fn open(
        machine: Machine,
        path: &Path,
        shape: (u32, u64),
    ) -> io::Result<Rc<Self>> {
        let wanted = path.to_owned();
        let opened = machine.call(move || open(&wanted, shape)).await?;
        let me = User { user: geteuid().as_raw(), group: getegid().as_raw() };
        let tree = Tree::new(opened.catalogue, me);
        let used: BTreeSet<u64> = tree.tasks().collect();
        let count = opened.lens.len() as u64;
        if used.iter().any(|task| *task == 0 || *task >= count) {
            let why = "its names speak of tasks that it does not have";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let free = (1..count).filter(|task| !used.contains(task)).collect();
        let volume = Self {
            machine,
            path: path.to_owned(),
            _lock: opened.lock,
            growing: Arc::new(Mutex::new(Some(opened.growing))),
            is_begun: Cell::new(false),
            is_over: Cell::new(false),
            changing: Cell::new(0),
            settled: Notify::new(),
            members: RefCell::default(),
            streams: RefCell::default(),
            tree: RefCell::new(tree),
            queued: RefCell::default(),
            queued_len: Cell::new(0),
            written_len: Cell::new(0),
            reserved_len: Cell::new(0),
            users: Rc::new(Users { free: RefCell::new(free), ..Users::default() }),
            names: Turn::default(),
            tasks: Turn::default(),
            change: Turn::default(),
        };
        volume.take_members(&opened.lens)?;
        if opened.is_new {
            volume.take_journals()?;
            volume.is_begun.set(true);
            let head = volume.tree.borrow().stream();
            volume.append(head).await?;
        }
        Ok(Rc::new(volume))
    }

    /// Takes physical files in that are not known yet, whose streams have these lengths, or none.
    fn take_members(&self, lens: &[u64]) -> io::Result<()> {
        let growing = lock(&self.growing);
        let growing = growing.as_ref().ok_or(Errno::IO)?;
        let (mut members, mut streams) = (self.members.borrow_mut(), self.streams.borrow_mut());
        let mut lens = lens.iter().copied();
        for file in u32::try_from(members.len()).unwrap_or(u32::MAX)..growing.file_count() {
            let data = growing.file(file).ok_or(Errno::IO)?.try_clone()?;
            let (data_at, end) = (growing.end_of(file, 0)?, growing.end_of(file, 1)?);
            let places = (0..growing.task_count(file)).map(|task| {
                let place = (growing.place(file, task)?, growing.key(file, task)?);
                Ok((place, lens.next().unwrap_or(0)))
            });
            let places = places.collect::<io::Result<Vec<_>>>()?;
            let rows = places.iter().map(|((place, _), len)| {
                len.checked_div(place.chunk_len).map_or(0, |_| len.div_ceil(place.chunk_len))
            });
            let rows = rows.max().unwrap_or(0);
            let member = Rc::new(Member::new(
                uring::File::new(data.into())?,
                (data_at, end - data_at),
                rows,
            ));
            members.push(Rc::clone(&member));
            let stream = |(place, len)| Rc::new(Stream::new(Rc::clone(&member), place, len));
            streams.extend(places.into_iter().map(stream));
        }
        Ok(())
    }

    fn take_journals(&self) -> io::Result<()> {
        let growing = lock(&self.growing);
        let growing = growing.as_ref().ok_or(Errno::IO)?;
        for (file, member) in (0u32..).zip(&*self.members.borrow()) {
            let journal = growing.journal(file).ok_or(Errno::IO)?.try_clone()?;
            member.begin(uring::File::new(journal.into())?);
        }
        Ok(())
    }

    /// Before a change, and until that is made: from the first one on the multifile counts as
    /// unclosed. Once it is closed nothing is changed, and no change is answered: who asked for it
    /// asks the next server.
    pub(super) async fn begin(&self) -> io::Result<Changing<'_>> {
        if self.is_over.get() {
            future::pending::<()>().await;
        }
        let changing = Changing::new(self);
        if self.is_begun.get() {
            return Ok(changing);
        }
        let _taken = self.change.take().await;
        if !self.is_begun.get() {
            let (growing, lens) = (Arc::clone(&self.growing), self.lens());
            self.machine
                .call(move || Ok(lock(&growing).as_mut().ok_or(Errno::IO)?.begin(&lens)?))
                .await?;
            self.take_journals()?;
            self.is_begun.set(true);
        }
        Ok(changing)
    }

    fn lens(&self) -> Vec<u64> {
        self.streams.borrow().iter().map(|stream| stream.len()).collect()
    }

    // ---- names

    /// Makes a change of names, if `change` finds that it may be made; on return it is written.
    pub(super) async fn change<T>(
        &self,
        change: impl FnOnce(&Tree) -> Result<(T, Vec<Change>), Errno>,
    ) -> io::Result<T> {
        self.change_in(&self.begin().await?, change).await
    }

    /// The same within a change.
    async fn change_in<T>(
        &self,
        _: &Changing<'_>,
        change: impl FnOnce(&Tree) -> Result<(T, Vec<Change>), Errno>,
    ) -> io::Result<T> {
        self.reserve_names().await?;
        let (value, changes) = change(&self.tree.borrow())?;
        if changes.is_empty() {
            return Ok(value);
        }
        let gone = self.tree.borrow_mut().apply(&changes);
        for (inode, node) in gone {
            let node = self.users.now(inode, node);
            self.users.written.borrow_mut().remove(&inode);
            let live = self.users.live.borrow_mut().remove(&inode);
            match live.and_then(|live| live.upgrade()) {
                Some(live) => drop(live.gone.borrow_mut().replace(node)),
                None => self.users.free.borrow_mut().extend(node.task),
            }
        }
        self.append(catalogue::encode(&changes)).await?;
        Ok(value)
    }

    /// Has space for what the next records need.
    async fn reserve_names(&self) -> io::Result<()> {
        let waiting = self.queued_len.get() - self.written_len.get();
        let names = self.stream(catalogue::TASK as u64)?;
        if self.reserved_len.get() >= names.len() + waiting + NAMES_AHEAD / 2 {
            return Ok(());
        }
        let _taken = self.change.take().await;
        let (end, ahead) = (names.len(), waiting + NAMES_AHEAD);
        names.reserve(&self.machine, end, end + ahead).await?;
        self.reserved_len.set(end + ahead);
        Ok(())
    }

    /// Appends to the stream of names, together with what others append.
    async fn append(&self, record: Vec<u8>) -> io::Result<()> {
        let end = self.queued_len.get() + record.len() as u64;
        self.queued_len.set(end);
        self.queued.borrow_mut().extend(record);
        while self.written_len.get() < end {
            let _taken = self.names.take().await;
            if self.written_len.get() >= end {
                break;
            }
            let bytes = std::mem::take(&mut *self.queued.borrow_mut());
            let written = self.append_now(&bytes).await;
            self.written_len.set(self.written_len.get() + written.as_ref().map_or(0, |len| *len));
            if let Err(error) = written {
                // Whoever comes next tries again.
                let later = std::mem::take(&mut *self.queued.borrow_mut());
                *self.queued.borrow_mut() = [bytes, later].concat();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn append_now(&self, bytes: &[u8]) -> io::Result<u64> {
        let names = self.stream(catalogue::TASK as u64)?;
        let (buffer, at) = (Buffer::from(bytes.to_vec()), names.len());
        let mut done = 0;
        while done < bytes.len() {
            let rest = buffer.suffix(done).into();
            match names.write(&self.machine, at + done as u64, &rest).await {
                Ok(len) if len > 0 => done += len,
                failed => {
                    // A record that is not whole ends the stream for who reads it.
                    names.resize(&self.machine, at).await.ok();
                    return Err(failed.err().unwrap_or_else(|| Errno::NOSPC.into()));
                }
            }
        }
        Ok(bytes.len() as u64)
    }

    // ---- inodes and their tasks

    /// An inode that is open from now on.
    pub(super) fn live(&self, inode: u64) -> Rc<Live> {
        let mut all = self.users.live.borrow_mut();
        if let Some(live) = all.get(&inode).and_then(Weak::upgrade) {
            return live;
        }
        let live = Rc::new(Live {
            inode,
            gone: RefCell::default(),
            anchor: RefCell::default(),
            users: Rc::clone(&self.users),
        });
        all.insert(inode, Rc::downgrade(&live));
        live
    }

    /// What an open inode is.
    pub(super) fn node(&self, live: &Live) -> io::Result<Node> {
        let named = self.tree.borrow().node(live.inode).cloned();
        let node = live.gone.borrow().clone().or(named).ok_or(Errno::STALE)?;
        Ok(self.users.now(live.inode, node))
    }

    /// What an inode is that has a name.
    pub(super) fn named(&self, inode: u64) -> io::Result<Node> {
        let node = self.tree.borrow().node(inode).cloned().ok_or(Errno::NOENT)?;
        Ok(self.users.now(inode, node))
    }

    /// An open inode has been written.
    pub(super) fn wrote(&self, live: &Live) {
        let now = now();
        match &mut *live.gone.borrow_mut() {
            Some(node) => node.times = [node.times[0], now, now],
            None => drop(self.users.written.borrow_mut().insert(live.inode, now)),
        }
    }

    /// Names that an open inode has.
    pub(super) fn link_count(&self, live: &Live) -> u64 {
        if live.gone.borrow().is_some() { 0 } else { self.tree.borrow().link_count(live.inode) }
    }

    /// Changes what an open inode is.
    pub(super) async fn set(
        &self,
        live: &Live,
        set: impl FnOnce(&Tree, &Node) -> Result<Node, Errno>,
    ) -> io::Result<()> {
        self.set_in(&self.begin().await?, live, set).await
    }

    async fn set_in(
        &self,
        changing: &Changing<'_>,
        live: &Live,
        set: impl FnOnce(&Tree, &Node) -> Result<Node, Errno>,
    ) -> io::Result<()> {
        let was = self.node(live)?;
        if live.gone.borrow().is_some() {
            let node = set(&self.tree.borrow(), &was)?;
            *live.gone.borrow_mut() = Some(node);
            return Ok(());
        }
        let change = |tree: &Tree| Ok(((), vec![Change::Node(live.inode, set(tree, &was)?)]));
        // What is written meanwhile is later than this.
        self.users.written.borrow_mut().remove(&live.inode);
        self.change_in(changing, change).await
    }

    /// Size of a node, bytes.
    pub(super) fn size(&self, node: &Node) -> u64 {
        match node.task {
            Some(task) => self.stream(task).map_or(0, |stream| stream.len()),
            None => node.text.len() as u64,
        }
    }

    fn stream(&self, task: u64) -> io::Result<Rc<Stream>> {
        let index = usize::try_from(task).unwrap_or(usize::MAX);
        self.streams.borrow().get(index).cloned().ok_or_else(|| Errno::IO.into())
    }

    /// The stream of an open file, if it has one.
    pub(super) fn stream_of(&self, live: &Live) -> io::Result<Option<Rc<Stream>>> {
        self.node(live)?.task.map(|task| self.stream(task)).transpose()
    }

    /// The stream of an open file, which gets one.
    pub(super) async fn stream_for(
        &self,
        changing: &Changing<'_>,
        live: &Live,
    ) -> io::Result<Rc<Stream>> {
        if let Some(stream) = self.stream_of(live)? {
            return Ok(stream);
        }
        let _taken = self.tasks.take().await;
        if let Some(stream) = self.stream_of(live)? {
            return Ok(stream);
        }
        let task = self.free_task().await?;
        let give = |_: &Tree, node: &Node| Ok(Node { task: Some(task), ..node.clone() });
        let given = self.set_in(changing, live, give).await;
        if given.is_err() && self.node(live).is_ok_and(|node| node.task.is_none()) {
            self.users.free.borrow_mut().insert(task);
        }
        given?;
        self.stream(task)
    }

    /// A task that nobody has, and without a byte.
    async fn free_task(&self) -> io::Result<u64> {
        loop {
            let Some(task) = self.users.free.borrow_mut().pop_first() else {
                self.add_member().await?;
                continue;
            };
            let stream = self.stream(task)?;
            if stream.has_room() {
                stream.resize(&self.machine, 0).await?;
                return Ok(task);
            }
        }
    }

    async fn add_member(&self) -> io::Result<()> {
        let _taken = self.change.take().await;
        let growing = Arc::clone(&self.growing);
        self.machine.call(move || Ok(lock(&growing).as_mut().ok_or(Errno::IO)?.add()?)).await?;
        let before = self.streams.borrow().len() as u64;
        self.take_members(&[])?;
        self.take_journals()?;
        self.users.free.borrow_mut().extend(before..self.streams.borrow().len() as u64);
        Ok(())
    }

    // ---- all of it

    /// Has the names say when an open file was written.
    pub(super) async fn note_times(&self, live: &Live) -> io::Result<()> {
        if !self.users.written.borrow().contains_key(&live.inode) {
            return Ok(());
        }
        self.set(live, |_, node| Ok(node.clone())).await
    }

    /// Makes durable what is in a stream, and all names.
    pub(super) async fn sync(&self, stream: Option<&Stream>, data_only: bool) -> io::Result<()> {
        let names = Rc::clone(self.stream(catalogue::TASK as u64)?.member());
        names.sync(&self.machine, data_only).await?;
        match stream {
            Some(stream) if !Rc::ptr_eq(stream.member(), &names) => {
                stream.member().sync(&self.machine, data_only).await
            }
            _ => Ok(()),
        }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A file in the file system of the multifile.
    pub(super) fn physical(&self) -> io::Result<uring::File> {
        let members = self.members.borrow();
        members.first().map(|member| member.data.clone()).ok_or_else(|| Errno::IO.into())
    }

    /// Closes the multifile, if it was changed: from here on it is read as any other. Nothing can
    /// be changed any more.
    ///
    /// # Errors
    ///
    /// Those of writing: the multifile is left to `kakehi multifile repair`.
    pub(crate) async fn close(&self) -> io::Result<()> {
        if !self.is_begun.get() || self.is_over.get() {
            return Ok(());
        }
        self.is_over.set(true);
        self.settled.until(|| self.changing.get() == 0).await;
        let times = self.all_times();
        self.tree.borrow_mut().apply(&times);
        if !times.is_empty() {
            self.append(catalogue::encode(&times)).await?;
        }
        let waiting: Vec<u64> = self.users.free.borrow().iter().copied().collect();
        for task in waiting {
            self.stream(task)?.resize(&self.machine, 0).await?;
        }
        let (growing, lens) = (Arc::clone(&self.growing), self.lens());
        let closing = move || match lock(&growing).take() {
            Some(growing) => Ok(growing.close(&lens)?),
            None => Ok(()),
        };
        self.machine.call(closing).await
    }

    /// When all inodes were written whose names do not say it.
    fn all_times(&self) -> Vec<Change> {
        let written = std::mem::take(&mut *self.users.written.borrow_mut());
        let tree = self.tree.borrow();
        let said = written.into_iter().filter_map(|(inode, time)| {
            let node = tree.node(inode)?.clone();
            Some(Change::Node(inode, Node { times: [node.times[0], time, time], ..node }))
        });
        said.collect()
    }

    /// What it is, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
