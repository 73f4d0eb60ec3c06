//! The inodes of a multifile that are open, and the tasks that have their bytes.
//!
//! A file gets a task as it is made to be written, or else with its first byte; the record that
//! says so is written before the byte. A task is nobody's once the record is written that takes the
//! last name of its file, and nobody has that open: until then a daemon that dies leaves the name,
//! and its bytes are to be there. It is free once that record is on the disk: until then a node
//! that is lost leaves the name. It is empty on the disk before another file gets it. When a file
//! was written last the names say at an `fsync`, or when the multifile is closed.
//!
//! An inode that somebody has open is in one of these states:
//!
//! | state | the inode |
//! |---|---|
//! | named | has a name, and the names say what it is |
//! | orphaned | has lost its last name, and the record of that is not written yet |
//! | gone | has lost its last name: its task is nobody's once nobody has it open |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | orphan | named -> orphaned |
//! | confirm | orphaned -> gone |
//! | restore | orphaned -> named |

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    io, mem,
    ops::RangeInclusive,
    rc::{Rc, Weak},
};

use multifile::catalogue::{self, Change, Node, Time};
use rustix::io::Errno;

use super::{
    opening::now,
    records::Record,
    stream::{Stream, Turn},
    tree::Tree,
    volume::{Changing, Volume},
};

/// Open inodes and tasks, with their users.
#[derive(Debug, Default)]
pub(super) struct Users {
    live: RefCell<HashMap<u64, Weak<Live>>>,
    /// Tasks that nobody has, and that are empty, each behind the bytes of its chunks.
    free: RefCell<BTreeSet<(u64, u64)>>,
    /// The same, but that they may have bytes of who had them.
    stale: RefCell<BTreeSet<(u64, u64)>>,
    /// Those of which the names on the disk may still say whose they were.
    left: RefCell<BTreeSet<u64>>,
    /// Bytes of these, but for those of the ones that were not counted yet.
    left_len: Cell<u64>,
    uncounted: RefCell<Vec<u64>>,
    /// When inodes were written, of those whose names do not say it yet.
    written: RefCell<HashMap<u64, Time>>,
}

impl Users {
    /// Nobody.
    pub(super) fn new() -> Rc<Self> {
        Rc::default()
    }

    /// True if a free task has so many bytes in a block; or one that is to be emptied, if any
    /// `can_be`.
    pub(super) fn has_free(&self, chunk_len: u64, can_be: bool) -> bool {
        let has = |all: &BTreeSet<(u64, u64)>| all.range((chunk_len, 0)..).next().is_some();
        has(&self.free.borrow()) || can_be && has(&self.stale.borrow())
    }

    /// Takes the free task with the shortest chunks of these, with their length.
    pub(super) fn take_free(&self, chunk_len: RangeInclusive<u64>) -> Option<(u64, u64)> {
        let mut free = self.free.borrow_mut();
        let taken = free.range(fitting(chunk_len)).next().copied()?;
        free.remove(&taken);
        Some(taken)
    }

    /// The task with the shortest chunks of these that `may` be emptied.
    pub(super) fn first_stale(
        &self,
        chunk_len: &RangeInclusive<u64>,
        may: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let stale = self.stale.borrow();
        stale.range(fitting(chunk_len.clone())).map(|(_, task)| *task).find(|task| may(*task))
    }

    /// Takes all tasks that `may` be emptied: they share the sync for which the first one waits.
    pub(super) fn take_stale(&self, may: impl Fn(u64) -> bool) -> BTreeSet<(u64, u64)> {
        let mut stale = self.stale.borrow_mut();
        let taken: BTreeSet<_> = stale.iter().copied().filter(|(_, task)| may(*task)).collect();
        for task in &taken {
            stale.remove(task);
        }
        taken
    }

    /// True if so many tasks are to be emptied, or some with so many bytes.
    pub(super) fn has_stale(&self, count: usize, len: u64) -> bool {
        let stale = self.stale.borrow();
        stale.len() >= count || stale.iter().map(|(chunk_len, _)| chunk_len).sum::<u64>() >= len
    }

    /// The tasks that nobody has.
    pub(super) fn nobodys(&self) -> Vec<u64> {
        let (free, stale, left) = (self.free.borrow(), self.stale.borrow(), self.left.borrow());
        free.iter().chain(&*stale).map(|(_, task)| *task).chain(left.iter().copied()).collect()
    }

