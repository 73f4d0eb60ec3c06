//! How much of every block was used, told from the data alone: for files whose writers died
//! without a journal, SIONlib's among them.
//!
//! Chunks are written from their start and unwritten bytes read as zero, so a block reaches at
//! least to its last byte that is not zero, and the block in which the file ends reaches to that
//! end. Data that ends in zeros cannot be told from space never written; what may be missing is
//! reported as the difference to [`Extent::most`].

use std::{collections::BTreeMap, ops::Range};

use crate::{
    backing::{GAPS_MAX, Gaps, stored},
    codec::{Order, narrow, wide},
    cursor::Cursor,
    error::Result,
    keyval::{BLANK_MAX, RECORD_HEADER_LEN, decode_header},
    layout::Layout,
    physical::Front,
    reader::TaskReader,
    storage::{File, read_exactly},
};

const SLAB_LEN: usize = 1 << 16;

/// Extent of one task's stream, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Used bytes of every block, at least.
    pub(crate) lens: Vec<u64>,
    /// Bytes the stream can have had at most.
    pub(crate) most: u64,
    /// CRC32C of every block, where a journal had them.
    pub(crate) sums: Vec<u32>,
    /// Bytes that stand where they are no part of the stream any more.
    pub(crate) lost: u64,
    /// The worst.
    pub(crate) flaw: Flaw,
}

/// Flaw of a stream; a later one is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flaw {
    #[default]
    None,
    /// The file was closed, and its parts contradict each other about the task.
    Contradiction,
    /// The file was closed, and ends now before a block that the task may have had.
    Cut,
    /// The data of a block differs from the checksum that a journal had.
    Damage,
}

impl Extent {
    pub(crate) fn note(&mut self, flaw: Flaw) {
        self.flaw = self.flaw.max(flaw);
    }

    /// Ends the stream, which is this one, at `end`.
    pub(crate) fn end_at<F: File>(&mut self, stream: &mut TaskReader<F>, end: u64) -> Result<()> {
        stream.seek(end)?;
        let (block, used) = stream.cursor().block();
        self.lens.truncate(block + 1);
        if let Some(last) = self.lens.last_mut() {
            *last = used;
        }
        Ok(())
    }
}

/// How far the data of a file can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The file was never closed: only a write can have made it as long as it is.
    ToEnd,
    /// The file was closed with this many blocks and cut or damaged since, or cannot have more.
    Blocks(u64),
    /// Nothing is known.
    Unknown,
}

/// Estimates the streams of all tasks of `front`.
pub(crate) fn estimate<F: File>(front: &Front<F>, reach: Reach) -> Result<Vec<Extent>> {
    let mut extents = reached(front, reach)?;
    if front.header.keyval == crate::header::Keyval::Inline {
        for (task, extent) in extents.iter_mut().enumerate() {
            records(front, task, extent)?;
        }
    }
    Ok(extents)
}

/// How far what is not zero reaches in every block.
pub(crate) fn reached<F: File>(front: &Front<F>, reach: Reach) -> Result<Vec<Extent>> {
    let mut found = Found::new(front, reach);
    found.scan()?;
    found.extents()
}

/// End of the last byte in `range` of the file that is not zero; its start if there is none.
pub(crate) fn data_end<F: File>(front: &Front<F>, range: Range<u64>) -> Result<u64> {
    let (start, end) = (range.start, range.end.min(front.size));
    let (mut at, mut parts) = (start, Vec::new());
    while let Some(part) = stored(&*front.file, front.number, at..end)? {
        at = part.end;
        parts.push(part);
    }
    let mut slab = vec![0; SLAB_LEN];
    for part in parts.into_iter().rev() {
        let mut to = part.end;
        while to > part.start {
            let from = to.saturating_sub(wide(SLAB_LEN)).max(part.start);
            let bytes = slab.get_mut(..narrow(to - from)).unwrap_or_default();
            read_exactly(&*front.file, front.number, bytes, from)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                return Ok(from + wide(last) + 1);
            }
            to = from;
        }
    }
    Ok(start)
}

/// Used bytes of the blocks seen so far.
struct Found<'a, F> {
    front: &'a Front<F>,
    layout: &'a Layout,
    /// First offset that holds no data.
    end: u64,
    lens: BTreeMap<(usize, u64), u64>,
}

impl<'a, F: File> Found<'a, F> {
    fn new(front: &'a Front<F>, reach: Reach) -> Self {
        let layout = &front.layout;
        let end = match reach {
            Reach::Blocks(count) => layout.end_of(count).unwrap_or(front.size).min(front.size),
            Reach::ToEnd | Reach::Unknown => front.size,
        };
        let mut found = Self { front, layout, end, lens: BTreeMap::new() };
        let last = end.checked_sub(1).filter(|_| reach == Reach::ToEnd);
        // So far away the end is a claim, and no trace of a write.
        let last = last.and_then(|at| found.chunk(at)).filter(|(_, row, ..)| *row <= GAPS_MAX);
        if let Some((task, row, chunk_at, _)) = last {
            found.lens.insert((task, row), end - chunk_at);
        }
        found
    }

