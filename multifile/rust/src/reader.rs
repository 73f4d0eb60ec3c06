//! All tasks of a multifile, read by one process.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    result,
    sync::Arc,
};

use crate::{
    backing::{FREE_LEN, hole_len, read_stored},
    blocks::Table,
    catalogue::{Catalogue, Reading, Unreadable},
    codec::{narrow, wide},
    cursor::Cursor,
    error::{Argument, Error, OnFile as _, Part, Result},
    header::Header,
    layout::Layout,
    name,
    physical::{self, Physical, check_set},
    storage::{File, Storage, read_exactly},
    sums,
};

/// (file, local rank) of every task of a set.
pub(crate) type Mapping = Vec<(u32, u32)>;

/// A multifile with all its tasks, opened for reading.
#[derive(Debug)]
pub struct Reader<F> {
    /// By number; 0 for a file that was opened alone.
    pub(crate) files: BTreeMap<usize, Physical<F>>,
    /// (file, local rank) of every task of a set; `None` for a single physical file.
    pub(crate) mapping: Option<Mapping>,
}

/// Description of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Physical file that holds the task.
    pub file: u32,
    /// Index of the task in that file.
    pub local_rank: u32,
    /// Rank the writer gave the task.
    pub global_rank: i64,
    /// Chunk size in bytes: what is reserved of each block.
    pub chunk_len: u64,
}

/// The stream of one task, with a read position of its own.
#[derive(Debug)]
pub struct TaskReader<F> {
    file: Arc<F>,
    number: u32,
    cursor: Cursor,
}

impl<F: File> Reader<F> {
    /// Opens the multifile at `path`. File 0 of a set opens all of its files, any other only
    /// itself.
    ///
    /// Reads all tables; nothing is kept of blocks that do not exist.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] with the number of a member that cannot be opened or read.
    /// - [`Error::Unclosed`] for a file that was never closed.
    /// - [`Error::Damaged`] for a file that contradicts the format or its set.
    pub fn open<S: Storage<File = F>>(storage: &S, path: &Path) -> Result<Self> {
        let first = Self::open_first(storage, path)?;
        let count = u32::try_from(first.file_count()).map_err(|_| Error::TooLarge)?;
        first.with_members(storage, path, 1..count)
    }

