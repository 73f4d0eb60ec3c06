//! Reading a set whose physical files are on the storage of their ranks' nodes, after some of them
//! were lost: the ranks that keep the copies send each rank its stream.
//!
//! What a rank receives goes to a file on its own storage that has no name any more when it is
//! read. The lost file itself is not made again: that is what writing the next set does.

use std::{path::Path, sync::Arc};

use crate::{
    codec::{narrow, put_u32, wide},
    cursor::Cursor,
    error::{Argument, Error, OnFile as _, Result},
    group::Group,
    layout::ChunkPlace,
    name,
    parallel::{
        reader::LocalTask,
        records::{Given, Part as _, SetInfo},
        roster::{Line, Roster, Split},
    },
    physical::Physical,
    plan::NewTask,
    reader::{Task, TaskReader},
    storage::{File, Naming, Storage, write_all},
};

/// Where a rank's task is expected, and how to make smaller groups.
pub struct Seat<'a> {
    /// The rank's physical file.
    pub file: u32,
    /// Physical files of the set.
    pub file_count: u32,
    /// The rank's place among those of its file.
    pub local_rank: u32,
    /// Consecutive ranks of one process.
    pub team: usize,
    /// Splits the group.
    pub split: &'a Split<'a>,
}

impl std::fmt::Debug for Seat<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Seat");
        shown.field("file", &self.file).field("file_count", &self.file_count);
        shown.field("local_rank", &self.local_rank).finish_non_exhaustive()
    }
}

/// Levels of copies that one rank can tell of.
const LEVELS_MAX: u32 = 63;
const NO_ENTRY: i32 = 2;

/// Opens this rank's task: in its own file or, if a rank misses that, as it is sent from a copy.
/// Collective; an error may be this rank's alone, such as that its copy cannot be read.
pub(super) fn open<G: Group, S: Storage>(
    group: &G,
    storage: &S,
    path: &Path,
    levels: u32,
    seat: &Seat<'_>,
) -> Result<(SetInfo, LocalTask<S::File>)> {
    let levels = levels.min(LEVELS_MAX);
    let own = open_own(group, storage, path, seat);
    let mut kept = Vec::new();
    for level in (0..levels).filter(|_| seat.local_rank == 0) {
        let count = seat.file_count.max(1);
        let file = (seat.file % count + count - (level + 1) % count) % count;
        let name = storage.physical_name(&name::buddy(path, level), file);
        kept.push(Physical::open(storage, &name, file).ok());
    }
    let holds = kept.iter().zip(1u32..).filter(|(kept, _)| kept.is_some());
    let says = holds.fold(u64::from(own.is_ok()), |says, (_, bit)| says | 1 << bit);
    let (file, local_rank) = (seat.file, seat.local_rank);
    let task = NewTask { file, local_rank, global_rank: group.rank().into(), chunk_len: 0 };
    let roster = Roster::meet(group, task, says, seat.team)?;
    let lost = lost(&roster, levels)?;
    let (mut restored, mut failed) = (None, None);
    for level in 0..levels {
        let files: Vec<u32> =
            lost.iter().filter(|(_, from)| *from == level).map(|(file, _)| *file).collect();
        for line in roster.lines(group.rank(), &files, level, seat.split)? {
            let copy = kept.get(narrow(level.into())).and_then(Option::as_ref);
            let copy = copy.filter(|_| line.is_keeper());
            let mut sending = Sending::of(&line, copy, &roster);
            let received = carry(storage, path, &line, &mut sending, group.rank())?;
            restored = received.or(restored);
            failed = failed.or(sending.failed);
        }
    }
    failed.map_or(Ok(()), Err).and(restored.unwrap_or(own))
}

/// The lost files, and the level that each is read from.
fn lost(roster: &Roster, levels: u32) -> Result<Vec<(u32, u32)>> {
    let says = |rank: &usize| roster.said().get(*rank).copied().unwrap_or(0);
    let is_lost = |file: &u32| roster.ranks_of(*file).iter().any(|rank| says(rank) & 1 == 0);
    let from = |file: u32| {
        let holds = |level: &u32| {
            let keeper = roster.ranks_of(roster.keeping(file, *level)).first();
            keeper.is_some_and(|keeper| says(keeper) >> (level + 1) & 1 == 1)
        };
        let missing = Error::io(file, &std::io::Error::from_raw_os_error(NO_ENTRY));
        (0..levels).find(holds).map(|level| (file, level)).ok_or(missing)
    };
    (0..roster.file_count()).filter(is_lost).map(from).collect()
}

