//! One multifile that holds the files of a folder: its physical files, and from when until when it
//! is written. `records` changes its names, `inodes` knows who has which of its streams.
//!
//! A multifile that was closed, and is only read, is not changed at all.

use std::{
    cell::{Cell, RefCell},
    future, io, mem,
    path::Path,
    rc::Rc,
    sync::{Arc, Mutex},
};

use executor::{Notify, lock};
use multifile::{Disk, Growing, NewFile, catalogue, layout::ChunkPlace};
use rustix::{
    fs::{SeekFrom, fstat},
    io::Errno,
    process::{getegid, geteuid, getgroups},
};
use storage::{Machine, Storage as _, names::FileCall};

use super::{
    condition::Condition,
    hold::{Age, Closed, Hold},
    inodes::Users,
    member::Member,
    opening::{Home, Prior, open},
    places::Resting,
    records::{Record, Records, is_full},
    shape::{DENSE_UNIT, Shape},
    stream::{Stream, Turn},
    streams::{Reach, Streams, Task},
    tree::{Tree, User},
    unfit::Unfit,
};

/// Part of all tasks that those of files that are gone have to be before it is worth an `fsync` to
/// have them free.
const LEFT_PART: usize = 8;

/// A multifile as the storage of a folder's files.
pub(crate) struct Volume {
    machine: Machine,
    home: Home,
    pub(super) shape: Shape,
    /// Others that would write it are kept out by it.
    pub(super) hold: Hold,
    /// Of the first physical file, until a multifile that was closed is begun.
    closed_age: Cell<Option<Age>>,
    pub(super) growing: Arc<Mutex<Option<Growing<Disk>>>>,
    pub(super) is_writable: bool,
    condition: Cell<Condition>,
    /// It was there before, or somebody has asked for what is in it to be on the disk.
    pub(super) is_durable: Cell<bool>,
    /// Changes that are being made.
    changing: Cell<usize>,
    settled: Notify,
    pub(super) streams: RefCell<Streams>,
    pub(super) tree: RefCell<Tree>,
    pub(super) records: Records,
    pub(super) users: Rc<Users>,
    pub(super) resting: Rc<Resting>,
    /// To give away a task.
    pub(super) tasks: Turn,
    /// To ask for the lock again.
    asking: Turn,
    /// To begin, and to get another physical file.
    pub(super) growth: Turn,
    /// To give chunks to small streams.
    pub(super) placing: Turn,
    /// To free tasks whose files are gone.
    pub(super) freeing: Turn,
    /// Why a sync has failed that nobody had asked for.
    pub(super) unsynced: Cell<Option<Errno>>,
    /// No record of a removal is known to be on the disk any more.
    pub(super) has_failed_to_sync: Cell<bool>,
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

impl Volume {
    /// Opens the multifile at `path`, or makes it; the physical files that it gets have this shape.
    pub(crate) async fn open(
        machine: Machine,
        path: &Path,
        shape: Shape,
        is_read_only: bool,
    ) -> io::Result<Rc<Self>> {
        let (scope, path) = (machine.scope().clone(), path.to_owned());
        let open = move || {
            let home = Home::find(&scope, &path)?;
            open(&home, &shape, is_read_only).map(|opened| (home, opened))
        };
        let (home, opened) = machine.call(open).await?;
        let groups = getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
        let me = User { user: geteuid().as_raw(), group: getegid().as_raw(), groups };
        let tree = Tree::new(opened.catalogue, me);
        let first = usize::from(opened.names != (0, 0)); // Behind that of the names.
        // Names that speak of tasks that it does not have, or of one twice, make no sense.
        let used = tasks_used(&tree, first, opened.lens.len()).ok_or(Unfit::Names)?;
        let is_closed = opened.before == Prior::Closed;
        let closed_age = is_closed.then(|| opened.hold.file.metadata()).transpose()?;
        let closed_age = closed_age.as_ref().map(Age::of);
        let volume = Self {
            machine,
            home,
            shape,
            closed_age: Cell::new(closed_age),
            hold: opened.hold,
            growing: Arc::new(Mutex::new(Some(opened.growing))),
            is_writable: opened.is_writable,
            condition: Cell::new(match opened.before {
                Prior::Absent => Condition::Vain,
                Prior::Empty => Condition::Dirty,
                Prior::Closed | Prior::Unclosed => Condition::Clean,
            }),
            is_durable: Cell::new(matches!(opened.before, Prior::Closed | Prior::Unclosed)),
            changing: Cell::new(0),
            settled: Notify::new(),
            streams: RefCell::new(Streams::new(shape.chunk_len)),
            tree: RefCell::new(tree),
            records: Records::of(opened.names.0, opened.names.1),
            users: Users::new(),
            resting: Rc::default(),
            tasks: Turn::default(),
            asking: Turn::default(),
            growth: Turn::default(),
            placing: Turn::default(),
            freeing: Turn::default(),
            unsynced: Cell::default(),
            has_failed_to_sync: Cell::default(),
        };
        volume.take_members(&opened.lens)?;
        for (task, ends) in (0..).zip(opened.ends) {
            volume.stream(task)?.ends_at(ends);
        }
        let free = (0..).zip(&used).skip(1).filter(|(_, is_used)| !**is_used);
        let free = volume.with_chunks(free.map(|(task, _)| task));
        let left =
            |free: Vec<(u64, u64)>| volume.users.set_left(free.into_iter().map(|(_, task)| task));
        match opened.before {
            Prior::Absent | Prior::Empty => {
                volume.users.set_free(free);
                volume.take_journals()?;
                let head = volume.tree.borrow().stream();
                volume.append(Record::of(head)).await?;
            }
            Prior::Closed => left(free),
            Prior::Unclosed => {
                left(free);
                volume.begin().await?;
            }
        }
        Ok(Rc::new(volume))
    }