    /// As [`open`](Self::open), but of a set only file 0 and the files of those tasks that `wanted`
    /// names when it is told how many there are: only these can be asked about.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but only for what is opened.
    pub(crate) fn open_tasks<S, W>(
        storage: &S,
        path: &Path,
        wanted: impl FnOnce(usize) -> W,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
        W: IntoIterator<Item = usize>,
    {
        let first = Self::open_first(storage, path)?;
        let mapping = first.mapping.as_deref().unwrap_or_default();
        let members = 1..u32::try_from(first.file_count()).map_err(|_| Error::TooLarge)?;
        let tasks = wanted(mapping.len()).into_iter().filter_map(|task| mapping.get(task));
        let files = tasks.map(|(file, _)| *file).filter(|file| members.contains(file));
        let files: BTreeSet<u32> = files.collect();
        first.with_members(storage, path, files)
    }

    /// Opens file 0 of a set, and reads its mapping.
    pub(crate) fn open_first<S: Storage<File = F>>(storage: &S, path: &Path) -> Result<Self> {
        let first = Physical::open(storage, path, 0)?;
        let header = &first.front.header;
        let mapping = if header.file_count == 1 || header.file_number > 0 {
            None
        } else {
            let at = first.table.end().ok_or(Error::TooLarge)?;
            Some(physical::mapping(&*first.front.file, header, at)?)
        };
        Ok(Self { files: BTreeMap::from([(0, first)]), mapping })
    }

    /// Opens the members of these `numbers` too, and checks that all are of one set.
    pub(crate) fn with_members<S: Storage<File = F>>(
        mut self,
        storage: &S,
        path: &Path,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<Self> {
        for number in numbers {
            let member = Physical::open(storage, &storage.physical_name(path, number), number)?;
            self.files.insert(narrow(number.into()), member);
        }
        if let Some(mapping) = &self.mapping {
            check_set(&self.files, mapping)?;
        }
        Ok(self)
    }

    /// As [`open`](Self::open) for a set with buddy copies: every physical file that cannot be
    /// opened is replaced by its copy in the first of `levels` levels that can.
    ///
    /// # Errors
    ///
    /// What opening the original returned, for the first file without a readable copy.
    pub fn open_with_buddies<S>(storage: &S, path: &Path, levels: u32) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let open = |number| {
            let original = Physical::open(storage, &storage.physical_name(path, number), number);
            original.or_else(|error| {
                let mut copies = (0..levels).map(|level| {
                    let copy = storage.physical_name(&name::buddy(path, level), number);
                    Physical::open(storage, &copy, number)
                });
                copies.find_map(Result::ok).ok_or(error)
            })
        };
        let first = open(0)?;
        let file_count = first.front.header.file_count;
        let mut files = BTreeMap::from([(0, first)]);
        for number in 1..file_count {
            files.insert(narrow(number.into()), open(number)?);
        }
        let mut tasks = Vec::new();
        for file in files.values() {
            let ranks = file.front.ranks.iter().zip(0u32..);
            tasks.extend(ranks.map(|(rank, local)| (*rank, file.front.number, local)));
        }
        // Tasks that only hold copies have negative ranks.
        tasks.retain(|(rank, ..)| *rank >= 0);
        tasks.sort_unstable();
        let mapping: Mapping = tasks.into_iter().map(|(_, file, local)| (file, local)).collect();
        check_set(&files, &mapping)?;
        Ok(Self { files, mapping: Some(mapping) })
    }

    /// Number of tasks: in a set those that the mapping names.
    #[must_use]
    pub fn task_count(&self) -> usize {
        let single = || self.files.get(&0).map_or(0, |file| file.front.ranks.len());
        self.mapping.as_ref().map_or_else(single, Vec::len)
    }

    /// Returns the description of task `task`, counted over the whole set.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn task(&self, task: usize) -> Result<Task> {
        let (file, local) = self.locate(task)?;
        let front = &file.front;
        let found = front.ranks.get(local).copied().zip(front.chunk_len(local));
        let (global_rank, chunk_len) = found.ok_or(Argument::Task)?;
        let local_rank = u32::try_from(local).map_err(|_| Error::TooLarge)?;
        Ok(Task { file: front.number, local_rank, global_rank, chunk_len })
    }

    /// Opens the stream of task `task` at its start.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`]; [`Part::Blocks`] when the task's block lengths do not fit its chunk.
    pub fn stream(&self, task: usize) -> Result<TaskReader<F>> {
        let (file, local) = self.locate(task)?;
        let cursor = file.cursor(local)?;
        Ok(TaskReader { file: Arc::clone(&file.front.file), number: file.front.number, cursor })
    }