type Opened<F> = Result<(SetInfo, LocalTask<F>)>;

fn open_own<G: Group, S: Storage>(
    group: &G,
    storage: &S,
    path: &Path,
    seat: &Seat<'_>,
) -> Opened<S::File> {
    let name = storage.physical_name(path, seat.file);
    let file = Physical::open(storage, &name, seat.file)?;
    let set = set_of(&file, group.size());
    let local = local_task(&file, narrow(seat.local_rank.into()))?;
    if local.task.global_rank != i64::from(group.rank()) || set.file_count != seat.file_count {
        return Err(Argument::Mapping.into());
    }
    Ok((set, local))
}

fn set_of<F>(file: &Physical<F>, task_count: u32) -> SetInfo {
    let header = &file.front.header;
    SetInfo {
        task_count,
        file_count: header.file_count,
        fs_block_len: header.fs_block_len,
        order: header.order,
        data_order: header.data_order,
        keyval: header.keyval,
    }
}

fn local_task<F: File>(file: &Physical<F>, local: usize) -> Result<LocalTask<F>> {
    let front = &file.front;
    let found = front.ranks.get(local).copied().zip(front.chunk_len(local));
    let (global_rank, chunk_len) = found.ok_or(Argument::Task)?;
    let local_rank = u32::try_from(local).map_err(|_| Error::TooLarge)?;
    let task = Task { file: front.number, local_rank, global_rank, chunk_len };
    let stream = TaskReader::of(Arc::clone(&front.file), front.number, file.cursor(local)?);
    Ok(LocalTask { task, stream })
}

/// Sends the streams of one file from its copy to its ranks; returns what this rank received, if it
/// is one of them.
///
/// # Errors
///
/// [`Error::Group`]; what fails on the storage of a rank is its own result.
fn carry<S: Storage>(
    storage: &S,
    path: &Path,
    line: &Line,
    sending: &mut Sending<S::File>,
    rank: u32,
) -> Result<Option<Opened<S::File>>> {
    let given = sending.records();
    let mut mine = vec![0; 4 + Given::LEN];
    line.part.scatter(&given, &mut mine)?;
    let mut most = sending.most();
    line.part.broadcast(&mut most)?;
    let (blocks, bytes) = most.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (blocks, bytes) = (narrow(number(blocks)), number(bytes));
    let mut lens = vec![0; 8 * blocks];
    line.part.scatter(&sending.lens(blocks), &mut lens)?;
    let lens: Vec<u64> = lens.chunks_exact(8).map(number).collect();
    let mut receiving =
        line.sends.then(|| Receiving::begin(storage, path, line.file, &mine, &lens, rank));
    for (_, len) in line.pieces(bytes) {
        let mut piece = vec![0; len];
        line.part.scatter(&sending.pieces(len), &mut piece)?;
        let taken = receiving.as_mut().and_then(|now| now.as_mut().ok()?.take(&piece).err());
        if let Some(error) = taken {
            receiving = Some(Err(error));
        }
    }
    Ok(receiving.map(|received| received.and_then(Receiving::end)))
}

/// The keeper's side; empty on other ranks.
struct Sending<F> {
    set: Option<SetInfo>,
    /// Of the part's ranks in their order.
    streams: Vec<Option<LocalTask<F>>>,
    /// Why a stream could not be sent whole.
    failed: Option<Error>,
}

impl<F: File> Sending<F> {
    fn of(line: &Line, copy: Option<&Physical<F>>, roster: &Roster) -> Self {
        let mut sending = Self { set: None, streams: Vec::new(), failed: None };
        let Some(copy) = copy else { return sending };
        let all = u32::try_from(roster.said().len()).unwrap_or(u32::MAX);
        let expected: Vec<i64> = roster.tasks_of(line.file).map(|task| task.global_rank).collect();
        let before = copy.front.ranks.len().saturating_sub(expected.len());
        let stream = |(rank, local): (&i64, usize)| {
            let task = local_task(copy, local)?;
            let is_right = task.task.global_rank == *rank;
            if is_right { Ok(task) } else { Err(Argument::Mapping.into()) }
        };
        sending.set = Some(set_of(copy, all));
        sending.streams.extend((0..line.ahead).map(|_| None));
        for pair in expected.iter().zip(before..) {
            let stream = stream(pair);
            sending.failed = sending.failed.or(stream.as_ref().err().copied());
            sending.streams.push(stream.ok());
        }
        sending
    }

