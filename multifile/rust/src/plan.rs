//! From what a writer asks for to what every physical file of the set will say: no I/O.

use std::{os::unix::ffi::OsStrExt, path::Path};

use crate::{
    codec::{Order, narrow, unsigned, wide},
    error::{Argument, Error, Result},
    header::{FORMAT_VERSION, Header, Keyval, PREFIX_LEN},
    layout::{ChunkPlace, Layout, OFFSET_MAX},
    mark::Mark,
    packing::Packing,
    physical::{self, Physical},
    storage::File,
};

/// One task to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Physical file to put it into.
    pub file: u32,
    /// Index in that file.
    pub local_rank: u32,
    /// The number it is known by. In a set, a negative one keeps the task out of the mapping, as
    /// buddy files do with the tasks that only hold copies.
    pub global_rank: i64,
    /// Bytes it asks for in each block.
    pub chunk_len: u64,
}

/// Which of SIONlib's writers to follow where they differ (format rules 4.4 and 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// One process writes all tasks: file number 1, an empty mapping.
    #[default]
    Serial,
    /// Each rank writes one task: a mapping only in sets.
    Parallel,
    /// Ranks write several tasks: always a mapping; unused slots of the block table are -1.
    Mapped,
}

/// How to write a multifile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// File-system block size in bytes to align chunks to; `None` asks the file system.
    pub fs_block_len: Option<u32>,
    /// Byte order of the format's integers.
    pub order: Order,
    /// Byte order the application says its data has.
    pub data_order: Order,
    /// Streams hold key-value records.
    pub keyval: bool,
    /// How tasks share blocks of the file system.
    pub packing: Packing,
    /// Which writer to follow.
    pub style: Style,
    /// Keep completion information until the file is closed, for `repair`.
    pub journal: bool,
    /// Mark a file whose chunks are all equal, so that one task is found in constant time.
    pub hints: bool,
    /// Store a CRC32C of every block behind the tables.
    pub checksums: bool,
    /// Closing returns when everything is durable.
    pub durable: bool,
    /// Writes below this many bytes are collected as long as they continue each other.
    pub buffer_len: usize,
    /// The name to store; `None` stores the path as given.
    pub name: Option<Vec<u8>>,
    /// Each physical file is created, written, and completed by the ranks of its own tasks, one
    /// each, which may reach it by a name of their own: on the storage of their node.
    pub apart: bool,
    /// So many consecutive tasks are of one process, whose first one collects for the others where
    /// tasks are packed.
    pub team: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs_block_len: None,
            order: Order::NATIVE,
            data_order: Order::NATIVE,
            keyval: false,
            packing: Packing::Aligned,
            style: Style::Serial,
            journal: true,
            hints: true,
            checksums: false,
            durable: false,
            buffer_len: 1 << 17,
            name: None,
            apart: false,
            team: 1,
        }
    }
}

/// A physical file by its place in the set, and its tasks.
#[derive(Clone, Copy)]
pub(crate) struct FileShape {
    pub(crate) number: u32,
    pub(crate) file_count: u32,
    pub(crate) task_count: u32,
}

impl Options {
    /// The header of a physical file.
    pub(crate) fn header(
        &self,
        name: &[u8],
        instance: u64,
        fs_block_len: u32,
        FileShape { number, file_count, task_count }: FileShape,
    ) -> Header {
        debug_assert!(number < file_count, "file {number} is of the set");
        let serial = self.style == Style::Serial && file_count == 1;
        Header {
            data_order: self.data_order,
            file_count,
            file_number: if serial { 1 } else { number },
            keyval: if self.keyval { Keyval::Inline } else { Keyval::None },
            flag2: if self.journal { Mark::Open(instance).encode() } else { 0 },
            prefix: name.to_vec(),
            ..Header::new(self.order, fs_block_len, task_count)
        }
    }

    /// The name to store for a multifile at `path`.
    pub(crate) fn name_for<'a>(&'a self, path: &'a Path) -> &'a [u8] {
        self.name.as_deref().unwrap_or_else(|| path.as_os_str().as_bytes())
    }

    /// Refuses what can never be, before a file is touched.
    pub(crate) fn check(&self, name: &[u8]) -> Result<()> {
        if name.len() >= PREFIX_LEN {
            return Err(Argument::Name.into());
        }
        if let Packing::Modular { size: 0 | 1 } = self.packing {
            return Err(Argument::Packing.into());
        }
        match self.fs_block_len {
            Some(len) if len == 0 || i32::try_from(len).is_err() => {
                Err(Argument::FsBlockLen.into())
            }
            _ => Ok(()),
        }
    }

