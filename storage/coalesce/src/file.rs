//! An open file whose bytes are in a stream of a multifile.

use std::{
    cell::{Cell, OnceCell},
    io,
    ops::Range,
    rc::Rc,
    slice,
};

use executor::Credit;
use multifile::catalogue::Time;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, OFlags, SeekFrom, memfd_create},
    io::Errno,
};
use storage::names::{Answer, Attributes, FileCall, OpenCall, reopen};
use uring::Buffers;
use wire::{NewMode, Status};

use super::{
    inodes::Live,
    intake::Intake,
    names::status_of,
    opening::now,
    places::Disturbed,
    tree::{Found, PERMISSIONS, REGULAR, Tree, Wish},
    volume::{Changing, Volume},
};

/// An open file.
pub struct Packed {
    volume: Rc<Volume>,
    live: Rc<Live>,
    /// As long as it can be written.
    _disturbed: Option<Disturbed>,
    writes: bool,
    appends: Cell<bool>,
    /// To lock by; each open file has its own.
    anchor: OnceCell<uring::File>,
}

impl Packed {
    /// Opens a file by its name.
    pub(super) async fn open(
        volume: &Rc<Volume>,
        call: &OpenCall,
        intake: Option<&Intake>,
    ) -> io::Result<Self> {
        let flags = OFlags::from_bits_retain(call.flags);
        if flags.intersects(OFlags::PATH | OFlags::TMPFILE) {
            return Err(Errno::NOTSUP.into());
        }
        let inode = loop {
            let found = volume.tree.borrow().find_at(&call.path, call.follows())?;
            match found.inode {
                Some(_) if call.is_exclusive() => return Err(Errno::EXIST.into()),
                Some(inode) => break inode,
                None if flags.contains(OFlags::CREATE) => {
                    let _reserved = match intake {
                        Some(intake) => {
                            let made = slice::from_ref(&found);
                            Some(intake.prepare(volume, made, false).await)
                        }
                        None => None,
                    };
                    if let Some(made) = Self::create(volume, call, &found).await? {
                        return Ok(made);
                    }
                }
                None => return Err(Errno::NOENT.into()),
            }
        };
        Self::check(volume, inode, flags)?;
        let file = Self::of(volume, inode, flags);
        if flags.contains(OFlags::TRUNC) {
            file.resize(0).await?;
        }
        Ok(file)
    }

    /// Makes a file at `at`, where the path leads; `None`: it leads to something else by now.
    async fn create(volume: &Rc<Volume>, call: &OpenCall, at: &Found) -> io::Result<Option<Self>> {
        let flags = OFlags::from_bits_retain(call.flags);
        let permissions = NewMode::decode(call.mode).masked() & PERMISSIONS;
        let changing = volume.begin().await?;
        let made = volume.change_in(&changing, |tree| {
            let found = tree.find_at(&call.path, call.follows())?;
            match found.inode {
                None if found == *at => {
                    // It gets a task with its first bytes: how many there are says which.
                    let (inode, changes) = tree.make(&found, REGULAR, permissions, now())?;
                    // Open at once: its name may be removed before its record is written.
                    let file = Self::of(volume, inode, flags);
                    Ok((Some((file, volume.disturb(inode, Some(&found)))), changes))
                }
                _ => Ok((None, Vec::new())),
            }
        });
        Ok(made.await?.map(|(file, _disturbed)| file))
    }

    /// Checks that an inode may be opened with these flags.
    fn check(volume: &Volume, inode: u64, flags: OFlags) -> Result<(), Errno> {
        let tree = volume.tree.borrow();
        let node = tree.node(inode).ok_or(Errno::NOENT)?;
        let access = flags & OFlags::RWMODE;
        let writes = access != OFlags::RDONLY || flags.contains(OFlags::TRUNC);
        if node.is_link() {
            return Err(Errno::LOOP);
        }
        if node.is_folder() {
            return Err(if writes || flags.contains(OFlags::CREATE) {
                Errno::ISDIR
            } else {
                Errno::NOTSUP
            });
        }
        if writes && !volume.is_writable {
            return Err(Errno::ROFS);
        }
        if access != OFlags::WRONLY {
            tree.may(inode, Wish::READ)?;
        }
        if writes { tree.may(inode, Wish::WRITE) } else { Ok(()) }
    }

