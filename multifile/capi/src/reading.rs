//! A handle that reads: all tasks of a multifile, or those of one rank.
//!
//! Every task keeps its own position. A rank that reads fewer tasks than were written gets them one
//! after the other, as if they were one stream.

use std::{collections::BTreeMap, ffi::c_int, fs, os::unix::fs::FileExt, sync::Arc};

use libc::FILE;
use multifile::{
    Argument, ParReader, Reader, Task, TaskReader,
    header::{Header, Keyval},
    keyval::Records,
    parallel::SetInfo,
};

use crate::{
    error::{Failure, Result},
    mode::Kind,
    stream::Streams,
};

/// Tasks being read.
pub(crate) struct Reading {
    source: Tasks,
    set: SetInfo,
    /// Tasks used so far; the others are at their start.
    used: BTreeMap<usize, Used>,
    /// Index in the source.
    current: usize,
    pub(crate) streams: Streams,
    ahead: Ahead,
    /// A finished task is followed by the rank's next one.
    chained: bool,
    /// The file number in the header of the only physical file that was opened.
    only: Option<u32>,
}

enum Tasks {
    All(Reader<fs::File>),
    Own(Vec<(Task, TaskReader<fs::File>)>),
}

/// Requests below this many bytes are served from a buffer.
const SMALL_LEN: usize = 4096;
/// Length of that buffer.
const AHEAD_LEN: usize = 1 << 16;

/// Bytes of a physical file that were read before anybody asked for them.
#[derive(Default)]
struct Ahead {
    number: u32,
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    /// Reads at `at` of physical file `number`, where `left` bytes belong to the task; 0 when the
    /// file does not give any.
    fn read(
        &mut self,
        file: &fs::File,
        number: u32,
        at: u64,
        left: usize,
        part: &mut [u8],
    ) -> usize {
        if self.number != number || self.held(at).is_empty() {
            self.bytes.resize(left.min(AHEAD_LEN), 0);
            let n = file.read_at(&mut self.bytes, at).unwrap_or(0);
            self.bytes.truncate(n);
            (self.number, self.at) = (number, at);
        }
        let held = self.held(at);
        let len = held.len().min(part.len());
        let both = part.get_mut(..len).zip(held.get(..len));
        both.map_or(0, |(part, held)| {
            part.copy_from_slice(held);
            len
        })
    }

    /// Returns the buffered bytes from `at` on.
    fn held(&self, at: u64) -> &[u8] {
        let from = at.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes.get(from..)).unwrap_or_default()
    }
}

/// State of a task that was read from.
pub(crate) struct Used {
    pub(crate) stream: TaskReader<fs::File>,
    pub(crate) records: Option<Records<fs::File>>,
    /// Next record and next key of the iterators.
    pub(crate) next_record: usize,
    pub(crate) next_key: usize,
}

impl Used {
    fn new(stream: TaskReader<fs::File>) -> Self {
        Self { stream, records: None, next_record: 0, next_key: 0 }
    }
}

impl Reading {
    /// All tasks, read by one process.
    pub(crate) fn all(reader: Reader<fs::File>) -> Result<Self> {
        let header = reader.header(0).ok_or(Argument::Task)?;
        let set = set(header, reader.task_count(), reader.file_count())?;
        Ok(Self::new(Tasks::All(reader), set, false))
    }

    /// One task.
    pub(crate) fn one(stream: TaskReader<fs::File>, header: &Header, task: Task) -> Result<Self> {
        let tasks = usize::try_from(header.task_count).unwrap_or(usize::MAX);
        let files = usize::try_from(header.file_count).unwrap_or(usize::MAX);
        let set = set(header, tasks, files)?;
        let new = Self::new(Tasks::Own(vec![(task, stream)]), set, false);
        Ok(Self { only: Some(header.file_number), ..new })
    }

    /// The tasks of one rank, with streams made while opening, which begin where the first task
    /// does.
    pub(crate) fn own(reader: &ParReader<fs::File>, kind: Kind, streams: Streams) -> Result<Self> {
        let tasks = reader.tasks().iter().map(|local| (local.task, local.stream.clone()));
        let source = Tasks::Own(tasks.collect());
        let new = Self::new(source, reader.set(), kind == Kind::Parallel);
        let mut reading = Self { streams, ..new };
        reading.place().map(|()| reading)
    }

    fn new(source: Tasks, set: SetInfo, chained: bool) -> Self {
        let (used, streams, ahead) = (BTreeMap::new(), Streams::default(), Ahead::default());
        Self { source, set, used, current: 0, streams, ahead, chained, only: None }
    }