    /// A checksum of everything that the ranks of a group must pass alike, the number of buddy
    /// `levels` included.
    pub(crate) fn fingerprint(&self, path: &Path, levels: u32) -> u32 {
        let alike = Self { buffer_len: 0, name: None, ..self.clone() };
        let sum = crc32c::crc32c(format!("{levels} {alike:?}").as_bytes());
        if self.apart { sum } else { crc32c::crc32c_append(sum, self.name_for(path)) }
    }
}

/// Description of the tasks of one physical file.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) header: Header,
    pub(crate) ranks: Vec<i64>,
    pub(crate) layout: Layout,
    /// The mapping to store behind the block table, if any.
    pub(crate) mapping: Option<Vec<(u32, u32)>>,
    pub(crate) style: Style,
    pub(crate) hints: bool,
    pub(crate) checksums: bool,
    pub(crate) durable: bool,
}

/// Refuses tasks that no block size can make a set of, without planning it.
pub(crate) fn check(tasks: &[NewTask], options: &Options, name: &[u8]) -> Result<()> {
    options.check(name)?;
    if !in_order(tasks) {
        members(tasks)?;
    }
    let sum = tasks.iter().try_fold(0u64, |sum, task| sum.checked_add(task.chunk_len));
    sum.filter(|sum| *sum <= OFFSET_MAX).map(|_| ()).ok_or(Error::TooLarge)
}

/// Plans all files of a set; `name` is stored in each, `instance` marks it as being written.
pub(crate) fn plan(
    tasks: &[NewTask],
    fs_block_len: u32,
    options: &Options,
    name: &[u8],
    instance: u64,
) -> Result<Vec<FilePlan>> {
    options.check(name)?;
    if fs_block_len == 0 || i32::try_from(fs_block_len).is_err() {
        return Err(Argument::FsBlockLen.into());
    }
    let members = members(tasks)?;
    let file_count = u32::try_from(members.len()).map_err(|_| Error::TooLarge)?;
    let mut plans = Vec::with_capacity(members.len());
    for (number, members) in (0..file_count).zip(members) {
        let requests: Vec<u64> = members.iter().map(|task| task.chunk_len).collect();
        let layout = Layout::of_teams(&requests, fs_block_len, options.packing, options.team)?;
        let task_count = u32::try_from(members.len()).map_err(|_| Error::TooLarge)?;
        let shape = FileShape { number, file_count, task_count };
        let header = options.header(name, instance, fs_block_len, shape);
        plans.push(FilePlan {
            header,
            ranks: members.iter().map(|task| task.global_rank).collect(),
            layout,
            mapping: (number == 0).then(|| mapping(tasks, file_count, options.style)).flatten(),
            style: options.style,
            hints: options.hints,
            checksums: options.checksums,
            durable: options.durable,
        });
    }
    Ok(plans)
}

impl FilePlan {
    /// Reads the description of an existing file, to continue it; `flag2` is its next mark.
    pub(crate) fn of<F: File>(
        member: &Physical<F>,
        mapping: Option<Vec<(u32, u32)>>,
        options: &Options,
        flag2: u64,
    ) -> Result<Self> {
        let front = &member.front;
        let header = Header { flag2, ..front.header.clone() };
        let single = header.file_count == 1;
        let stored = |at| physical::mapping(&*front.file, &header, at).ok();
        // A mapping in a set of one is there to be kept, though no reader looks for it.
        let kept = member.table.end().filter(|_| single).and_then(stored);
        let kept = kept.filter(|all| all.is_empty() || all.len() == front.ranks.len());
        let style = match (single, &kept) {
            (true, Some(all)) if !all.is_empty() => Style::Mapped,
            (true, Some(_)) => Style::Serial,
            _ => Style::Parallel,
        };
        Ok(Self {
            ranks: front.ranks.clone(),
            layout: front.layout.clone(),
            mapping: mapping.or(kept),
            style,
            hints: options.hints && header.version == FORMAT_VERSION,
            checksums: member.checksums_at()?.is_some(),
            durable: options.durable,
            header,
        })
    }

    /// The header and the tables of global ranks and chunk sizes.
    pub(crate) fn front(&self) -> Vec<u8> {
        let order = self.header.order;
        debug_assert_eq!(self.ranks.len(), self.layout.chunks().len(), "each task has both");
        let mut bytes = self.header.encode();
        bytes.reserve_exact(16 * self.ranks.len());
        for rank in &self.ranks {
            bytes.extend_from_slice(&order.bytes_u64(unsigned(*rank)));
        }
        for len in self.layout.chunks() {
            bytes.extend_from_slice(&order.bytes_u64(*len));
        }
        debug_assert_eq!(wide(bytes.len()), self.header.commit_at(), "the commit fields follow");
        bytes
    }