    /// Number of these that the names on the disk may still say somebody has.
    pub(super) fn left_of(&self, is_one: impl Fn(u64) -> bool) -> usize {
        self.left.borrow().iter().filter(|task| is_one(**task)).count()
    }

    /// Number of all of those.
    pub(super) fn left_count(&self) -> usize {
        self.left.borrow().len()
    }

    /// These tasks are nobody's, and empty, and nothing on the disk says otherwise.
    pub(super) fn set_free(&self, tasks: impl IntoIterator<Item = (u64, u64)>) {
        self.free.borrow_mut().extend(tasks);
    }

    /// The same, but that they may have bytes.
    pub(super) fn set_stale(&self, tasks: impl IntoIterator<Item = (u64, u64)>) {
        self.stale.borrow_mut().extend(tasks);
    }

    /// These tasks are nobody's any more.
    pub(super) fn set_left(&self, tasks: impl IntoIterator<Item = u64>) {
        let mut uncounted = self.uncounted.borrow_mut();
        let known = uncounted.len();
        uncounted.extend(tasks);
        self.left.borrow_mut().extend(uncounted.iter().skip(known));
    }

    /// Bytes of those, if each has as many as `len_of` says.
    pub(super) fn left_len(&self, len_of: impl Fn(u64) -> u64) -> u64 {
        let more = self.uncounted.take().into_iter().map(len_of);
        self.left_len.set(more.fold(self.left_len.get(), u64::saturating_add));
        self.left_len.get()
    }

    /// Takes those: who does has them free.
    pub(super) fn take_left(&self) -> BTreeSet<u64> {
        self.left_len.set(0);
        self.uncounted.borrow_mut().clear();
        self.left.take()
    }

    /// An inode has lost its last name. Its task is nobody's when the record of that is written, of
    /// which the inode is [told](Live::confirm), and nobody has it open any more.
    pub(super) fn orphan(self: &Rc<Self>, inode: u64, node: Node) -> Rc<Live> {
        let node = self.now(inode, node);
        let live = self.live.borrow_mut().remove(&inode).and_then(|live| live.upgrade());
        let live = live.unwrap_or_else(|| Rc::new(Live::new(inode, self)));
        live.names.borrow_mut().orphan(node);
        live
    }

    /// An inode as it is, also where the names do not say it yet.
    pub(super) fn now(&self, inode: u64, node: Node) -> Node {
        Node { times: self.times_now(inode, node.times), ..node }
    }

    /// Its times, if these are what the names say.
    pub(super) fn times_now(&self, inode: u64, times: [Time; 3]) -> [Time; 3] {
        let written = self.written.borrow();
        let written = if written.is_empty() { None } else { written.get(&inode) };
        let [accessed, modified, changed] = times;
        [accessed, *written.unwrap_or(&modified), *written.unwrap_or(&changed)]
    }
}

/// All tasks with chunks of so many bytes.
fn fitting(chunk_len: RangeInclusive<u64>) -> RangeInclusive<(u64, u64)> {
    (*chunk_len.start(), 0)..=(*chunk_len.end(), u64::MAX)
}

/// The names of an inode; without any it is a node that only who has it open knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Linkage {
    #[default]
    Named,
    Orphaned(Node),
    Gone(Node),
}

impl Linkage {
    fn orphan(&mut self, node: Node) {
        if let Self::Named = self {
            *self = Self::Orphaned(node);
        }
    }

    /// The record is written that took the last name.
    fn confirm(&mut self) {
        if let Self::Orphaned(node) = self {
            *self = Self::Gone(mem::take(node));
        }
    }

    /// That record could not be written; returns whether the inode was waiting for it.
    fn restore(&mut self) -> bool {
        let is_orphaned = matches!(self, Self::Orphaned(_));
        if is_orphaned {
            *self = Self::Named;
        }
        is_orphaned
    }

    const fn unnamed(&self) -> Option<&Node> {
        match self {
            Self::Named => None,
            Self::Orphaned(node) | Self::Gone(node) => Some(node),
        }
    }

    const fn unnamed_mut(&mut self) -> Option<&mut Node> {
        match self {
            Self::Named => None,
            Self::Orphaned(node) | Self::Gone(node) => Some(node),
        }
    }
}