    /// Makes a file of a number that was [reserved](Tree::reserve), to write it.
    pub(super) async fn create_as(
        volume: &Rc<Volume>,
        inode: u64,
        found: &Found,
        mode: u32,
        time: Time,
    ) -> io::Result<Self> {
        let changing = volume.begin().await?;
        let (file, _disturbed) = Self::to_be(volume, inode, found);
        let permissions = mode & PERMISSIONS;
        let make = |tree: &Tree| Ok(((), tree.make_as(inode, found, REGULAR, permissions, time)?));
        volume.change_in(&changing, make).await?;
        Ok(file)
    }

    /// Opens a file of a number that was [reserved](Tree::reserve) and that is about to be made, at
    /// once: its name may be removed before its record is written. It is hidden by its name, too,
    /// until the second is dropped.
    pub(super) fn to_be(volume: &Rc<Volume>, inode: u64, found: &Found) -> (Self, Disturbed) {
        let disturbed = volume.disturb(inode, Some(found));
        (Self::of(volume, inode, OFlags::WRONLY), disturbed)
    }

    /// Opens a file by its number, to write it.
    pub(super) async fn open_inode(
        volume: &Rc<Volume>,
        inode: u64,
        truncates: bool,
    ) -> io::Result<Self> {
        Self::check(volume, inode, OFlags::WRONLY)?;
        let file = Self::of(volume, inode, OFlags::WRONLY);
        if truncates {
            file.resize(0).await?;
        }
        Ok(file)
    }

    /// The same inode, opened otherwise.
    pub(super) fn reopened(&self, flags: OFlags) -> Self {
        Self::of_live(&self.volume, Rc::clone(&self.live), Access::of(flags))
    }

    /// Opens what a client reads by the table.
    pub(super) fn read_by_client(volume: &Rc<Volume>, inode: u64) -> Option<Self> {
        let live = volume.read_by_client(inode)?;
        Some(Self::of_live(volume, live, Access::of(OFlags::RDONLY)))
    }