    /// Takes physical files in that are not known yet, whose streams have these lengths; they are
    /// new if there are none.
    fn take_members(&self, lens: &[u64]) -> io::Result<()> {
        let growing = lock(&self.growing);
        let growing = growing.as_ref().ok_or(Errno::IO)?;
        let mut streams = self.streams.borrow_mut();
        let is_new = lens.is_empty();
        let mut lens = lens.iter().copied();
        for file in u32::try_from(streams.members().len()).unwrap_or(u32::MAX)..growing.file_count()
        {
            let data = growing.file(file).ok_or(Errno::IO)?.try_clone()?;
            let task = |task| {
                let len = lens.next().or_else(|| is_new.then_some(0)).ok_or(Errno::IO)?;
                Ok(Task::new(growing.place(file, task)?, len))
            };
            let tasks = (0..growing.task_count(file)).map(task);
            let tasks = tasks.collect::<io::Result<Vec<_>>>()?;
            let rows = tasks.iter().map(Task::rows).max().unwrap_or(0);
            let (first_task, key) = (streams.len() as u64, growing.key(file, 0)?);
            let data = uring::File::new(data.into())?;
            // Where the first task begins, of which there need not be one.
            let (start_at, end) = (growing.end_of(file, 0)?, growing.end_of(file, 1)?);
            let first = ChunkPlace { start_at, chunk_len: 0, skip: end - start_at };
            let member = Member::new(file, first_task, key, data, first, rows);
            // Names may get longer than a chunk in any case.
            let is_short = |task: &Task| task.is_shorter(self.shape.chunk_len);
            let is_packed = file > 0 && rows <= 1 && tasks.iter().all(is_short);
            let placed = growing.placed_count(file);
            let rest = first_task + u64::from(placed)..first_task + u64::from(member.task_count());
            // Only dense files of Kakehi get more chunks, not those of other packing, nor one that
            // has lost chunk sizes with the node: names lead to tasks there.
            let is_open = growing.fs_block_len(file) == DENSE_UNIT
                && (is_new
                    || rest.is_empty()
                    || !self.tree.borrow().tasks().any(|task| rest.contains(&task)));
            let unplaced = if is_open { member.task_count() - placed } else { 0 };
            let member = if is_packed { member.packed(unplaced.into()) } else { member };
            let found_count = if is_new { 0 } else { placed };
            streams.add(Rc::new(member.found(found_count.into())), tasks);
        }
        Ok(())
    }

    /// Takes in the journals of physical files that had none.
    fn take_journals(&self) -> io::Result<()> {
        let growing = lock(&self.growing);
        let growing = growing.as_ref().ok_or(Errno::IO)?;
        let members = self.members();
        for (file, member) in (0u32..).zip(members).filter(|(_, member)| !member.is_begun()) {
            let journal = growing.journal(file).ok_or(Errno::IO)?.try_clone()?;
            member.begin(uring::File::new(journal.into())?);
        }
        Ok(())
    }