/// An inode that somebody has open.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) inode: u64,
    names: RefCell<Linkage>,
    /// To begin a write: they reach a stream in the order in which they have come, whatever each
    /// waits for before it is there.
    pub(super) entrance: Turn,
    /// A file in memory that has the inode's locks.
    pub(super) anchor: RefCell<Option<uring::File>>,
    users: Rc<Users>,
}

impl Live {
    fn new(inode: u64, users: &Rc<Users>) -> Self {
        let (names, anchor, users) = (RefCell::default(), RefCell::default(), Rc::clone(users));
        Self { inode, names, entrance: Turn::default(), anchor, users }
    }

    /// True if it is of the multifile that has these.
    pub(super) fn is_of(&self, users: &Rc<Users>) -> bool {
        Rc::ptr_eq(&self.users, users)
    }

    /// The record is written that took its last name.
    pub(super) fn confirm(&self) {
        self.names.borrow_mut().confirm();
        self.users.written.borrow_mut().remove(&self.inode);
    }

    /// The record could not be written that took its last name: it has that again.
    pub(super) fn restore(self: &Rc<Self>) {
        if self.names.borrow_mut().restore() {
            self.users.live.borrow_mut().insert(self.inode, Rc::downgrade(self));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        match self.names.get_mut() {
            Linkage::Gone(node) => self.users.set_left(node.task),
            // Who opens the multifile next knows whose task it is.
            Linkage::Orphaned(_) => {}
            Linkage::Named => drop(self.users.live.borrow_mut().remove(&self.inode)),
        }
    }
}

impl Volume {
    /// An inode that is open from now on.
    pub(super) fn live(&self, inode: u64) -> Rc<Live> {
        let mut all = self.users.live.borrow_mut();
        if let Some(live) = all.get(&inode).and_then(Weak::upgrade) {
            return live;
        }
        let live = Rc::new(Live::new(inode, &self.users));
        all.insert(inode, Rc::downgrade(&live));
        live
    }

    /// Returns an open inode.
    pub(super) fn node(&self, live: &Live) -> io::Result<Node> {
        let named = self.tree.borrow().node(live.inode).cloned();
        let node = live.names.borrow().unnamed().cloned().or(named).ok_or(Errno::STALE)?;
        Ok(self.users.now(live.inode, node))
    }

    /// Returns an inode that has a name.
    pub(super) fn named(&self, inode: u64) -> io::Result<Node> {
        let node = self.tree.borrow().node(inode).cloned().ok_or(Errno::NOENT)?;
        Ok(self.users.now(inode, node))
    }

    /// An open inode has been written.
    pub(super) fn wrote(&self, live: &Live) {
        let now = now();
        match live.names.borrow_mut().unnamed_mut() {
            Some(node) => node.times = [node.times[0], now, now],
            None => drop(self.users.written.borrow_mut().insert(live.inode, now)),
        }
    }

    /// Names that an open inode has.
    pub(super) fn link_count(&self, live: &Live) -> u64 {
        match &*live.names.borrow() {
            Linkage::Named => self.tree.borrow().link_count(live.inode),
            Linkage::Orphaned(_) | Linkage::Gone(_) => 0,
        }
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
        let was_written = Cell::new(None);
        let change = |tree: &Tree| {
            // As it is now: others may have changed it while this waited for space.
            let node = set(tree, &self.node(live).map_err(|_| Errno::STALE)?)?;
            if let Some(unnamed) = live.names.borrow_mut().unnamed_mut() {
                *unnamed = node;
                return Ok(((), Vec::new()));
            }
            // What is written from here on is later than this.
            was_written.set(self.users.written.borrow_mut().remove(&live.inode));
            Ok(((), vec![Change::Node(live.inode, node)]))
        };
        if live.names.borrow().unnamed().is_some() {
            return Ok(change(&self.tree.borrow()).map(drop)?);
        }
        let changed = self.change_in(changing, change).await;
        if let Some(time) = was_written.get().filter(|_| changed.is_err()) {
            self.users.written.borrow_mut().entry(live.inode).or_insert(time);
        }
        changed
    }