    /// Used bytes of every block of task `task`.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn block_lens(&self, task: usize) -> Result<&[u64]> {
        let (file, local) = self.locate(task)?;
        Ok(file.blocks.of(local))
    }

    /// Largest number of blocks of any task.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.files.values().map(|file| file.blocks.block_count()).max().unwrap_or(0)
    }

    /// The header of physical file `file`, or of the only one opened.
    #[must_use]
    pub fn header(&self, file: usize) -> Option<&Header> {
        self.files.get(&file).map(|file| &file.front.header)
    }

    /// The places of the chunks of physical file `file`.
    #[must_use]
    pub fn layout(&self, file: usize) -> Option<&Layout> {
        self.files.get(&file).map(|file| &file.front.layout)
    }

    /// Where the block table of physical file `file` stands.
    #[must_use]
    pub fn table(&self, file: usize) -> Option<Table> {
        self.files.get(&file).map(|file| file.table)
    }

    /// Number of physical files: of the set, or 1 for a file that was opened alone.
    #[must_use]
    pub fn file_count(&self) -> usize {
        let first = self.files.get(&0).filter(|_| self.mapping.is_some());
        first.map_or(1, |first| narrow(first.front.header.file_count.into()))
    }

    /// Physical file `file`, to read by other means.
    #[must_use]
    pub fn file(&self, file: usize) -> Option<&Arc<F>> {
        self.files.get(&file).map(|file| &file.front.file)
    }

    /// True if every physical file has checksums of its blocks.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.files.values().all(|file| matches!(file.checksums_at(), Ok(Some(_))))
    }

    /// (file, local rank) of every task of a set; `None` for a single physical file.
    #[must_use]
    pub fn mapping(&self) -> Option<&[(u32, u32)]> {
        self.mapping.as_deref()
    }

    /// The CRC-32C of block `block` of task `task`; `None` when the file has no checksums.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`], [`Argument::Position`] for a block that the task does not have, and the
    /// errors of reading.
    pub fn checksum(&self, task: usize, block: usize) -> Result<Option<u32>> {
        let (file, local) = self.locate(task)?;
        file.blocks.of(local).get(block).ok_or(Argument::Position)?;
        file.checksum(u32::try_from(local).map_err(|_| Error::TooLarge)?, wide(block))
    }

    /// Compares every block of task `task` with its checksum. False when the file has none.
    ///
    /// # Errors
    ///
    /// [`Part::Checksum`] for the first block that differs, and the errors of reading.
    pub fn verify(&self, task: usize) -> Result<bool> {
        let (file, local) = self.locate(task)?;
        let (front, place) = (&file.front, file.cursor(local)?.place());
        for (block, len) in file.blocks.of(local).iter().enumerate() {
            let Some(expected) = self.checksum(task, block)? else {
                return Ok(false);
            };
            let at = place.block_at(block)?;
            if sums::append(&*front.file, front.number, 0, at..at + len)? != expected {
                return Err(Error::Damaged { part: Part::Checksum, file: front.number });
            }
        }
        Ok(true)
    }

    pub(crate) fn into_parts(self) -> (Vec<Physical<F>>, Option<Mapping>) {
        (self.files.into_values().collect(), self.mapping)
    }

    fn locate(&self, task: usize) -> Result<(&Physical<F>, usize)> {
        let (file, local) = match &self.mapping {
            None => (0, task),
            Some(mapping) => {
                let (file, local) = *mapping.get(task).ok_or(Argument::Task)?;
                (narrow(u64::from(file)), narrow(u64::from(local)))
            }
        };
        let file = self.files.get(&file).filter(|file| local < file.front.ranks.len());
        Ok((file.ok_or(Argument::Task)?, local))
    }
}

impl<F: File> TaskReader<F> {
    /// Opens the stream of one task without reading the tables of the others: a fixed number of
    /// small reads, plus one for each block of the task, if the chunks of the file are marked as
    /// equal; otherwise the chunk sizes are read once.
    ///
    /// `task` counts over the whole set when `path` is its file 0.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`], but only for what is read; [`Argument::Task`].
    pub fn open<S>(storage: &S, path: &Path, task: u32) -> Result<(Self, Header, Task)>
    where
        S: Storage<File = F>,
    {
        let open =
            |number| storage.open(&storage.physical_name(path, number), None).on_file(number);
        let first = open(0)?;
        let (header, size) = physical::header(&first, 0)?;
        if header.file_count == 1 || header.file_number > 0 {
            return Self::at(first, 0, header, size, task);
        }
        let table = Table::find(&first, 0, &header, size)?;
        let at = table.end().ok_or(Error::TooLarge)?;
        let mut bytes = [0; 4];
        read_exactly(&first, 0, &mut bytes, at)?;
        if task >= header.order.u32(bytes) {
            return Err(Argument::Task.into());
        }
        let mut pair = [0; 8];
        read_exactly(&first, 0, &mut pair, at + 4 + 8 * u64::from(task))?;
        let (number, local) = physical::mapping_entry(header.order.u64(pair), &header);
        if number == 0 {
            return Self::at(first, 0, header, size, local);
        }
        if number >= header.file_count {
            return Err(Error::Damaged { part: Part::Mapping, file: 0 });
        }
        let file = open(number)?;
        let (header, size) = physical::header(&file, number)?;
        Self::at(file, number, header, size, local)
    }

    /// Opens a stream whose place is known.
    pub(crate) fn of(file: Arc<F>, number: u32, cursor: Cursor) -> Self {
        Self { file, number, cursor }
    }