    pub(crate) fn place(&self, local_rank: u32) -> Result<ChunkPlace> {
        self.layout.place(narrow(u64::from(local_rank))).ok_or_else(|| Argument::Task.into())
    }

    /// All chunks have the same size.
    pub(crate) fn uniform(&self) -> bool {
        let chunks = self.layout.chunks();
        chunks.windows(2).all(|pair| pair.first() == pair.last())
    }
}

/// The tasks of every file in the order of their local ranks, without gaps.
fn members(tasks: &[NewTask]) -> Result<Vec<Vec<NewTask>>> {
    if in_order(tasks) {
        return Ok(vec![tasks.to_vec()]);
    }
    let last = tasks.iter().map(|task| task.file).max().unwrap_or(0);
    if u64::from(last) >= wide(tasks.len().max(1)) {
        return Err(Argument::Mapping.into());
    }
    let mut files: Vec<Vec<NewTask>> = vec![Vec::new(); narrow(u64::from(last)) + 1];
    for task in tasks {
        if i64::try_from(task.chunk_len).is_err() {
            return Err(Error::TooLarge);
        }
        files.get_mut(narrow(u64::from(task.file))).ok_or(Argument::Mapping)?.push(*task);
    }
    for members in &mut files {
        members.sort_by_key(|task| task.local_rank);
        if !members.iter().zip(0u32..).all(|(task, index)| task.local_rank == index) {
            return Err(Argument::Mapping.into());
        }
    }
    if files.len() > 1 && files.iter().any(Vec::is_empty) {
        return Err(Argument::Mapping.into());
    }
    Ok(files)
}

/// True if these are the tasks of a single file, one after the other, each of a length that fits.
fn in_order(tasks: &[NewTask]) -> bool {
    let fits = |task: &NewTask| i64::try_from(task.chunk_len).is_ok();
    let mut numbered = tasks.iter().zip(0u32..);
    numbered.all(|(task, index)| task.file == 0 && task.local_rank == index && fits(task))
}

fn mapping(tasks: &[NewTask], file_count: u32, style: Style) -> Option<Vec<(u32, u32)>> {
    match style {
        Style::Serial if file_count == 1 => Some(Vec::new()),
        Style::Parallel if file_count == 1 => None,
        _ => {
            let named = tasks.iter().filter(|task| file_count == 1 || task.global_rank >= 0);
            Some(named.map(|task| (task.file, task.local_rank)).collect())
        }
    }
}

impl NewTask {
    /// One task for each of `requests` in one physical file, with ranks from 0.
    #[must_use]
    pub fn in_one_file(requests: &[u64]) -> Vec<Self> {
        Self::in_files(requests, 1)
    }

    /// One task for each of `requests`, in groups of consecutive tasks, one for each of
    /// `file_count` files; the last group takes what is left over.
    #[must_use]
    pub fn in_files(requests: &[u64], file_count: u32) -> Vec<Self> {
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        let file_count = file_count.clamp(1, count.max(1));
        let group = (count / file_count).max(1);
        let tasks = (0u32..).zip(requests).map(|(index, chunk_len)| {
            let file = (index / group).min(file_count - 1);
            let local_rank = index - file * group;
            Self { file, local_rank, global_rank: i64::from(index), chunk_len: *chunk_len }
        });
        tasks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format rule 6.4.
    #[test]
    fn the_last_file_takes_the_remainder() {
        let tasks = NewTask::in_files(&[1; 7], 3);
        let places: Vec<_> = tasks.iter().map(|task| (task.file, task.local_rank)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]);
    }

    #[test]
    fn local_ranks_with_gaps_are_no_set() {
        let mut tasks = NewTask::in_files(&[1; 4], 2);
        tasks[1].local_rank = 2;
        assert_eq!(members(&tasks), Err(Argument::Mapping.into()));
        tasks[1] = NewTask { file: 9, local_rank: 0, ..tasks[0] };
        assert_eq!(members(&tasks), Err(Argument::Mapping.into()));
    }

    /// Format rule 1.6; E24: a name that does not fit its field is refused, not cut or written
    /// beyond it.
    #[test]
    fn a_name_longer_than_its_field_is_refused() {
        let tasks = NewTask::in_one_file(&[1]);
        let name = vec![b'x'; PREFIX_LEN];
        let refused = plan(&tasks, 512, &Options::default(), &name, 0);
        assert_eq!(refused.err(), Some(Argument::Name.into()));
        assert!(plan(&tasks, 512, &Options::default(), &name[1..], 0).is_ok());
    }
}
