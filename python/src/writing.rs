//! A multifile being written: all tasks, or one of each rank.

use std::{path::PathBuf, sync::Mutex};

use multifile::{Argument, Disk, Error, NewTask, Options, ParWriter, Style, TaskWriter};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{comm::Comm, error::raise};

/// Writer behind `kakehi.Multifile`.
#[pyclass(frozen, module = "kakehi._kakehi")]
pub(crate) struct Writer {
    path: PathBuf,
    keyval: bool,
    /// `None` when it is closed.
    sink: Mutex<Option<Sink>>,
}

enum Sink {
    All(multifile::Writer<Disk>),
    Own(Box<ParWriter<Disk>>, Py<PyAny>),
}

impl Sink {
    fn task(&mut self, task: usize) -> Result<TaskWriter<'_, Disk>, Error> {
        match self {
            Self::All(writer) => writer.task(task),
            Self::Own(writer, _) => writer.task(task),
        }
    }
}

#[pymethods]
impl Writer {
    /// Creates a multifile with a task for each of `chunks`; with `comm`, each rank passes one.
    #[new]
    #[pyo3(signature = (path, chunks, *, files, fs_block_size, keyval, checksums, durable, comm))]
    #[expect(clippy::too_many_arguments, reason = "named options of one constructor")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        chunks: Vec<u64>,
        files: u32,
        fs_block_size: Option<u32>,
        keyval: bool,
        checksums: bool,
        durable: bool,
        comm: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let style = if comm.is_some() { Style::Parallel } else { Style::Serial };
        let fs_block_len = fs_block_size;
        let options =
            Options { fs_block_len, keyval, checksums, durable, style, ..Options::default() };
        let sink = match comm {
            None => {
                let tasks = NewTask::in_files(&chunks, files);
                let writer =
                    py.detach(|| multifile::Writer::create(&Disk::new(), &path, &tasks, &options));
                Sink::All(writer.map_err(|why| raise(&path, why))?)
            }
            Some(comm) => {
                let held = comm.clone().unbind();
                let writer = Comm::new(comm).call(&path, |group| {
                    let task = own_task(&chunks, group.rank, group.size, files);
                    let disk = Disk::new();
                    ParWriter::create_with(group, &disk, &path, task, &options, |_, _| Ok(()))
                })?;
                Sink::Own(Box::new(writer), held)
            }
        };
        Ok(Self { path, keyval, sink: Mutex::new(Some(sink)) })
    }

    /// Appends to a task.
    fn write(&self, py: Python<'_>, task: usize, data: &[u8]) -> PyResult<()> {
        self.demand(!self.keyval, "its streams hold records: use write_key")?;
        self.with(py, |sink| sink.task(task)?.write(data))
    }

    /// Appends a record to a task.
    fn write_key(&self, py: Python<'_>, task: usize, key: u64, data: &[u8]) -> PyResult<()> {
        self.demand(self.keyval, "its streams hold no records: open it with keyval=True")?;
        self.with(py, |sink| sink.task(task)?.write_record(key, data))
    }

    /// Bytes of a task so far.
    fn size(&self, py: Python<'_>, task: usize) -> PyResult<u64> {
        self.with(py, |sink| Ok(sink.task(task)?.fill().total()))
    }

    /// Number of tasks of this process.
    fn task_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |sink| {
            Ok(match sink {
                Sink::All(writer) => writer.task_count(),
                Sink::Own(writer, _) => writer.task_count(),
            })
        })
    }

    /// Hands everything to the system; with `durable` returns when it survives a crash of the node.
    fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        self.with(py, |sink| match sink {
            Sink::All(writer) if durable => writer.sync(),
            Sink::All(writer) => writer.flush(),
            Sink::Own(writer, _) if durable => writer.task(0)?.sync(),
            Sink::Own(writer, _) => writer.task(0)?.flush(),
        })
    }

    /// Completes the multifile; collective if it was opened with a communicator.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let sink = py.detach(|| self.sink.lock().map(|mut sink| sink.take()).ok().flatten());
        match sink {
            None => Ok(()),
            Some(Sink::All(writer)) => {
                py.detach(|| writer.close()).map_err(|why| raise(&self.path, why))
            }
            Some(Sink::Own(writer, comm)) => {
                Comm::new(comm.into_bound(py)).call(&self.path, |group| writer.close(group))
            }
        }
    }
}

impl Writer {
    /// Refuses a way to write that would spoil the streams.
    fn demand(&self, is_right: bool, why: &str) -> PyResult<()> {
        let failed = || PyValueError::new_err(format!("{}: {why}", self.path.display()));
        is_right.then_some(()).ok_or_else(failed)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Sink) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            // A panic while it was held leaves nothing to write to.
            let mut sink = self.sink.lock().ok()?;
            Some(work(sink.as_mut()?))
        });
        let done = done.ok_or_else(|| PyValueError::new_err("the multifile is closed"))?;
        done.map_err(|why| raise(&self.path, why))
    }
}

/// The task of one rank, in one of `files` files of consecutive ranks.
fn own_task(chunks: &[u64], rank: u32, size: u32, files: u32) -> Result<NewTask, Error> {
    let [chunk_len] = *chunks else { return Err(Argument::Mapping.into()) };
    let group = (size / files.clamp(1, size.max(1))).max(1);
    let file = (rank / group).min(files.clamp(1, size.max(1)) - 1);
    let local_rank = rank - file * group;
    Ok(NewTask { file, local_rank, global_rank: rank.into(), chunk_len })
}