    /// True if both are of one inode.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.live, &other.live)
    }

    pub(super) fn inode(&self) -> u64 {
        self.live.inode
    }

    fn of(volume: &Rc<Volume>, inode: u64, flags: OFlags) -> Self {
        Self::of_live(volume, volume.live(inode), Access::of(flags))
    }

    fn of_live(volume: &Rc<Volume>, live: Rc<Live>, access: Access) -> Self {
        let Access { writes, appends } = access;
        let _disturbed = writes.then(|| volume.disturb(live.inode, None));
        let (volume, anchor) = (Rc::clone(volume), OnceCell::new());
        Self { volume, live, _disturbed, writes, appends: Cell::new(appends), anchor }
    }

    /// Another open file of the same inode.
    pub(super) fn another(&self) -> Self {
        let access = Access { writes: self.writes, appends: false };
        Self::of_live(&self.volume, Rc::clone(&self.live), access)
    }

    pub(super) fn volume(&self) -> &Rc<Volume> {
        &self.volume
    }

    pub(super) fn status(&self) -> io::Result<Status> {
        let node = self.volume.node(&self.live)?;
        let links = self.volume.link_count(&self.live);
        Ok(status_of(&self.volume, self.live.inode, &node, links))
    }

    /// Executes a call that is the file's own, and not that of the multifile.
    pub(super) async fn on(&self, call: FileCall) -> io::Result<Answer> {
        match call {
            FileCall::Status => return self.status().map(|status| Answer::status(&status)),
            FileCall::FileSystem => return Err(Errno::NOSYS.into()),
            FileCall::Seek(to) => {
                return Ok(Answer::value(self.seek(to).await?));
            }
            FileCall::Sync { data_only } => self.sync(data_only).await?,
            // What is wrong with the physical files their multifile tells.
            FileCall::CloseDuplicate => {}
            FileCall::Truncate { len } => self.truncate(len).await?,
            FileCall::Allocate { mode, at, len } => self.allocate(mode, at, len).await?,
            FileCall::SetAppend(appends) => self.appends.set(appends),
            FileCall::Set(what) => self.set(what).await?,
        }
        Ok(Answer::default())
    }

    pub(super) async fn set(&self, what: Attributes) -> io::Result<()> {
        let _disturbed = self.volume.disturb(self.live.inode, None);
        self.volume.set(&self.live, |tree, node| tree.set(node, what, now())).await
    }

    pub(super) async fn read(&self, at: u64, into: &Buffers) -> io::Result<usize> {
        match self.volume.stream_of(&self.live)? {
            Some(stream) => stream.read(self.volume.machine(), at, into).await,
            None => Ok(0),
        }
    }

    pub(super) async fn write(&self, at: u64, from: &Buffers) -> io::Result<usize> {
        if !self.writes {
            return Err(Errno::BADF.into());
        }
        if from.is_empty() {
            return Ok(0);
        }
        let entrance = Cell::new(Some(self.live.entrance.take().await));
        let changing = self.volume.begin().await?;
        let write = || self.write_in(&changing, &entrance, at, from);
        self.volume.with_room(write).await
    }

    async fn write_in(
        &self,
        changing: &Changing<'_>,
        entrance: &Cell<Option<Credit>>,
        at: u64,
        from: &Buffers,
    ) -> io::Result<usize> {
        let machine = self.volume.machine();
        self.volume.clear_set_ids(changing, &self.live).await?;
        let appends = self.appends.get();
        let written = loop {
            let at = if appends { self.len()? } else { at };
            let end = at.checked_add(from.len() as u64).ok_or(Errno::FBIG)?;
            let stream = self.volume.stream_for(changing, &self.live, end).await?;
            let entered = if appends {
                stream.enter_at_end(machine, from).await?
            } else {
                stream.enter(machine, at, from).await?
            };
            // Else it has another one by now, or needs one.
            if let Some(entered) = entered {
                entrance.take();
                break entered.write(machine).await;
            }
        };
        self.volume.wrote(&self.live);
        written
    }

    /// Bytes of the file.
    fn len(&self) -> io::Result<u64> {
        Ok(self.volume.stream_of(&self.live)?.map_or(0, |stream| stream.len()))
    }

    pub(super) async fn truncate(&self, len: u64) -> io::Result<()> {
        if self.writes { self.resize(len).await } else { Err(Errno::INVAL.into()) }
    }

    async fn resize(&self, len: u64) -> io::Result<()> {
        let _disturbed = self.volume.disturb(self.live.inode, None);
        let changing = self.volume.begin().await?;
        self.volume.with_room(|| self.resize_in(&changing, len)).await
    }

    async fn resize_in(&self, changing: &Changing<'_>, len: u64) -> io::Result<()> {
        self.volume.clear_set_ids(changing, &self.live).await?;
        while len > 0 || self.volume.stream_of(&self.live)?.is_some() {
            let stream = self.volume.stream_for(changing, &self.live, len).await?;
            if stream.resize(self.volume.machine(), len).await? {
                break;
            }
        }
        self.volume.wrote(&self.live);
        Ok(())
    }

    /// As `fallocate(2)`, but for what moves bytes.
    pub(super) async fn allocate(&self, mode: u32, at: u64, len: u64) -> io::Result<()> {
        if !self.writes {
            return Err(Errno::BADF.into());
        }
        let mode = FallocateFlags::from_bits_retain(mode);
        let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
        let how = mode - FallocateFlags::KEEP_SIZE;
        let end = at.checked_add(len).filter(|_| len > 0).ok_or(Errno::INVAL)?;
        let is_hole = how == FallocateFlags::PUNCH_HOLE;
        if !(how.is_empty() || how == FallocateFlags::ZERO_RANGE || is_hole && keeps) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let changing = self.volume.begin().await?;
        let allocate = || self.allocate_in(&changing, how, keeps, at..end);
        self.volume.with_room(allocate).await
    }

    async fn allocate_in(
        &self,
        changing: &Changing<'_>,
        how: FallocateFlags,
        keeps: bool,
        range: Range<u64>,
    ) -> io::Result<()> {
        let Range { start: at, end } = range;
        self.volume.clear_set_ids(changing, &self.live).await?;
        let machine = self.volume.machine();
        let room = if how.is_empty() || !keeps { end } else { 0 };
        let is_empty = || Ok::<_, io::Error>(self.volume.stream_of(&self.live)?.is_none());
        // Of nothing, nothing is made zeros.
        while room > 0 || !is_empty()? {
            let stream = self.volume.stream_for(changing, &self.live, room).await?;
            let is_done = if how.is_empty() {
                stream.reserve(machine, at, end).await?;
                true
            } else {
                stream.zero(machine, at, end).await?
            };
            if is_done && (keeps || stream.len() >= end || stream.resize(machine, end).await?) {
                break;
            }
        }
        self.volume.wrote(&self.live);
        Ok(())
    }

    pub(super) async fn sync(&self, data_only: bool) -> io::Result<()> {
        if !data_only {
            self.volume.note_times(&self.live).await?;
        }
        let stream = loop {
            match self.volume.stream_of(&self.live)? {
                Some(stream) if !stream.begin_sync().await => {} // It has another one by now.
                stream => break stream,
            }
        };
        self.volume.sync(stream.as_deref(), data_only).await
    }

    /// All of a file is data, as POSIX allows.
    pub(super) async fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let size = self.volume.size(&self.volume.node(&self.live)?);
        match to {
            SeekFrom::Data(at) if at < size => Ok(at),
            SeekFrom::Hole(at) if at < size => Ok(size),
            SeekFrom::Start(at) => self.volume.check_reach(at).await.map(|()| at),
            SeekFrom::Data(_) | SeekFrom::Hole(_) => Err(Errno::NXIO.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Returns the file that holds the kernel's locks in place of this open file: a file in memory
    /// that all open files of the inode share, opened for this one.
    pub(super) fn anchor(&self) -> io::Result<uring::File> {
        if let Some(anchor) = self.anchor.get() {
            return Ok(anchor.clone());
        }
        let mut shared = self.live.anchor.borrow_mut();
        if shared.is_none() {
            *shared = Some(uring::File::new(memfd_create("kakehi", MemfdFlags::CLOEXEC)?)?);
        }
        let memory = shared.as_ref().ok_or(Errno::NOLCK)?;
        let own = uring::File::new(reopen(memory.fd())?)?;
        Ok(self.anchor.get_or_init(|| own).clone())
    }
}

/// How a file is open: to be written, and only at its end.
#[derive(Clone, Copy, Debug)]
struct Access {
    writes: bool,
    appends: bool,
}

impl Access {
    fn of(flags: OFlags) -> Self {
        let writes = flags & OFlags::RWMODE != OFlags::RDONLY;
        Self { writes, appends: flags.contains(OFlags::APPEND) }
    }
}

/// Truncates a file by its name.
pub(super) async fn truncate(volume: &Rc<Volume>, inode: u64, len: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY;
    Packed::check(volume, inode, flags)?;
    let file = Packed::of(volume, inode, flags);
    file.truncate(len).await
}

/// Attributes of a named inode, set.
pub(super) async fn set(volume: &Rc<Volume>, inode: u64, what: Attributes) -> io::Result<()> {
    Packed::of(volume, inode, OFlags::RDONLY).set(what).await
}
