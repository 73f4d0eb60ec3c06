//! The streams of a multifile by their tasks.
//!
//! Most are never written, and all that is asked of them is where they are: so much of each is
//! kept, and the [`Stream`] is made for who asks for it.

use std::rc::Rc;

use multifile::{
    journal::{Slot, SlotBytes},
    layout::ChunkPlace,
};

use super::{member::Member, piece::Piece, stream::Stream};

/// The physical files, and the streams in them.
#[derive(Debug)]
pub(super) struct Streams {
    members: Vec<Rc<Member>>,
    /// Of one member after the other.
    tasks: Vec<Task>,
    /// Bytes of a chunk that has streams which may get longer than it.
    wide_len: u64,
}

/// One task's stream: as it was when its physical file was taken in, until it is made.
#[derive(Debug)]
pub(super) struct Task {
    start_at: u64,
    chunk_len: u64,
    len: u64,
    made: Option<Rc<Stream>>,
}

/// Where a stream begins, bytes of its chunks, and its length.
pub(super) type Reach = (u64, u64, u64);

impl Task {
    pub(super) fn new(place: ChunkPlace, len: u64) -> Self {
        let ChunkPlace { start_at, chunk_len, .. } = place;
        Self { start_at, chunk_len, len, made: None }
    }

    /// Blocks that it has bytes in.
    pub(super) fn rows(&self) -> u64 {
        if self.chunk_len == 0 { 0 } else { self.len.div_ceil(self.chunk_len) }
    }

    /// True if its chunks are shorter than so many bytes.
    pub(super) const fn is_shorter(&self, len: u64) -> bool {
        self.chunk_len < len
    }

    fn reach(&self) -> Reach {
        let unmade = (self.start_at, self.chunk_len, self.len);
        self.made.as_ref().map_or(unmade, |stream| stream.reach())
    }

    fn place_in(&self, member: &Member) -> ChunkPlace {
        let Self { start_at, chunk_len, .. } = *self;
        // The skip of a dense file grows with the file, and no task has a second block there.
        ChunkPlace { start_at, chunk_len, skip: member.skip().max(chunk_len) }
    }
}

impl Streams {
    /// None; those in chunks of fewer than `wide_len` bytes will stay within them.
    pub(super) const fn new(wide_len: u64) -> Self {
        Self { members: Vec::new(), tasks: Vec::new(), wide_len }
    }

    /// Takes a physical file in, whose first task is the next one.
    pub(super) fn add(&mut self, member: Rc<Member>, tasks: Vec<Task>) {
        debug_assert_eq!(member.first_task, self.len() as u64, "tasks follow each other");
        self.members.push(member);
        self.tasks.extend(tasks);
    }

    /// The physical files by their numbers.
    pub(super) fn members(&self) -> &[Rc<Member>] {
        &self.members
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// The stream of a task.
    pub(super) fn get(&mut self, task: u64) -> Option<Rc<Stream>> {
        let (index, wide_len) = (usize::try_from(task).ok()?, self.wide_len);
        let member = self.member_of(task)?;
        if let Some(made) = &self.tasks.get(index)?.made {
            return Some(Rc::clone(made));
        }
        let member = Rc::clone(member);
        let known = self.tasks.get_mut(index)?;
        let (place, key) = (known.place_in(&member), member.key(task));
        let stream = Stream::new(Rc::clone(&member), place, key, known.len);
        if known.len > 0 && member.was_found(task) {
            stream.keep_synced();
        }
        // Names may get longer than a chunk in any case.
        if task > 0 && known.is_shorter(wide_len) && known.len <= known.chunk_len {
            stream.keep_within_chunk();
        }
        Some(Rc::clone(known.made.insert(Rc::new(stream))))
    }

    /// Gives a chunk to a task; it holds zeros unless it `is_soiled`. `None`: no such task.
    pub(super) fn settle(&mut self, task: u64, place: ChunkPlace, is_soiled: bool) -> Option<()> {
        let known = self.tasks.get_mut(usize::try_from(task).ok()?)?;
        if known.made.is_some() || !is_soiled {
            self.get(task)?.settle(place, is_soiled);
            return Some(());
        }
        debug_assert_eq!(known.len, 0, "chunks are given to new streams");
        (known.start_at, known.chunk_len) = (place.start_at, place.chunk_len);
        Some(())
    }

    /// Sets the length of a stream whose bytes were written to its chunk, before its slot is.
    pub(super) fn fill(&mut self, task: u64, len: u64) -> Option<()> {
        let known = self.tasks.get_mut(usize::try_from(task).ok()?)?;
        match &known.made {
            Some(stream) => stream.extend_to(len),
            None => known.len = len,
        }
        Some(())
    }

    /// The physical file of a task in one chunk, the offset of its slot in the journal, and the
    /// slot.
    pub(super) fn slot(&self, task: u64) -> Option<(&Rc<Member>, u64, SlotBytes)> {
        let (member, (.., len)) = (self.member_of(task)?, self.reach(task)?);
        let key = member.key(task);
        Some((member, key.at()?, Slot::of(len, None).encode(&key)))
    }

    /// The physical file with the stream of a task, and where it begins in that, if all of it
    /// follows there.
    pub(super) fn whole(&self, task: u64) -> Option<(&Rc<Member>, u64)> {
        let (known, member) = (self.tasks.get(usize::try_from(task).ok()?)?, self.member_of(task)?);
        let at = match &known.made {
            Some(stream) => stream.whole_at()?,
            None => {
                let all = Piece::in_full_blocks(known.place_in(member), 0, known.len)?;
                Some(all.at).filter(|_| all.len == known.len)?
            }
        };
        Some((member, at))
    }

    /// Place and length of the stream of a task.
    pub(super) fn reach(&self, task: u64) -> Option<Reach> {
        self.tasks.get(usize::try_from(task).ok()?).map(Task::reach)
    }

    /// The same of all streams by their tasks.
    pub(super) fn reaches(&self) -> impl Iterator<Item = Reach> {
        self.tasks.iter().map(Task::reach)
    }

    /// The same of those in a physical file.
    pub(super) fn reaches_in(&self, member: &Member) -> impl Iterator<Item = Reach> {
        let (first, count) = (usize::try_from(member.first_task), member.task_count());
        let its = self.tasks.iter().skip(first.unwrap_or(usize::MAX));
        its.take(usize::try_from(count).unwrap_or(usize::MAX)).map(Task::reach)
    }

    /// True if nobody reads or writes the stream of a task.
    pub(super) fn is_unused(&self, task: u64) -> bool {
        let known = usize::try_from(task).ok().and_then(|index| self.tasks.get(index));
        let made = known.and_then(|known| known.made.as_ref());
        made.is_none_or(|stream| Rc::strong_count(stream) == 1)
    }

    /// A task that nobody has is empty, and so is its chunk. `None`: no such task.
    pub(super) fn empty(&mut self, task: u64) -> Option<()> {
        let known = self.tasks.get_mut(usize::try_from(task).ok()?)?;
        let (start_at, chunk_len, _) = known.reach();
        *known = Task { start_at, chunk_len, len: 0, made: None };
        Some(())
    }

    /// The physical file of a task.
    pub(super) fn member_of(&self, task: u64) -> Option<&Rc<Member>> {
        let behind = self.members.partition_point(|member| member.first_task <= task);
        self.members.get(behind.checked_sub(1)?)
    }
}
