//! Small files that come together, with all their bytes: next to each other in a dense file, and
//! what lies next to each other in memory by one write. Header and journal are written later, for
//! many files at a time.

use std::{io, rc::Rc};

use rustix::io::Errno;
use storage::Machine;
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers, Heap};

use super::{member::Member, shape::DENSE_UNIT, stream::write_all, volume::Volume};

/// The most bytes that are written at a time.
const PIECE_LEN: usize = 1 << 20;

impl Volume {
    /// Keeps streams whose bytes are all there, small ones next to each other; adds their tasks to
    /// `tasks`, also if it fails: then no file has them. None is empty. Call
    /// [`tell_kept`](Self::tell_kept) before a name leads to a task.
    pub(super) async fn keep(&self, all: &[&[Buffer]], tasks: &mut Vec<u64>) -> io::Result<()> {
        let mut found = vec![None; all.len()];
        let kept = self.keep_in(all, &mut found).await;
        tasks.extend(found.into_iter().flatten());
        kept
    }

    async fn keep_in(&self, all: &[&[Buffer]], found: &mut [Option<u64>]) -> io::Result<()> {
        let lens: Vec<u64> = all.iter().map(|data| len_of(data)).collect();
        let is_small = |len: u64| len < self.shape.small_len;
        self.free_chunks().await;
        let places = lens.iter().copied().zip(&mut *found);
        self.take_chunks(places.filter(|(len, _)| is_small(*len))).await;
        let _taken = self.placing.take().await;
        let rest = lens.iter().copied().zip(&mut *found);
        let (small, long) =
            rest.filter(|(_, task)| task.is_none()).partition(|(len, _)| is_small(*len));
        self.place_all(small).await?;
        for (_, task) in long {
            *task = Some(self.free_task().await?);
        }
        let (mut small, mut long) = (Vec::new(), Vec::new());
        for (task, data) in found.iter().zip(all) {
            let task = task.ok_or(Errno::IO)?;
            // A chunk of a file that is not dense has its journal told as it is written.
            let kind = if self.is_packed(task) { &mut small } else { &mut long };
            kind.push((task, *data));
        }
        small.sort_unstable_by_key(|(task, _)| *task);
        self.fill(&small).await?;
        for (task, data) in long {
            self.keep_long(task, data).await?;
        }
        Ok(())
    }

    /// Gives chunks of these lengths to new tasks, as many as fit to those of one dense file.
    async fn place_all(&self, mut all: Vec<(u64, &mut Option<u64>)>) -> io::Result<()> {
        let mut done = 0;
        while let Some(len) = all.get(done).map(|(len, _)| *len) {
            let member = self.dense_member(len).await?;
            let mut left = self.shape.dense_len.saturating_sub(self.dense_end(&member));
            let fits = |len: &u64| {
                let rest = left.checked_sub(len.next_multiple_of(u64::from(DENSE_UNIT)));
                left = rest.unwrap_or(0);
                rest.is_some()
            };
            let most = usize::try_from(member.unplaced.get()).unwrap_or(usize::MAX);
            let rest = all.get_mut(done..).unwrap_or_default();
            let lens = rest.iter().map(|(len, _)| *len).take(most);
            let now: Vec<u64> = lens.take_while(fits).collect();
            // That it fits was seen without what rounds it up.
            let lens = if now.is_empty() { vec![len] } else { now };
            let first = self.place(&member, &lens, true)?;
            for ((_, task), new) in rest.iter_mut().zip(first..).take(lens.len()) {
                **task = Some(new);
            }
            done += lens.len();
        }
        Ok(())
    }

    /// Returns the bytes of a task that was [kept](Self::keep), and releases the task.
    pub(super) async fn give_up(&self, task: u64) -> io::Result<Vec<Buffer>> {
        let stream = self.stream(task)?;
        let buffer = Heap::buffer(usize::try_from(stream.len()).map_err(|_| Errno::FBIG)?);
        let read = stream.read(self.machine(), 0, &buffer.clone().into()).await;
        self.users.set_left([task]);
        if read? == buffer.len() { Ok(vec![buffer]) } else { Err(Errno::IO.into()) }
    }

    /// Writes a stream piece by piece, and its journal.
    async fn keep_long(&self, task: u64, data: &[Buffer]) -> io::Result<()> {
        let (stream, mut at) = (self.stream(task)?, 0);
        for piece in data {
            let mut rest = Some(Buffers::from(piece.clone())).filter(|piece| !piece.is_empty());
            while let Some(bytes) = rest {
                let Some(len @ 1..) = stream.write(self.machine(), at, &bytes).await? else {
                    return Err(Errno::NOSPC.into());
                };
                at += len as u64;
                rest = bytes.suffix(len);
            }
        }
        Ok(())
    }