    /// Makes zeros of what no stream reaches.
    async fn clear_tails(&self) -> io::Result<()> {
        // Of small streams next to each other each sees to itself once it gets longer.
        for member in self.members().iter().filter(|member| !member.is_packed) {
            let chunks = member.chunks(self.streams.borrow().reaches_in(member));
            let data = member.data.clone();
            self.machine.call(move || chunks.clear_tails(data.fd())).await?;
        }
        Ok(())
    }

    /// Before a change, and until that is made: from the first one on the multifile counts as
    /// unclosed. Once it is closed nothing is changed, and no change is answered: who asked for it
    /// asks the next server.
    ///
    /// # Errors
    ///
    /// `EROFS`: it may not be written. [`Unfit::Lost`]. Those of writing.
    pub(super) async fn begin(&self) -> io::Result<Changing<'_>> {
        if !self.is_writable {
            return Err(Errno::ROFS.into());
        }
        if self.condition.get().is_over() {
            future::pending::<()>().await;
        }
        let changing = Changing::new(self);
        self.note(Condition::change);
        if self.condition.get().is_begun() {
            self.hold.keep(&self.machine, &self.home, &self.asking).await?;
            return Ok(changing);
        }
        let _taken = self.growth.take().await;
        if !self.condition.get().is_begun() {
            self.hold.check()?;
            // What a failed attempt has left of it is not looked at.
            if let Some(age) = self.closed_age.take() {
                let closed = Closed { age, lens: self.lens() };
                self.hold.ask(&self.machine, &self.home, Some(closed)).await?;
            }
            let begin = || {
                let (growing, lens) = (Arc::clone(&self.growing), self.lens());
                self.machine
                    .call(move || Ok(lock(&growing).as_mut().ok_or(Errno::IO)?.begin(&lens)?))
            };
            match begin().await {
                Err(why) if is_full(&why) => {
                    self.give_names_back().await?;
                    begin().await?;
                }
                begun => begun?,
            }
            self.clear_tails().await?;
            self.take_journals()?;
            self.free_left().await;
            self.note(Condition::begin);
        }
        Ok(changing)
    }

    pub(super) fn condition(&self) -> Condition {
        self.condition.get()
    }

    /// An event changes its condition; returns the one before.
    fn note(&self, event: fn(&mut Condition)) -> Condition {
        let mut condition = self.condition.get();
        event(&mut condition);
        self.condition.replace(condition)
    }

    /// Its physical files.
    pub(super) fn members(&self) -> Vec<Rc<Member>> {
        self.streams.borrow().members().to_vec()
    }

    /// The stream of a task.
    pub(super) fn stream(&self, task: u64) -> io::Result<Rc<Stream>> {
        self.streams.borrow_mut().get(task).ok_or_else(|| Errno::IO.into())
    }

    fn lens(&self) -> Vec<u64> {
        self.streams.borrow().reaches().map(|(.., len)| len).collect()
    }

    /// Has tasks for long streams free: those of files that are gone, or of another physical file.
    pub(super) async fn make_free(&self) -> io::Result<()> {
        let _taken = self.growth.take().await;
        // Else none that is not on the disk as empty, or left, is ever free.
        let can_sync = !self.has_failed_to_sync.get();
        if self.users.has_free(self.shape.chunk_len, can_sync) {
            return Ok(()); // Another task has made room for both.
        }
        let is_wide = |(_, chunk_len, _): &Reach| *chunk_len >= self.shape.chunk_len;
        let all = self.streams.borrow().reaches().filter(is_wide).count();
        let reach = |task| self.streams.borrow().reach(task);
        let is_left = |task| reach(task).is_some_and(|reach| is_wide(&reach));
        let left = if can_sync { self.users.left_of(is_left) } else { 0 };
        if left * LEFT_PART < all || left == 0 {
            // The first one may have the names alone.
            let names = usize::from(self.shape.first.task_count == 1);
            let count = self.members();
            let count = count.iter().skip(names).filter(|member| !member.is_packed).count();
            match self.add_member(self.shape.next_wide(count)).await {
                Err(why) if left > 0 && is_full(&why) => {}
                added => return added,
            }
        }
        self.free_left().await;
        Ok(())
    }

