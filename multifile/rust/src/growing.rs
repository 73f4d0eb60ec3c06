//! A multifile that gets more tasks, and more physical files, while it is written, and whose
//! streams are written at any place.
//!
//! It says where bytes belong; who uses it moves them, by whatever means, and keeps the lengths of
//! the streams. Every stream fills its blocks one after the other: all but the last are full, and
//! what nobody wrote in them reads as zeros. So a length is all there is to say of a stream.
//!
//! All tasks of a physical file are there from its start, most of them empty: their number says
//! where the second block of each lies. When they are used up the set gets another physical file.
//!
//! In a *dense* file no task has a second block, and so a chunk can be as long as the stream in it:
//! the next task gets it when that is known, behind all others. The writer puts data into the file,
//! then the size into the header, then the length into the journal. A kill in between leaves bytes
//! behind all chunks, which are cut off before anything else is written, or an empty task.

mod closed;
mod dense;
mod filled;
mod resuming;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::dense::Untold;
use self::filled::{Filled, Lens};
use crate::{
    catalogue::HEAD_LEN_MAX,
    codec::{narrow, wide},
    error::{Argument, Error, OnFile as _, Part, Result},
    finish::finish,
    header::{FILE_COUNT_AT, FLAG2_AT, Header, NOT_COMMITTED},
    journal::{Slot, SlotKey},
    layout::{ChunkPlace, Layout},
    mark::Mark,
    name,
    output::{Manner, Output},
    packing::Packing,
    physical::Front,
    plan::{FilePlan, Options, Style},
    repair::Repair,
    storage::{File, Naming, Storage, read_up_to, write_all},
    writer::{fs_block_len, instance, remove_journal},
};

/// Zeros behind a header up to the first chunk that are written with it; more are left to a change
/// of the length, which takes a network file system several calls.
const FRONT_GAP_MAX: u64 = 1 << 16;

/// A multifile being written at any place, with room for more.
#[derive(Debug)]
pub struct Growing<S: Storage> {
    storage: S,
    path: PathBuf,
    options: Options,
    members: Vec<Member<S::File>>,
}

/// Shape of a new physical file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Number of tasks. Few make long streams possible, for the blocks of all of them have to be
    /// at offsets that a file can have; many make few physical files.
    pub task_count: u32,
    /// Bytes that each task has in a block; 0 in a dense file, whose tasks get a chunk of their own
    /// length each, one after the other ([`Growing::place_next`]).
    pub chunk_len: u64,
    /// Alignment of chunks, bytes; `None`: that of the file system or the options.
    pub fs_block_len: Option<u32>,
}

#[derive(Debug)]
struct Member<F> {
    plan: FilePlan,
    instance: u64,
    file: Arc<F>,
    journal: Option<Arc<F>>,
    /// Blocks in the journal of its last writer; `None` if the journal is of this one.
    recorded: Option<Vec<Filled>>,
    /// Number of tasks at the front whose chunk sizes are in the header.
    told: usize,
}

/// Summary of a multifile's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The first bytes of the first task's stream, or what stands there.
    pub head: Vec<u8>,
    /// It was [made to grow](Growing::create), and nothing was written to it.
    pub is_blank: bool,
    /// It is not closed.
    pub is_open: bool,
}

/// Contents of an existing multifile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Length of every stream, in bytes: of the tasks of file 0, then of those of file 1, and on.
    pub lens: Vec<u64>,
    /// It was never closed: what was completed is there. It is to be [begun](Growing::begin), and
    /// closed.
    pub was_unclosed: bool,
    /// Tasks whose last bytes are lost, or not what was written.
    pub damaged: Vec<usize>,
}

impl<S: Storage> Growing<S> {
    /// Makes a multifile of one physical file, and replaces what was there.
    ///
    /// # Errors
    ///
    /// As [`Writer::create`](crate::Writer::create).
    pub fn create(storage: &S, path: &Path, first: NewFile, options: &Options) -> Result<Self> {
        let mut growing = Self::without_files(storage, path, options)?;
        growing.add(first, false)?;
        Ok(growing)
    }