    /// The same tasks at the same positions, which then move on by themselves.
    pub(crate) fn duplicate(&mut self) -> Result<Self> {
        let Tasks::Own(tasks) = &self.source else {
            return Err(Failure::Mode("all tasks are open anyway"));
        };
        let mut copy = Self::new(Tasks::Own(tasks.clone()), self.set, self.chained);
        if !tasks.is_empty() {
            self.used()?;
        }
        let begun = |used: &Used| Used::new(used.stream.clone());
        copy.used = self.used.iter().map(|(index, used)| (*index, begun(used))).collect();
        copy.current = self.current;
        Ok(copy)
    }

    /// The current task, at the position where the program left its stream.
    pub(crate) fn used(&mut self) -> Result<&mut Used> {
        let number = self.here()?.stream.file_number();
        let at = self.streams.at(number)?;
        let used = self.here()?;
        let Some(at) = at else { return Ok(used) };
        let cursor = used.stream.cursor();
        let (block, in_block) = cursor.block();
        let here = cursor.file_at()?;
        match at.checked_sub(here) {
            Some(ahead) if ahead <= cursor.left_in_block() => used.stream.skip(ahead)?,
            None if here - at <= in_block => {
                used.stream.seek_block(block, in_block - (here - at))?;
            }
            // Wherever the program went, it is not in this block.
            _ => {}
        }
        Ok(used)
    }

    /// The current task as the library left it: the program's stream may stand elsewhere.
    pub(crate) fn here(&mut self) -> Result<&mut Used> {
        let current = self.current;
        if !self.used.contains_key(&current) {
            let stream = match &self.source {
                Tasks::All(reader) => reader.stream(current)?,
                Tasks::Own(tasks) => tasks.get(current).ok_or(Argument::Task)?.1.clone(),
            };
            self.used.insert(current, Used::new(stream));
        }
        Ok(self.used.get_mut(&current).ok_or(Argument::Task)?)
    }

    /// The key-value records of the current task.
    pub(crate) fn records(&mut self) -> Result<&mut Used> {
        if self.set.keyval != Keyval::Inline {
            return Err(Failure::Mode("the file holds no key-value records"));
        }
        let order = self.set.order;
        let used = self.used()?;
        if used.records.is_none() {
            used.records = Some(Records::scan(used.stream.clone(), order)?);
        }
        Ok(used)
    }

