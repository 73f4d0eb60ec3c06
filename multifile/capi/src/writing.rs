//! A handle that writes: all tasks of a multifile, or those of one rank.
//!
//! A program that has the stdio stream writes through it as well. What it wrote since is counted
//! from the stream's position whenever that is asked for (`settle`); until then only the room left
//! in the chunk depends on it.

use std::{ffi::c_int, fs, sync::Arc};

use libc::FILE;
use multifile::{Argument, Error, NewTask, ParWriter, TaskWriter, Writer, parallel::BuddyWriter};

use crate::{
    error::{Failure, Result},
    files::Files,
    stream::Streams,
};

/// Tasks being written.
pub(crate) struct Writing {
    pub(crate) sink: Sink,
    /// Requested tasks, in the order of the handle's tasks.
    pub(crate) tasks: Vec<NewTask>,
    current: usize,
    pub(crate) streams: Streams,
}

/// Where the bytes go.
pub(crate) enum Sink {
    All(Writer<Files>),
    Own(ParWriter<Files>),
    Copies(BuddyWriter<Files>),
    /// Opening anew failed.
    Gone,
}

impl Writing {
    pub(crate) fn new(sink: Sink, tasks: Vec<NewTask>) -> Self {
        Self { sink, tasks, current: 0, streams: Streams::default() }
    }

    /// With streams made while opening, which begin where the first task does.
    pub(crate) fn with(sink: Sink, tasks: Vec<NewTask>, streams: Streams) -> Result<Self> {
        let mut writing = Self { streams, ..Self::new(sink, tasks) };
        writing.place().map(|()| writing)
    }