    /// Returns what each rank needs of its stream; the leading number is 0 if it has none.
    fn records(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for local in &self.streams {
            let at = all.len();
            if let Some((local, set)) = local.as_ref().zip(self.set) {
                let ChunkPlace { chunk_len, .. } = local.stream.cursor().place();
                let place = ChunkPlace { start_at: 0, chunk_len, skip: chunk_len };
                let block_count = local.stream.cursor().block_lens().len();
                let block_count = u32::try_from(block_count).unwrap_or(u32::MAX);
                put_u32(&mut all, 1);
                let task_count = set.task_count;
                Given { task: local.task, place, table_at: 0, block_count, task_count, set }
                    .put(&mut all);
            }
            all.resize(at + 4 + Given::LEN, 0);
        }
        all
    }

    /// The largest number of blocks, and of bytes.
    fn most(&self) -> Vec<u8> {
        let cursors = || self.streams.iter().flatten().map(|local| local.stream.cursor());
        let blocks = cursors().map(|cursor| wide(cursor.block_lens().len())).max().unwrap_or(0);
        let bytes = cursors().map(Cursor::total).max().unwrap_or(0);
        [blocks.to_le_bytes(), bytes.to_le_bytes()].concat()
    }

    fn lens(&self, blocks: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for local in &self.streams {
            let at = all.len();
            let lens = local.as_ref().map_or(&[][..], |local| local.stream.cursor().block_lens());
            lens.iter().for_each(|len| all.extend(len.to_le_bytes()));
            all.resize(at + 8 * blocks, 0);
        }
        all
    }

    /// The next `len` bytes of every stream, zeros behind its end.
    fn pieces(&mut self, len: usize) -> Vec<u8> {
        let mut all = vec![0; len * self.streams.len()];
        for (piece, stream) in all.chunks_exact_mut(len.max(1)).zip(&mut self.streams) {
            let read = stream.as_mut().map_or(Ok(0), |local| local.stream.read(piece));
            self.failed = self.failed.or(read.err());
        }
        all
    }
}

/// One rank's side: its stream on the way to a file of its own.
struct Receiving<F> {
    file: Arc<F>,
    given: Given,
    /// Where the next bytes go.
    cursor: Cursor,
}

impl<F: File> Receiving<F> {
    fn begin<S: Storage<File = F>>(
        storage: &S,
        path: &Path,
        number: u32,
        record: &[u8],
        lens: &[u64],
        rank: u32,
    ) -> Result<Self> {
        let given = Given::of(record.get(4..).unwrap_or_default());
        let given = given.filter(|_| record.first() == Some(&1)).ok_or(Argument::Mapping)?;
        let lens = lens.get(..narrow(given.block_count.into())).ok_or(Error::TooLarge)?;
        let name = name::restored(&storage.physical_name(path, number), rank);
        let file = storage.create(&name, Naming::Derived(path), true);
        let file = file.and_then(|file| storage.remove(&name).map(|()| file));
        let file = Arc::new(file.on_file(number)?);
        let cursor = Cursor::new(given.place, lens.to_vec(), number)?;
        Ok(Self { file, given, cursor })
    }

    fn take(&mut self, mut piece: &[u8]) -> Result<()> {
        while let Some((at, left)) = self.cursor.extent()?.filter(|_| !piece.is_empty()) {
            let (part, rest) = piece.split_at(narrow(left).min(piece.len()));
            write_all(&*self.file, part, at).on_file(self.given.task.file)?;
            self.cursor.advance(wide(part.len()));
            piece = rest;
        }
        Ok(())
    }

    fn end(self) -> Opened<F> {
        let (number, place) = (self.given.task.file, self.given.place);
        let cursor = Cursor::new(place, self.cursor.block_lens().to_vec(), number)?;
        let stream = TaskReader::of(self.file, number, cursor);
        Ok((self.given.set, LocalTask { task: self.given.task, stream }))
    }
}