    /// Makes a multifile in `file`, which is at `path`, is empty, and may be written.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_in(
        storage: &S,
        path: &Path,
        file: S::File,
        first: NewFile,
        options: &Options,
    ) -> Result<Self> {
        let mut growing = Self::without_files(storage, path, options)?;
        growing.add_in(file, first, false)?;
        Ok(growing)
    }

    fn without_files(storage: &S, path: &Path, options: &Options) -> Result<Self> {
        options.check(options.name_for(path))?;
        let (storage, path, options) = (storage.clone(), path.to_owned(), options.clone());
        Ok(Self { storage, path, options, members: Vec::new() })
    }

    /// Opens the multifile at `path`. One that was never closed is written on where its journals
    /// say all, which takes no space, and is repaired first where they do not. Nothing else is
    /// written before [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// As [`Repair`] and [`Reader::open`](crate::Reader::open); [`Part::Blocks`]: a block but the
    /// last of a task is not full, or what was closed is damaged; [`Part::Version`]: it is older
    /// than version 4.
    pub fn open(storage: &S, path: &Path, options: &Options) -> Result<(Self, Held)> {
        let mut repair = Repair::examine_as(storage, path, true)?;
        if let Some(file) = repair.damaged_file() {
            return Err(Error::Damaged { part: Part::Blocks, file });
        }
        if !repair.needed() {
            let whole = repair.into_whole();
            let (growing, lens) =
                Self::of_closed(storage, path, options, whole, true, Filled::len_of)?;
            return Ok((growing, Held { lens, ..Held::default() }));
        }
        let damaged = repair.damaged();
        if let Some(files) = repair.keep()? {
            return Self::resume(storage, path, options, files);
        }
        repair.apply()?;
        let (growing, lens) = Self::closed(storage, path, options, true, Filled::len_of)?;
        Ok((growing, Held { lens, was_unclosed: true, damaged }))
    }

    /// Before the first write to a multifile that was [opened](Self::open): from here on it counts
    /// as unclosed, and its journal says what it holds. May be called again if it fails.
    ///
    /// # Errors
    ///
    /// What the storage reports.
    pub fn begin(&mut self, lens: &[u64]) -> Result<()> {
        let mut rest = lens;
        for number in 0..self.file_count() {
            let member = self.member(number)?;
            let (its, others) =
                rest.split_at_checked(member.plan.ranks.len()).unwrap_or((rest, &[]));
            rest = others;
            let journal = match (&member.recorded, &member.journal) {
                (None, Some(_)) => continue,
                (Some(recorded), Some(journal)) => {
                    member.correct(journal, recorded, its, number)?;
                    Arc::clone(journal)
                }
                (_, None) => self.write_journal(member, its, number)?,
            };
            let rows = (0u32..).zip(its).map(|(local, len)| member.filled(local, *len));
            let rows = rows.map(|filled| Ok(filled?.block_count()));
            let rows = rows.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(1);
            let end = member.plan.layout.end_of(rows)?;
            if member.file.size().on_file(number)? > end {
                // The loss of a node is not to leave a file that counts as closed without tables.
                journal.sync().and_then(|()| member.file.sync()).on_file(number)?;
            }
            // What nobody has written reads as zeros, also where the tables stood.
            member.file.resize(end).on_file(number)?;
            if let Some(member) = self.members.get_mut(narrow(u64::from(number))) {
                (member.journal, member.recorded) = (Some(journal), None);
            }
        }
        Ok(())
    }

    /// Writes the journal of a physical file that is closed, and has it count as unclosed.
    fn write_journal(
        &self,
        member: &Member<S::File>,
        lens: &[u64],
        number: u32,
    ) -> Result<Arc<S::File>> {
        let journal = self.create_journal(number)?;
        let filled = (0u32..).zip(lens).map(|(local, len)| member.filled(local, *len));
        member.record_all(&*journal, &filled.collect::<Result<Vec<_>>>()?).on_file(number)?;
        // What is lost with the node is not to be what was safe before.
        journal.sync().on_file(number)?;
        let header = &member.plan.header;
        write_all(&*member.file, &header.order.bytes_u64(header.flag2), FLAG2_AT)
            .on_file(number)?;
        write_all(&*member.file, &NOT_COMMITTED, header.commit_at()).on_file(number)?;
        Ok(journal)
    }

    /// Adds a physical file. On return, if it is to be `durable`, it is on the disk before the set
    /// counts it: a set that may be there after the loss of the node is not to count a file that is
    /// lost.
    ///
    /// # Errors
    ///
    /// What the storage reports: then there is none.
    pub fn add(&mut self, new: NewFile, durable: bool) -> Result<()> {
        // A journal of an earlier one says nothing of this one, and is replaced.
        let number = self.file_count();
        let path = self.storage.physical_name(&self.path, number);
        let file = self.storage.create(&path, Naming::of(&self.path, number), true);
        self.add_in(file.on_file(number)?, new, durable)
    }

    fn add_in(&mut self, file: S::File, new: NewFile, durable: bool) -> Result<()> {
        let number = self.file_count();
        let before: usize = self.members.iter().map(|member| member.plan.ranks.len()).sum();
        let block_len = match (new.fs_block_len, self.members.first()) {
            (Some(len), _) => len,
            (None, Some(first)) => first.plan.header.fs_block_len,
            (None, None) => fs_block_len(&file, &self.options)?,
        };
        let instance = instance();
        let name = self.options.name_for(&self.path);
        let requests = vec![new.chunk_len; narrow(u64::from(new.task_count))];
        let ranks =
            (before..).take(requests.len()).map(|rank| i64::try_from(rank).unwrap_or(i64::MAX));
        let plan = FilePlan {
            header: Header {
                file_count: number + 1,
                file_number: number,
                flag2: Mark::Open(instance).encode(),
                prefix: name.to_vec(),
                ..Header::new(self.options.order, block_len, new.task_count)
            },
            ranks: ranks.collect(),
            layout: Layout::new(&requests, block_len, Packing::Aligned)?,
            mapping: None,
            style: Style::Parallel,
            hints: self.options.hints,
            checksums: false,
            durable: self.options.durable,
        };
        let journal = Some(self.create_journal(number)?);
        let (mut front, data_at) = (plan.front(), plan.layout.data_at());
        if data_at - wide(front.len()) <= FRONT_GAP_MAX {
            front.resize(narrow(data_at), 0);
        }
        write_all(&file, &front, 0).on_file(number)?;
        if wide(front.len()) < data_at {
            file.resize(data_at).on_file(number)?;
        }
        if durable {
            file.sync().on_file(number)?;
        }
        // Who dies before file 0 says so leaves this one out, which holds nothing; what the others
        // do not say yet then, repair has them say.
        for (other, member) in (0u32..).zip(&mut self.members) {
            let header = &mut member.plan.header;
            (header.file_count, header.file_number) = (number + 1, other);
            let numbers = [header.file_count, other].map(|number| header.order.bytes_u32(number));
            write_all(&*member.file, numbers.as_flattened(), FILE_COUNT_AT).on_file(other)?;
        }
        self.members.push(Member { journal, ..Member::new(plan, instance, Arc::new(file)) });
        Ok(())
    }

    fn create_journal(&self, number: u32) -> Result<Arc<S::File>> {
        let path = name::journal(&self.storage.physical_name(&self.path, number));
        let created = self.storage.create(&path, Naming::Derived(&self.path), true);
        created.map(Arc::new).on_file(number)
    }

    /// Looks at the multifile at `path`, closed or not, and changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`]: it is none; what the storage reports.
    pub fn peek(storage: &S, path: &Path) -> Result<Peek> {
        let file = storage.open(path, None).on_file(0)?;
        let front = Front::load(file, 0)?;
        let place = front.layout.place(0).unwrap_or_default();
        let mut head = vec![0; HEAD_LEN_MAX.min(narrow(place.chunk_len))];
        let len = read_up_to(&*front.file, &mut head, place.start_at);
        head.truncate(len.on_file(0)?);
        let is_open = matches!(Mark::decode(front.header.flag2), Mark::Open(_));
        let is_blank = is_open && front.size == front.layout.data_at();
        Ok(Peek { head, is_blank, is_open })
    }

    /// Number of physical files.
    #[must_use]
    pub fn file_count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Alignment of the chunks of physical file `file`, bytes.
    #[must_use]
    pub fn fs_block_len(&self, file: u32) -> u32 {
        self.member(file).map_or(0, |member| member.plan.header.fs_block_len)
    }

    /// Number of tasks of physical file `file`.
    #[must_use]
    pub fn task_count(&self, file: u32) -> u32 {
        self.member(file).map_or(0, |member| member.plan.header.task_count)
    }

    /// Global ranks of the tasks of physical file `file`.
    #[must_use]
    pub fn ranks(&self, file: u32) -> &[i64] {
        self.member(file).map_or(&[], |member| &member.plan.ranks)
    }

    /// Where the chunks of a task are.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn place(&self, file: u32, task: u32) -> Result<ChunkPlace> {
        self.member(file)?.plan.place(task)
    }

    /// Where physical file `file` ends that has so many blocks of every task.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub fn end_of(&self, file: u32, blocks: u64) -> Result<u64> {
        self.member(file)?.plan.layout.end_of(blocks)
    }

    /// Physical file `file`.
    #[must_use]
    pub fn file(&self, file: u32) -> Option<&Arc<S::File>> {
        self.member(file).ok().map(|member| &member.file)
    }

    /// The journal of physical file `file`, once there is one.
    #[must_use]
    pub fn journal(&self, file: u32) -> Option<&Arc<S::File>> {
        self.member(file).ok()?.journal.as_ref()
    }

    /// The place of a task's blocks in the journal: of its first one, which says of all the others
    /// where they are.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn key(&self, file: u32, task: u32) -> Result<SlotKey> {
        Ok(self.member(file)?.key(task, 0))
    }

    /// Writes the tables behind the data and marks every physical file as closed; the streams are
    /// as long as `lens` says, which has them in the order of [`Held::lens`]. If it is to be
    /// `durable`, all of it is when the journals are removed.
    ///
    /// # Errors
    ///
    /// What the storage reports; files not yet marked stay unclosed, for `repair`.
    pub fn close(mut self, lens: &[u64], durable: bool) -> Result<()> {
        self.members.iter_mut().for_each(|member| member.plan.durable = durable);
        let counts = self.members.iter().map(|member| member.plan.ranks.len());
        let mapping = (0u32..)
            .zip(counts.clone())
            .flat_map(|(file, count)| (0u32..).take(count).map(move |local| (file, local)));
        let mapping = (self.members.len() > 1).then(|| mapping.collect());
        if let Some(first) = self.members.first_mut() {
            first.plan.mapping = mapping;
        }
        let mut end = lens.len();
        // File 0 makes the set readable, so it comes last.
        for (number, member) in (0..self.file_count()).zip(&self.members).rev() {
            let first = end.saturating_sub(member.plan.ranks.len());
            let lens = lens.get(first..end);
            let lens = invariant!(some lens, "every stream has a length",
                else return Err(Argument::Task.into()));
            invariant!(lens.len() == member.plan.ranks.len(), "every stream has a length",
                else return Err(Argument::Task.into()));
            let lens = Lens { plan: &member.plan, lens };
            end = first;
            let manner = Manner::without_journal(number, member.plan.header.task_count);
            // By another name by now, or with another file at its own, it is this one all the same.
            let file = Arc::clone(&member.file);
            if member.told < member.plan.layout.placed() {
                write_all(&*file, &member.plan.front(), 0).on_file(number)?;
            }
            let mut output = Output::new(&self.storage, file, &manner);
            finish(&mut output, &member.plan, &lens)?;
        }
        (0..self.file_count())
            .try_for_each(|number| remove_journal(&self.storage, &self.path, number))
    }

    fn member(&self, file: u32) -> Result<&Member<S::File>> {
        self.members.get(narrow(u64::from(file))).ok_or_else(|| Argument::Task.into())
    }

    fn member_mut(&mut self, file: u32) -> Result<&mut Member<S::File>> {
        self.members.get_mut(narrow(u64::from(file))).ok_or_else(|| Argument::Task.into())
    }
}