    /// Reads from the current task on; fewer bytes than asked for at the end only.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.task_count() == 0 {
            return Ok(0);
        }
        self.used()?;
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_in_block(rest)? {
                0 if self.here()?.stream.next_block() || self.next_task()? => self.place()?,
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    /// Reads within the current block; 0 at its end.
    fn read_in_block(&mut self, rest: &mut [u8]) -> Result<usize> {
        let stream = &self.here()?.stream;
        let left = usize::try_from(stream.cursor().left_in_block()).unwrap_or(usize::MAX);
        let len = left.min(rest.len());
        let (number, at) = (stream.file_number(), stream.cursor().file_at()?);
        let file = Arc::clone(stream.file());
        let part = rest.get_mut(..len).unwrap_or_default();
        let n = if self.streams.exported() {
            // The program's stream has read ahead, and moves on with every byte.
            self.streams.read(number, part)
        } else if len < SMALL_LEN {
            self.ahead.read(&file, number, at, left, part)
        } else {
            0
        };
        let stream = &mut self.here()?.stream;
        if n == 0 && len > 0 {
            // Also what was not to be had otherwise: reports why.
            return Ok(stream.read(part)?);
        }
        stream.skip(u64::try_from(n).map_err(|_| Failure::Internal)?)?;
        Ok(n)
    }

    /// True if there is nothing left; moves to the next block at the end of one.
    pub(crate) fn at_end(&mut self) -> Result<bool> {
        if self.task_count() == 0 {
            return Ok(true);
        }
        let stream = &mut self.used()?.stream;
        if stream.cursor().left_in_block() > 0 {
            return Ok(false);
        }
        if !stream.next_block() && !self.next_task()? {
            return Ok(true);
        }
        self.place()?;
        Ok(false)
    }

    /// Makes task `index` the current one. The program's stream follows with
    /// [`place`](Self::place).
    pub(crate) fn select(&mut self, index: usize) -> Result<()> {
        if index >= self.task_count() {
            return Err(Argument::Task.into());
        }
        self.used()?;
        self.current = index;
        Ok(())
    }

    /// Makes task `index`, which was the current one before, the current one again.
    pub(crate) const fn select_back(&mut self, index: usize) {
        self.current = index;
    }

    /// Moves the program's stream to the position of the current task.
    pub(crate) fn place(&mut self) -> Result<()> {
        if !self.streams.exported() {
            return Ok(());
        }
        let stream = &self.here()?.stream;
        let (number, at) = (stream.file_number(), stream.cursor().file_at()?);
        let file = Arc::clone(stream.file());
        self.streams.follow(number, &file, false)?;
        self.streams.seek(number, at)
    }

    /// The stdio stream on the current task's physical file, at its position.
    pub(crate) fn export(&mut self) -> Result<*mut FILE> {
        let stream = &self.used()?.stream;
        let (number, file) = (stream.file_number(), Arc::clone(stream.file()));
        let stream = self.streams.make(number, &file, false)?;
        self.place()?;
        Ok(stream)
    }

    /// The descriptor of the current task's physical file, at its position.
    pub(crate) fn descriptor(&mut self) -> Result<c_int> {
        let stream = &self.used()?.stream;
        let (number, file) = (stream.file_number(), Arc::clone(stream.file()));
        let lent = self.streams.lend(number, &file, false)?;
        self.place()?;
        Ok(lent)
    }

    /// Index of the task with global rank `rank`, or number `rank` when all are open.
    pub(crate) fn find(&self, rank: i64) -> Option<usize> {
        match &self.source {
            Tasks::All(reader) => {
                usize::try_from(rank).ok().filter(|task| *task < reader.task_count())
            }
            Tasks::Own(tasks) => tasks.iter().position(|(task, _)| task.global_rank == rank),
        }
    }

    /// Returns the multifile's description of task `index` of this handle.
    pub(crate) fn task(&self, index: usize) -> Result<Task> {
        match &self.source {
            Tasks::All(reader) => Ok(reader.task(index)?),
            Tasks::Own(tasks) => Ok(tasks.get(index).ok_or(Argument::Task)?.0),
        }
    }

    /// Number of tasks of this handle.
    pub(crate) fn task_count(&self) -> usize {
        match &self.source {
            Tasks::All(reader) => reader.task_count(),
            Tasks::Own(tasks) => tasks.len(),
        }
    }

    /// All tables, when all tasks are open.
    pub(crate) const fn reader(&self) -> Option<&Reader<fs::File>> {
        match &self.source {
            Tasks::All(reader) => Some(reader),
            Tasks::Own(_) => None,
        }
    }

    /// Returns the properties common to all tasks.
    pub(crate) const fn set(&self) -> SetInfo {
        self.set
    }

    /// Index of the current task.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    /// Position of task `index`: the block and the offset in the physical file.
    pub(crate) fn position(&self, index: usize) -> Result<(usize, u64)> {
        let at = |stream: &TaskReader<fs::File>| -> Result<(usize, u64)> {
            Ok((stream.cursor().block().0, stream.cursor().file_at()?))
        };
        match (self.used.get(&index), &self.source) {
            (Some(used), _) => at(&used.stream),
            (None, Tasks::All(reader)) => at(&reader.stream(index)?),
            (None, Tasks::Own(tasks)) => at(&tasks.get(index).ok_or(Argument::Task)?.1),
        }
    }

    /// The number of the current task's physical file: what its header says if that was read here,
    /// because SIONlib's serial writer numbers its only file 1.
    pub(crate) fn file_number(&mut self) -> Result<u32> {
        let number = self.here()?.stream.file_number();
        let index = usize::try_from(number).map_err(|_| Failure::Internal)?;
        let header = self.reader().and_then(|reader| reader.header(index));
        Ok(header.map(|header| header.file_number).or(self.only).unwrap_or(number))
    }

    /// Goes on with the rank's next task, and with it the stream that its program has.
    fn next_task(&mut self) -> Result<bool> {
        if !self.chained || self.current + 1 >= self.task_count() {
            return Ok(false);
        }
        let from = self.here()?.stream.file_number();
        self.current += 1;
        let stream = &self.here()?.stream;
        let (number, file) = (stream.file_number(), Arc::clone(stream.file()));
        if number != from {
            self.streams.turn(from, number, &file)?;
        }
        Ok(true)
    }
}

fn set(header: &Header, tasks: usize, files: usize) -> Result<SetInfo> {
    let count = |n| u32::try_from(n).map_err(|_| multifile::Error::TooLarge);
    Ok(SetInfo {
        task_count: count(tasks)?,
        file_count: count(files)?,
        fs_block_len: header.fs_block_len,
        order: header.order,
        data_order: header.data_order,
        keyval: header.keyval,
    })
}
