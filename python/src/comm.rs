//! Ranks that talk through a communicator of mpi4py, or any object with its methods `gather`,
//! `scatter`, `bcast`, `Barrier`, `Get_rank`, and `Get_size`.

use std::{cell::RefCell, path::Path};

use multifile::{Error, group::Callbacks};
use pyo3::{prelude::*, types::PyBytes};

use crate::error::raise;

/// A communicator in a collective call, and the first exception that it raised there.
pub(crate) struct Comm<'py> {
    comm: Bound<'py, PyAny>,
    raised: RefCell<Option<PyErr>>,
}

impl<'py> Comm<'py> {
    pub(crate) fn new(comm: Bound<'py, PyAny>) -> Self {
        Self { comm, raised: RefCell::new(None) }
    }

    /// Makes a collective call; what Python raised meanwhile is what failed.
    pub(crate) fn call<T>(
        &self,
        path: &Path,
        call: impl FnOnce(&Callbacks<'_>) -> Result<T, Error>,
    ) -> PyResult<T> {
        let group = Callbacks {
            rank: self.comm.call_method0("Get_rank")?.extract()?,
            size: self.comm.call_method0("Get_size")?.extract()?,
            gather: Box::new(|mine, all| self.run(|| self.gather(mine, all))),
            scatter: Box::new(|all, mine| self.run(|| self.scatter(all, mine))),
            broadcast: Box::new(|bytes| self.run(|| self.broadcast(bytes))),
            barrier: Box::new(|| self.run(|| self.comm.call_method0("Barrier").map(|_| ()))),
        };
        let done = call(&group);
        drop(group);
        match self.raised.take() {
            Some(raised) => Err(raised),
            None => done.map_err(|why| raise(path, why)),
        }
    }

    fn run(&self, call: impl FnOnce() -> PyResult<()>) -> i32 {
        match call() {
            Ok(()) => 0,
            Err(raised) => {
                self.raised.borrow_mut().get_or_insert(raised);
                1
            }
        }
    }

    fn gather(&self, mine: &[u8], all: &mut [u8]) -> PyResult<()> {
        let mine = PyBytes::new(self.comm.py(), mine);
        let parts = self.comm.call_method1("gather", (mine,))?;
        if all.is_empty() {
            return Ok(());
        }
        let parts: Vec<Vec<u8>> = parts.extract()?;
        copy(&parts.concat(), all)
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> PyResult<()> {
        if mine.is_empty() {
            return Ok(());
        }
        let py = self.comm.py();
        // Only the root has something to scatter.
        let parts = all.chunks(mine.len()).map(|part| PyBytes::new(py, part));
        let sent = (!all.is_empty()).then(|| parts.collect::<Vec<_>>());
        let part = self.comm.call_method1("scatter", (sent,))?;
        copy(&part.extract::<Vec<u8>>()?, mine)
    }

    fn broadcast(&self, bytes: &mut [u8]) -> PyResult<()> {
        let sent = PyBytes::new(self.comm.py(), bytes);
        let found = self.comm.call_method1("bcast", (sent,))?;
        copy(&found.extract::<Vec<u8>>()?, bytes)
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> PyResult<()> {
    if from.len() != to.len() {
        let why = "ranks exchanged messages of different lengths";
        return Err(pyo3::exceptions::PyRuntimeError::new_err(why));
    }
    to.copy_from_slice(from);
    Ok(())
}