impl<F: File> Member<F> {
    fn new(plan: FilePlan, instance: u64, file: Arc<F>) -> Self {
        let told = plan.layout.placed();
        Self { plan, instance, file, journal: None, recorded: None, told }
    }

    /// How a task's stream of so many bytes fills its blocks.
    fn filled(&self, task: u32, len: u64) -> Result<Filled> {
        Ok(Filled { chunk_len: self.plan.place(task)?.chunk_len, len })
    }

    /// Has the journal say what a stream uses of a block.
    fn record(&self, journal: &F, task: u32, block: u64, filled: Filled) -> io::Result<()> {
        let key = self.key(task, block);
        let at = key.at().ok_or(io::ErrorKind::FileTooLarge)?;
        write_all(journal, &Slot::of(filled.used(block), None).encode(&key), at)
    }

    /// Has the journal say what all streams use of their blocks: slots next to each other in one
    /// write.
    fn record_all(&self, journal: &F, filled: &[Filled]) -> io::Result<()> {
        debug_assert!(filled.len() <= self.plan.ranks.len(), "streams are of this file's tasks");
        let has = |filled: &Filled, block| filled.len > 0 && block < filled.block_count();
        let mut row: Vec<_> = (0u32..).zip(filled).filter(|(_, filled)| has(filled, 0)).collect();
        for block in 0.. {
            row.retain(|(_, filled)| has(filled, block));
            if row.is_empty() {
                break;
            }
            for run in row.chunk_by(|(before, _), (task, _)| before + 1 == *task) {
                let slots = run.iter().map(|(task, filled)| {
                    let key = self.key(*task, block);
                    Slot::of(filled.used(block), None).encode(&key)
                });
                let slots: Vec<_> = slots.collect();
                let first = run.first().map_or(0, |(task, _)| *task);
                let at = self.key(first, block).at().ok_or(io::ErrorKind::FileTooLarge)?;
                write_all(journal, &slots.concat(), at)?;
            }
        }
        Ok(())
    }

    fn key(&self, task: u32, block: u64) -> SlotKey {
        let (instance, task_count) = (self.instance, self.plan.header.task_count);
        SlotKey { instance, task_count, task, block }
    }
}