    pub(crate) fn at(
        file: F,
        number: u32,
        header: Header,
        size: u64,
        local_rank: u32,
    ) -> Result<(Self, Header, Task)> {
        let table = Table::find(&file, number, &header, size)?;
        let spot = physical::spot(&file, number, &header, local_rank)?;
        let lens = table.load_task(&file, number, local_rank)?;
        let cursor = Cursor::new(spot.place, lens, number)?;
        let (global_rank, chunk_len) = (spot.global_rank, spot.place.chunk_len);
        let task = Task { file: number, local_rank, global_rank, chunk_len };
        Ok((Self { file: Arc::new(file), number, cursor }, header, task))
    }

    /// Fills `buf` from the position on, across blocks, and returns the bytes read: fewer than
    /// asked for only at the end of the stream. The position moves by as much.
    ///
    /// # Errors
    ///
    /// [`Part::Truncated`] when the file ends before the stream does; what the storage reports.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some((at, len)) = self.cursor.extent()? else { break };
            let len = narrow(len).min(rest.len());
            let part = rest.get_mut(..len).unwrap_or_default();
            read_exactly(&*self.file, self.number, part, at)?;
            self.cursor.advance(wide(len));
            done += len;
        }
        Ok(done)
    }

    /// Reads from the position to the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Part::Blocks`] when more than 64 MiB of that are holes; as [`read`](Self::read).
    pub fn read_rest(&mut self) -> Result<Vec<u8>> {
        let (mut bytes, mut free) = (Vec::new(), FREE_LEN);
        while let Some((at, len)) = self.cursor.extent()? {
            read_stored(&*self.file, self.number, at..at + len, &mut bytes, &mut free)?;
            self.cursor.advance(len);
        }
        Ok(bytes)
    }

    /// Reads the names in the stream, of which its position says nothing afterwards.
    ///
    /// # Errors
    ///
    /// [`Part::Blocks`] when more than 64 MiB of them are holes; as [`read`](Self::read). Within,
    /// why these are no names: then little was read.
    pub fn read_names(&mut self) -> Result<result::Result<Reading, Unreadable>> {
        Catalogue::read_parts(self.cursor.total(), |part| {
            self.seek(part.start)?;
            if part.start > 0 {
                return self.read_rest();
            }
            let mut head = vec![0; narrow(part.end)];
            self.read(&mut head).map(|_| head)
        })
    }

    /// Moves to byte `at` of the stream.
    ///
    /// # Errors
    ///
    /// [`Argument::Position`] beyond the end, and the position stays.
    pub fn seek(&mut self, at: u64) -> Result<()> {
        self.cursor.seek(at)
    }

    /// Moves to byte `at` of block `block`.
    ///
    /// # Errors
    ///
    /// [`Argument::Position`], and the position stays.
    pub fn seek_block(&mut self, block: usize, at: u64) -> Result<()> {
        self.cursor.seek_block(block, at)
    }

    /// Moves to the start of the next block; false at the last one.
    pub fn next_block(&mut self) -> bool {
        self.cursor.next_block()
    }

    /// Moves by `len` bytes of the current block that were read by other means.
    ///
    /// # Errors
    ///
    /// [`Argument::Position`] when the block has fewer left.
    pub fn skip(&mut self, len: u64) -> Result<()> {
        if len > self.cursor.left_in_block() {
            return Err(Argument::Position.into());
        }
        self.cursor.advance(len);
        Ok(())
    }

    /// Moves over a hole that the file has from the position on, within one block, and returns its
    /// length: so many zeros need not be read.
    ///
    /// # Errors
    ///
    /// What the storage reports.
    pub fn skip_hole(&mut self) -> Result<u64> {
        let Some((at, len)) = self.cursor.extent()? else { return Ok(0) };
        let hole_len = hole_len(&*self.file, self.number, at..at + len)?;
        self.cursor.advance(hole_len);
        Ok(hole_len)
    }

    /// The position, and what there is before and behind it.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The physical file, to read by other means.
    #[must_use]
    pub const fn file(&self) -> &Arc<F> {
        &self.file
    }

    /// Number of the physical file in its set.
    #[must_use]
    pub const fn file_number(&self) -> u32 {
        self.number
    }
}

impl<F> Clone for TaskReader<F> {
    fn clone(&self) -> Self {
        Self { file: Arc::clone(&self.file), number: self.number, cursor: self.cursor.clone() }
    }
}

impl<F: File> io::Read for TaskReader<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Self::read(self, buf).map_err(io::Error::from)
    }
}