    /// Gets another physical file; the caller has the turn for that.
    pub(super) async fn add_member(&self, new: NewFile) -> io::Result<()> {
        let (growing, durable) = (Arc::clone(&self.growing), self.is_durable.get());
        if durable {
            self.sync_members().await?;
        }
        let add = move || Ok(lock(&growing).as_mut().ok_or(Errno::IO)?.add(new, durable)?);
        self.machine.call(add).await?;
        if durable {
            // No name leads into it before it is counted, also after the loss of the node.
            self.stream(catalogue::TASK as u64)?.member().sync(&self.machine, true).await?;
        }
        let before = self.streams.borrow().len() as u64;
        self.take_members(&[])?;
        self.take_journals()?;
        if let Some(member) = self.streams.borrow().members().last().filter(|_| durable) {
            member.is_durable.set(true);
            #[cfg(test)]
            crate::tests::power::Syncing::begin(member.data.fd()).end();
        }
        let tasks = before..self.streams.borrow().len() as u64;
        self.users.set_free(self.with_chunks(tasks));
        Ok(())
    }

    /// Checks that a file can reach to `at` where its physical file keeps as few as any does.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the file system has no file that is so long.
    pub(super) async fn check_reach(&self, at: u64) -> io::Result<()> {
        let physical_at = at.checked_mul(u64::from(self.shape.wide.first)).ok_or(Errno::INVAL)?;
        let call = FileCall::Seek(SeekFrom::Start(physical_at));
        self.machine.on(&self.physical()?, call).await.map(drop)
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// True if it is on a file system of this machine.
    pub(super) fn is_near(&self) -> bool {
        self.physical().is_ok_and(|file| file.is_local())
    }

    /// A file in the file system of the multifile.
    pub(super) fn physical(&self) -> io::Result<uring::File> {
        let members = self.members();
        members.first().map(|member| member.data.clone()).ok_or_else(|| Errno::IO.into())
    }

    /// Closes the multifile, if it was changed: from here on it is read as any other. Nothing can
    /// be changed any more.
    ///
    /// # Errors
    ///
    /// Those of writing: the multifile is left to `kakehi multifile repair`.
    pub(crate) async fn close(&self) -> io::Result<()> {
        let before = self.note(Condition::end);
        // One that has just come may have the multifile begun first.
        self.settled.until(|| self.changing.get() == 0).await;
        if before.is_over() || self.condition.get() == Condition::Ended {
            return Ok(());
        }
        self.hold.ask(&self.machine, &self.home, None).await?;
        if let Err(why) = self.note_all_times().await {
            tracing::warn!("times of files in {} are lost: {why}", self.home.path.display());
        }
        if self.is_durable.get() {
            // What is emptied is not to have a name after the loss of the node.
            self.free_left().await;
            self.tell_unsynced()?;
        }
        for member in self.members().iter().filter(|member| member.is_packed) {
            let _taken = self.placing.take().await;
            self.tell_chunks(member).await?;
        }
        let is_filled = |task: &u64| self.streams.borrow().reach(*task).is_some_and(|r| r.2 > 0);
        self.empty(self.users.nobodys().into_iter().filter(is_filled)).await?;
        let (growing, mut lens) = (Arc::clone(&self.growing), self.lens());
        // A record that failed and could not be cut off would be damage in a closed multifile.
        if let Some(names) = lens.get_mut(catalogue::TASK) {
            *names = (*names).min(self.records.end_at.get());
        }
        let durable = self.is_durable.get();
        let closing = move || match lock(&growing).take() {
            Some(growing) => Ok(growing.close(&lens, durable)?),
            None => Ok(()),
        };
        self.machine.call(closing).await
    }

    /// True if something was written that has no name any more: one of its physical files was
    /// removed.
    pub(crate) fn is_removed(&self) -> bool {
        let is_gone = |member: &Rc<Member>| fstat(&member.data).is_ok_and(|now| now.st_nlink == 0);
        self.condition.get() == Condition::Dirty && self.members().iter().any(is_gone)
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.home.path
    }
}

/// Which of so many tasks have somebody's data, each one file's, none of them before the `first`;
/// `None`: that is not so.
fn tasks_used(tree: &Tree, first: usize, count: usize) -> Option<Vec<bool>> {
    let mut used = vec![false; count];
    for task in tree.tasks() {
        let task = usize::try_from(task).ok().filter(|task| *task >= first)?;
        let was_used = mem::replace(used.get_mut(task)?, true);
        if was_used {
            return None;
        }
    }
    Some(used)
}

impl Drop for Volume {
    /// A daemon that did not get to serve leaves nothing behind.
    fn drop(&mut self) {
        if self.condition.get() == Condition::Vain {
            self.home.forget();
        }
    }
}