    /// Writes all of `bytes`. What fits a chunk is not split: it goes to the next one if the rest
    /// of the current one is too small, as SIONlib's readers expect.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let len = u64::try_from(bytes.len()).map_err(|_| Error::TooLarge)?;
        if len <= self.task()?.fill().place().chunk_len {
            self.ensure(len)?;
        }
        if let Sink::Copies(writer) = &mut self.sink {
            if writer.is_apart() {
                return Err(Failure::Mode(
                    "buddy copies on other nodes are written with sion_coll_fwrite only",
                ));
            }
            return Ok(writer.write(bytes)?);
        }
        if self.streams.exported() {
            return self.write_through_stream(bytes);
        }
        Ok(self.task()?.write(bytes)?)
    }

    /// As [`write`](Self::write), together with all ranks if buddy copies are on other nodes; a
    /// rank that cannot write still meets the others.
    pub(crate) fn write_copies(&mut self, bytes: &[u8]) -> Result<()> {
        if !matches!(&self.sink, Sink::Copies(writer) if writer.is_apart()) {
            return self.write(bytes);
        }
        let len = u64::try_from(bytes.len()).map_err(|_| Error::TooLarge)?;
        let ready = self.settle().and_then(|()| {
            let fits = len <= self.task()?.fill().place().chunk_len;
            if fits { self.ensure(len) } else { Ok(()) }
        });
        let Sink::Copies(writer) = &mut self.sink else { return Err(Failure::Internal) };
        writer.write_together(if ready.is_ok() { bytes } else { &[] })?;
        ready?;
        self.place()
    }

    /// Writes where the program's stream stands, as the program would; `settle` counts it.
    fn write_through_stream(&mut self, mut bytes: &[u8]) -> Result<()> {
        let number = self.file_number()?;
        while !bytes.is_empty() {
            let room = self.task()?.fill().left_in_block().saturating_sub(self.ahead()?);
            if room == 0 {
                self.settle()?;
                let mut task = self.task()?;
                if task.fill().place().chunk_len == 0 {
                    return Err(Argument::ChunkEmpty.into());
                }
                task.next_block()?;
                self.place()?;
                continue;
            }
            let len = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (part, rest) = bytes.split_at_checked(len).ok_or(Failure::Internal)?;
            self.streams.write(number, part)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes one key-value record, filling chunks to their ends.
    pub(crate) fn write_record(&mut self, key: u64, data: &[u8]) -> Result<()> {
        self.settle()?;
        if matches!(self.sink, Sink::Copies(_)) {
            return Err(Failure::Mode("key-value records are not written to buddy copies"));
        }
        self.task()?.write_record(key, data)?;
        self.place()
    }

    /// Makes sure that `len` bytes fit into the current chunk.
    pub(crate) fn ensure(&mut self, len: u64) -> Result<()> {
        let room = self.task()?.fill().left_in_block();
        let ahead = self.ahead()?;
        if room.checked_sub(ahead).is_some_and(|room| len <= room) {
            return Ok(());
        }
        self.settle()?;
        if let Sink::Copies(writer) = &mut self.sink {
            writer.ensure(len)?;
        } else {
            self.task()?.ensure(len)?;
        }
        self.place()
    }

    /// Counts what the program wrote through its stream.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if !self.streams.exported() {
            return Ok(());
        }
        let number = self.file_number()?;
        self.streams.check(number)?;
        let ahead = self.ahead()?;
        if ahead > 0 {
            self.streams.flush(number)?;
            if matches!(self.sink, Sink::Copies(_)) {
                return Err(Failure::Mode("buddy copies are written with sion_coll_fwrite only"));
            }
            self.task()?.advance(ahead)?;
        }
        Ok(())
    }

    /// Hands everything written so far to the operating system.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.settle()?;
        if self.streams.exported() {
            self.streams.flush(self.file_number()?)?;
        }
        Ok(self.task()?.flush()?)
    }

    /// Makes task `index` the current one.
    pub(crate) fn select(&mut self, index: usize) -> Result<()> {
        if index >= self.tasks.len() {
            return Err(Argument::Task.into());
        }
        self.settle()?;
        self.current = index;
        self.place()
    }

    /// Moves the program's stream to the position of the current task.
    pub(crate) fn place(&mut self) -> Result<()> {
        if !self.streams.exported() {
            return Ok(());
        }
        let number = self.file_number()?;
        let mut task = self.task()?;
        let (at, file) = (task.fill().file_at()?, Arc::clone(task.file()?));
        self.streams.follow(number, &file, true)?;
        self.streams.seek(number, at)
    }

    /// The stdio stream on the current task's physical file, at its position.
    pub(crate) fn export(&mut self) -> Result<*mut FILE> {
        self.hand_out(|streams, number, file| streams.make(number, file, true))
    }

    /// The descriptor of the current task's physical file, at its position.
    pub(crate) fn descriptor(&mut self) -> Result<c_int> {
        self.hand_out(|streams, number, file| streams.lend(number, file, true))
    }

    /// Gives the program a way to the current task's physical file, by its number.
    fn hand_out<T>(
        &mut self,
        way: impl FnOnce(&mut Streams, u32, &Arc<fs::File>) -> Result<T>,
    ) -> Result<T> {
        self.settle()?;
        let number = self.file_number()?;
        let file = Arc::clone(self.task()?.file()?);
        let given = way(&mut self.streams, number, &file)?;
        self.place()?;
        Ok(given)
    }

    /// The end of the current task's stream, not counting what waits to be settled.
    pub(crate) fn task(&mut self) -> Result<TaskWriter<'_, Files>> {
        self.task_at(self.current)
    }

    /// The end of the stream of task `index`.
    pub(crate) fn task_at(&mut self, index: usize) -> Result<TaskWriter<'_, Files>> {
        Ok(match &mut self.sink {
            Sink::All(writer) => writer.task(index)?,
            Sink::Own(writer) => writer.task(index)?,
            Sink::Copies(writer) => writer.original().task(index)?,
            Sink::Gone => return Err(Error::Poisoned.into()),
        })
    }

    /// File-system block size in bytes.
    pub(crate) fn fs_block_len(&mut self) -> u32 {
        match &mut self.sink {
            Sink::All(writer) => writer.fs_block_len(),
            Sink::Own(writer) => writer.fs_block_len(),
            Sink::Copies(writer) => writer.original().fs_block_len(),
            Sink::Gone => 0,
        }
    }

    /// Physical file of the current task.
    pub(crate) fn file_number(&self) -> Result<u32> {
        Ok(self.tasks.get(self.current).ok_or(Argument::Task)?.file)
    }

    /// Bytes that the program wrote through its stream and that were not counted yet.
    fn ahead(&mut self) -> Result<u64> {
        if !self.streams.exported() {
            return Ok(0);
        }
        let Some(at) = self.streams.at(self.file_number()?)? else { return Ok(0) };
        Ok(at.saturating_sub(self.task()?.fill().file_at()?))
    }
}