    /// Before the content of an open file is changed: clears what the kernel would clear.
    pub(super) async fn clear_set_ids(
        &self,
        changing: &Changing<'_>,
        live: &Live,
    ) -> io::Result<()> {
        if self.tree.borrow().stripped(&self.node(live)?).is_none() {
            return Ok(());
        }
        let clear = |tree: &Tree, node: &Node| Ok(tree.stripped(node).unwrap_or(node.clone()));
        self.set_in(changing, live, clear).await
    }

    /// Size of a node, bytes.
    pub(super) fn size(&self, node: &Node) -> u64 {
        match node.task {
            Some(task) => self.streams.borrow().reach(task).map_or(0, |(.., len)| len),
            None => node.text.len() as u64,
        }
    }

    /// The stream of an open file, if it has one.
    pub(super) fn stream_of(&self, live: &Live) -> io::Result<Option<Rc<Stream>>> {
        self.node(live)?.task.map(|task| self.stream(task)).transpose()
    }

    /// The stream of an open file, which gets one, with room for `len` bytes.
    pub(super) async fn stream_for(
        &self,
        changing: &Changing<'_>,
        live: &Live,
        len: u64,
    ) -> io::Result<Rc<Stream>> {
        loop {
            match self.stream_of(live)? {
                Some(stream) if stream.has_room(len) => return Ok(stream),
                Some(stream) => self.move_stream(changing, live, &stream, len).await?,
                None => self.give_stream(changing, live, len).await?,
            }
        }
    }

    async fn give_stream(&self, changing: &Changing<'_>, live: &Live, len: u64) -> io::Result<()> {
        let _taken = self.tasks.take().await;
        if self.node(live)?.task.is_some() {
            return Ok(());
        }
        let task = self.task_for(len).await?;
        let given = self.give_task(changing, live, task).await;
        if given.is_err() && self.node(live).is_ok_and(|node| node.task.is_none()) {
            self.users.set_left([task]);
        }
        given
    }

    /// An open file has its bytes in this task.
    pub(super) async fn give_task(
        &self,
        changing: &Changing<'_>,
        live: &Live,
        task: u64,
    ) -> io::Result<()> {
        let give = |_: &Tree, node: &Node| Ok(Node { task: Some(task), ..node.clone() });
        self.set_in(changing, live, give).await
    }

    /// A task that nobody has, and without a byte, for a long stream. Those of shorter chunks, as
    /// small files leave them, are for small ones: the blocks of a longer file would be far from
    /// each other, and few.
    pub(super) async fn free_task(&self) -> io::Result<u64> {
        loop {
            let wide = self.shape.chunk_len..=u64::MAX;
            if let Some((_, task)) = self.take_free(wide).await? {
                return Ok(task);
            }
            self.make_free().await?;
        }
    }

    /// Tasks with the bytes of their chunks.
    pub(super) fn with_chunks(&self, tasks: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let streams = self.streams.borrow();
        let with = |task| Some((streams.reach(task)?.1, task));
        tasks.into_iter().filter_map(with).filter(|(chunk_len, _)| *chunk_len > 0).collect()
    }

    /// Has the names say when an open file was written.
    pub(super) async fn note_times(&self, live: &Live) -> io::Result<()> {
        if !self.users.written.borrow().contains_key(&live.inode) {
            return Ok(());
        }
        self.set(live, |_, node| Ok(node.clone())).await
    }

    /// Has the names say when any file was written; for who closes the multifile.
    pub(super) async fn note_all_times(&self) -> io::Result<()> {
        let written = self.users.written.take();
        let times: Vec<Change> = {
            let tree = self.tree.borrow();
            let said = written.into_iter().filter_map(|(inode, time)| {
                let node = tree.node(inode)?.clone();
                Some(Change::Node(inode, Node { times: [node.times[0], time, time], ..node }))
            });
            said.collect()
        };
        if times.is_empty() {
            return Ok(());
        }
        let record = Record::of(catalogue::encode(&times));
        self.tree.borrow_mut().apply(times);
        self.append(record).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        let states = [
            ("named", Linkage::Named),
            ("orphaned", Linkage::Orphaned(Node::default())),
            ("gone", Linkage::Gone(Node::default())),
        ];
        invariant::edges::walk(
            include_str!("inodes.rs"),
            &states,
            &[
                ("orphan", |names| names.orphan(Node::default())),
                ("confirm", Linkage::confirm),
                ("restore", |names| {
                    names.restore();
                }),
            ],
        );
    }
}