    fn scan(&mut self) -> Result<()> {
        let mut slab = vec![0; SLAB_LEN];
        let mut at = self.layout.data_at();
        while let Some(range) = stored(&*self.front.file, self.front.number, at..self.end)? {
            at = range.start;
            while at < range.end {
                let Some((task, row, chunk_at, chunk_end)) = self.chunk(at) else { return Ok(()) };
                let len = narrow(chunk_end.min(range.end) - at).min(SLAB_LEN);
                let part = slab.get_mut(..len).unwrap_or_default();
                read_exactly(&*self.front.file, self.front.number, part, at)?;
                if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
                    let used = at + wide(last) + 1 - chunk_at;
                    let known = self.lens.entry((task, row)).or_default();
                    *known = used.max(*known);
                }
                at += wide(len);
            }
        }
        Ok(())
    }

    /// The chunk that holds offset `at`: task, block, start, end.
    fn chunk(&self, at: u64) -> Option<(usize, u64, u64, u64)> {
        let (data_at, skip) = (self.layout.data_at(), self.layout.skip());
        let row = at.checked_sub(data_at)?.checked_div(skip)?;
        let row_at = row * skip;
        let task = self.layout.task_at(at - row_at)?;
        let place = self.layout.place(task)?;
        let chunk_at = place.start_at + row_at;
        Some((task, row, chunk_at, chunk_at + place.chunk_len))
    }

    fn extents(&self) -> Result<Vec<Extent>> {
        let mut gaps = Gaps::new(self.front.number);
        let mut extents =
            vec![Extent { lens: vec![0], ..Extent::default() }; self.front.ranks.len()];
        for ((task, row), used) in &self.lens {
            if let Some(extent) = extents.get_mut(*task) {
                if let Some(len) = gaps.slot(&mut extent.lens, narrow(*row))? {
                    *len = *used;
                }
            }
        }
        for (task, extent) in extents.iter_mut().enumerate() {
            let Some(place) = self.layout.place(task) else { continue };
            let room = |block| {
                let at = place.block_at(block).unwrap_or(u64::MAX);
                self.end.saturating_sub(at).min(place.chunk_len)
            };
            let total = extent.lens.iter().sum::<u64>();
            let in_known: u64 = (0..extent.lens.len()).map(room).sum();
            // A block behind the last known one can only have held zeros.
            let behind = if room(extent.lens.len()) > 0 { u64::MAX } else { 0 };
            extent.most = total.max(in_known.saturating_add(behind));
        }
        Ok(extents)
    }
}

/// Streams of records fill their blocks, and say themselves where they end.
fn records<F: File>(front: &Front<F>, task: usize, extent: &mut Extent) -> Result<()> {
    let Some(place) = front.layout.place(task) else { return Ok(()) };
    let Some((last, earlier)) = extent.lens.split_last_mut() else { return Ok(()) };
    earlier.fill(place.chunk_len);
    let known = earlier.iter().sum::<u64>() + *last;
    let at = place.block_at(earlier.len())?;
    *last = front.size.saturating_sub(at).min(place.chunk_len);
    end_with_record(front, task, extent, known)
}

/// Ends a stream with its last complete record that begins before `known`.
pub(crate) fn end_with_record<F: File>(
    front: &Front<F>,
    task: usize,
    extent: &mut Extent,
    known: u64,
) -> Result<()> {
    let Some(place) = front.layout.place(task) else { return Ok(()) };
    let cursor = Cursor::new(place, extent.lens.clone(), front.number)?;
    let mut stream = TaskReader::of(front.file.clone(), front.number, cursor);
    let end = end_of_records(&mut stream, front.header.order, known)?;
    extent.most = end;
    if end == extent.lens.iter().sum() {
        return Ok(());
    }
    extent.end_at(&mut stream, end)
}

/// End of the last complete record that begins before `known`, the end of what is not zero.
fn end_of_records<F: File>(stream: &mut TaskReader<F>, order: Order, known: u64) -> Result<u64> {
    let mut header = [0; RECORD_HEADER_LEN];
    let (mut end, mut blank) = (0, 0);
    while end < known {
        stream.seek(end)?;
        if stream.read(&mut header)? < RECORD_HEADER_LEN {
            break;
        }
        let (key, len) = decode_header(header, order);
        blank += usize::from((key, len) == (0, 0));
        if len > stream.cursor().left() || blank > BLANK_MAX {
            break;
        }
        end = stream.cursor().position() + len;
    }
    Ok(end)
}
