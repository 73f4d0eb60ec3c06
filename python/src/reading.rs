//! A multifile open for reading: all tasks, or those of one rank.

use std::{
    ffi::{CString, OsString},
    fs::File,
    os::fd::AsRawFd as _,
    path::PathBuf,
};

use multifile::{
    Argument, Disk, Error, ParReader, TaskReader,
    catalogue::{TASK, Unreadable},
    codec::Order,
    header::Keyval,
    keyval::Records,
    name,
};
use pyo3::{
    exceptions::PyRuntimeWarning,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    comm::Comm,
    error::{DamagedError, raise},
};

type Stream = TaskReader<File>;

/// Reader behind `kakehi.Multifile`.
#[pyclass(frozen, module = "kakehi._kakehi")]
pub(crate) struct Reader {
    path: PathBuf,
    source: Source,
}

enum Source {
    All(multifile::Reader<File>),
    Own(ParReader<File>),
}

/// File, local rank, global rank, chunk size, and the bytes used of each block.
type Described = (u32, u32, i64, u64, Vec<u64>);
/// Name, mode, modification time in seconds, task, and text of a symbolic link.
type Named = (Vec<u8>, u32, f64, Option<u64>, Vec<u8>);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (path, comm=None))]
    fn new(py: Python<'_>, path: PathBuf, comm: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let source = match comm {
            None => {
                let opened = py.detach(|| multifile::Reader::open(&Disk::new(), &path));
                Source::All(opened.map_err(|why| raise(&path, why))?)
            }
            Some(comm) => Source::Own(
                Comm::new(comm).call(&path, |group| ParReader::open(group, &Disk::new(), &path))?,
            ),
        };
        Ok(Self { path, source })
    }

    /// Number of tasks of this process.
    fn task_count(&self) -> usize {
        match &self.source {
            Source::All(reader) => reader.task_count(),
            Source::Own(reader) => reader.tasks().len(),
        }
    }

    fn task(&self, task: usize) -> PyResult<Described> {
        let stream = self.stream(task)?;
        let found = match &self.source {
            Source::All(reader) => reader.task(task).map_err(|why| raise(&self.path, why))?,
            Source::Own(reader) => {
                let local = reader.tasks().get(task);
                local.ok_or_else(|| raise(&self.path, Argument::Task.into()))?.task
            }
        };
        let lens = stream.cursor().block_lens().to_vec();
        Ok((found.file, found.local_rank, found.global_rank, found.chunk_len, lens))
    }

    /// Bytes of a task.
    fn size(&self, task: usize) -> PyResult<u64> {
        Ok(self.stream(task)?.cursor().total())
    }

    /// `size` bytes of a task from `offset` on, fewer at its end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        task: usize,
        offset: u64,
        size: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut stream = self.stream(task)?;
        let left = stream.cursor().total().saturating_sub(offset);
        let len = usize::try_from(size.map_or(left, |size| size.min(left)));
        let len = len.map_err(|_| raise(&self.path, Error::TooLarge))?;
        PyBytes::new_with(py, len, |bytes| {
            let read = py.detach(|| {
                stream.seek(offset.min(stream.cursor().total()))?;
                stream.read(bytes)
            });
            read.map(|_| ()).map_err(|why| raise(&self.path, why))
        })
    }

    /// Descriptor, offset, and length of every stored piece of a task, in order. The descriptor is
    /// open as long as this object is.
    fn extents(&self, task: usize) -> PyResult<Vec<(i32, u64, u64)>> {
        let mut stream = self.stream(task)?;
        let fd = stream.file().as_raw_fd();
        let lens = stream.cursor().block_lens().to_vec();
        let mut extents = Vec::new();
        for (block, len) in lens.into_iter().enumerate().filter(|(_, len)| *len > 0) {
            let at = stream.seek_block(block, 0).and_then(|()| stream.cursor().file_at());
            extents.push((fd, at.map_err(|why| raise(&self.path, why))?, len));
        }
        Ok(extents)
    }

    /// The name of the physical file that holds a task.
    fn physical(&self, task: usize) -> PyResult<OsString> {
        let number = self.stream(task)?.file_number();
        let alone = matches!(&self.source, Source::All(reader) if reader.file_count() == 1);
        let path = if alone { self.path.clone() } else { name::physical(&self.path, number) };
        Ok(path.into_os_string())
    }

    /// Names in the order of the tree, or `None` if the multifile has none.
    fn names(&self, py: Python<'_>) -> PyResult<Option<Vec<Named>>> {
        let Source::All(reader) = &self.source else { return Ok(None) };
        if reader.task_count() == 0 {
            return Ok(None);
        }
        let mut stream = self.stream(TASK)?;
        let read = py.detach(|| stream.read_names());
        let catalogue = match read.map_err(|why| raise(&self.path, why))? {
            Ok(read) => {
                if read.is_damaged(true) {
                    self.warn(py, "its names are damaged: some are lost")?;
                }
                read.catalogue
            }
            Err(Unreadable::NoNames) => return Ok(None),
            Err(_) => return Err(self.damaged("its names are damaged")),
        };
        let paths = catalogue.paths().ok_or_else(|| self.damaged("its folders are too deep"))?;
        let named = paths.into_iter().filter_map(|(path, inode)| {
            let node = catalogue.node(inode)?;
            let [_, (seconds, nanoseconds), _] = node.times;
            #[expect(clippy::cast_precision_loss, reason = "Python's times are floats, too")]
            let modified = seconds as f64 + f64::from(nanoseconds) / 1e9;
            Some((path, node.mode, modified, node.task, node.text.clone()))
        });
        Ok(Some(named.collect()))
    }

    /// Key and length of every record of a task, in the order in which they were written.
    fn records(&self, py: Python<'_>, task: usize) -> PyResult<Vec<(u64, u64)>> {
        let scanned = self.scan(py, task)?;
        Ok(scanned.records().iter().map(|record| (record.key, record.len)).collect())
    }

    /// The data of every record of a key.
    fn read_key<'py>(
        &self,
        py: Python<'py>,
        task: usize,
        key: u64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let scanned = self.scan(py, task)?;
        let records = scanned.records().iter().filter(|record| record.key == key);
        records.map(|record| self.read(py, task, record.at, Some(record.len))).collect()
    }

    /// True if the data has its checksums, false if there are none.
    fn verify(&self, py: Python<'_>, task: usize) -> PyResult<bool> {
        let Source::All(reader) = &self.source else { return Ok(false) };
        py.detach(|| reader.verify(task)).map_err(|why| raise(&self.path, why))
    }

    /// Returns the properties common to all tasks.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let (files, fs_block_len, order, data_order, keyval) = match &self.source {
            Source::All(reader) => {
                let header = reader.header(0).ok_or_else(|| self.damaged("it has no header"))?;
                let all = (header.fs_block_len, header.order, header.data_order, header.keyval);
                dict.set_item("format_version", header.version)?;
                dict.set_item("checksums", reader.has_checksums())?;
                (header.file_count, all.0, all.1, all.2, all.3)
            }
            Source::Own(reader) => {
                let set = reader.set();
                (set.file_count, set.fs_block_len, set.order, set.data_order, set.keyval)
            }
        };
        let word = |order| if order == Order::Big { "big" } else { "little" };
        dict.set_item("files", files)?;
        dict.set_item("fs_block_size", fs_block_len)?;
        dict.set_item("byte_order", word(order))?;
        dict.set_item("data_byte_order", word(data_order))?;
        dict.set_item("keyval", keyval == Keyval::Inline)?;
        Ok(dict)
    }
}

impl Reader {
    fn stream(&self, task: usize) -> PyResult<Stream> {
        let found = match &self.source {
            Source::All(reader) => reader.stream(task),
            Source::Own(reader) => {
                let local = reader.tasks().get(task);
                local.map(|local| local.stream.clone()).ok_or(Argument::Task.into())
            }
        };
        found.map_err(|why| raise(&self.path, why))
    }

    fn scan(&self, py: Python<'_>, task: usize) -> PyResult<Records<File>> {
        let (stream, order) = (self.stream(task)?, self.order());
        py.detach(|| Records::scan(stream, order)).map_err(|why| raise(&self.path, why))
    }

    fn order(&self) -> Order {
        match &self.source {
            Source::All(reader) => reader.header(0).map_or(Order::NATIVE, |header| header.order),
            Source::Own(reader) => reader.set().order,
        }
    }

    /// Warns where what can be read is not all there was.
    fn warn(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        let text = CString::new(format!("{}: {why}", self.path.display()))?;
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
    }

    fn damaged(&self, why: &str) -> PyErr {
        DamagedError::new_err(format!("{}: {why}", self.path.display()))
    }
}