    /// Writes streams in dense files, in the order of their tasks.
    async fn fill(&self, all: &[(u64, &[Buffer])]) -> io::Result<()> {
        let mut runs: Vec<Run> = Vec::new();
        for (task, data) in all {
            let streams = self.streams.borrow();
            let ((mut at, chunk_len, _), member) =
                streams.reach(*task).zip(streams.member_of(*task)).ok_or(Errno::IO)?;
            let end = at + chunk_len;
            for piece in data.iter().filter(|piece| !piece.is_empty()) {
                if !runs.last_mut().is_some_and(|run| run.take(member, at, piece, end)) {
                    let (member, len, buffers) =
                        (Rc::clone(member), piece.len(), vec![piece.clone()]);
                    runs.push(Run { member, at, len, end, buffers });
                }
                at += piece.len() as u64;
            }
        }
        // A server takes several at a time, and one that is busy takes long for each.
        let written = runs.into_iter().map(|run| run.write(self.machine()));
        executor::all(written).await.into_iter().collect::<io::Result<()>>()?;
        let mut streams = self.streams.borrow_mut();
        let filled = all.iter().map(|(task, data)| streams.fill(*task, len_of(data)));
        filled.collect::<Option<()>>().ok_or_else(|| Errno::IO.into())
    }

    /// Writes the headers and then the journals for tasks that were [kept](Self::keep).
    pub(super) async fn tell_kept(&self, tasks: impl Iterator<Item = u64>) -> io::Result<()> {
        let _taken = self.placing.take().await;
        let (mut runs, mut tasks) = (Vec::<Slots>::new(), tasks.collect::<Vec<_>>());
        tasks.sort_unstable();
        for task in tasks {
            let streams = self.streams.borrow();
            let (member, at, slot) = streams.slot(task).ok_or(Errno::IO)?;
            // The journal has the length already.
            if !member.is_packed {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == task) {
                Some(run) if Rc::ptr_eq(&run.member, member) => {
                    run.bytes.extend_from_slice(&slot);
                    run.end += 1;
                }
                _ => {
                    let (member, bytes) = (Rc::clone(member), slot.to_vec());
                    runs.push(Slots { member, at, end: task + 1, bytes });
                }
            }
        }
        for Slots { member, at, bytes, .. } in runs {
            self.tell_chunks(&member).await?;
            write_all(self.machine(), &member.journal()?, at, &bytes.into()).await?;
        }
        Ok(())
    }
}

/// Slots of tasks that follow each other in the journal of a dense file.
struct Slots {
    member: Rc<Member>,
    at: u64,
    /// The task behind the last one.
    end: u64,
    bytes: Vec<u8>,
}

fn len_of(data: &[Buffer]) -> u64 {
    data.iter().map(|piece| piece.len() as u64).sum()
}

/// Bytes that go next to each other in a file.
#[derive(Debug)]
struct Run {
    member: Rc<Member>,
    at: u64,
    len: usize,
    /// Where the last one's chunk ends: behind it may be somebody else's.
    end: u64,
    buffers: Vec<Buffer>,
}

impl Run {
    /// Takes what goes at `at`, if it continues what is there and that does not get too much.
    fn take(&mut self, member: &Rc<Member>, at: u64, piece: &Buffer, end: u64) -> bool {
        if !Rc::ptr_eq(&self.member, member) || at > self.end {
            return false;
        }
        let gap = at.checked_sub(self.at + self.len as u64);
        let gap = gap.and_then(|gap| usize::try_from(gap).ok());
        let Some(gap) = gap.filter(|gap| *gap < DENSE_UNIT as usize) else { return false };
        let len = self.len + gap + piece.len();
        if len > PIECE_LEN.max(piece.len()) {
            return false;
        }
        // As it lies in memory, with what is between.
        let joined = self.buffers.last().and_then(|last| last.joined(gap, piece));
        if let Some((last, joined)) = self.buffers.last_mut().zip(joined) {
            *last = joined;
        } else if self.buffers.len() + 2 > BUFFER_COUNT_MAX {
            return false;
        } else {
            if gap > 0 {
                self.buffers.push(Heap::buffer(gap));
            }
            self.buffers.push(piece.clone());
        }
        (self.len, self.end) = (len, end);
        true
    }

    async fn write(self, machine: &Machine) -> io::Result<()> {
        let mut rest = Buffers::new(self.buffers);
        let mut at = self.at;
        while let Some(bytes) = rest {
            let len = machine.write_whole(&self.member.data, at, bytes.clone()).await?;
            if len == 0 {
                return Err(Errno::NOSPC.into());
            }
            at += len as u64;
            rest = bytes.suffix(len);
        }
        Ok(())
    }
}
