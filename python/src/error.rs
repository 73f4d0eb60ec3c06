//! Python exceptions for failed operations.

use std::path::Path;

use multifile::{
    Error,
    error::{Cause, reason},
    name,
};
use pyo3::{
    create_exception,
    exceptions::{PyException, PyOSError, PyValueError},
    prelude::*,
};

create_exception!(_kakehi, MultifileError, PyException, "An operation on a multifile failed.");
create_exception!(_kakehi, DamagedError, MultifileError, "The file contradicts itself.");
create_exception!(
    _kakehi,
    UnclosedError,
    MultifileError,
    "The file was never closed; 'kakehi multifile repair' makes it readable."
);
create_exception!(_kakehi, RankError, MultifileError, "Another rank failed.");

/// The exceptions of the module.
pub(crate) struct Errors;

impl Errors {
    /// Adds them.
    pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("MultifileError", py.get_type::<MultifileError>())?;
        module.add("DamagedError", py.get_type::<DamagedError>())?;
        module.add("UnclosedError", py.get_type::<UnclosedError>())?;
        module.add("RankError", py.get_type::<RankError>())
    }
}

/// The exception for what failed on the multifile at `path`: an `OSError` with its number where the
/// system has one.
pub(crate) fn raise(path: &Path, why: Error) -> PyErr {
    let text = || format!("{}: {why}", path.display());
    match why {
        Error::Io { file, os, .. } if os != 0 => system(path, file, os),
        Error::OnRank { cause: Cause::Io(file, os), .. } if os != 0 => system(path, file, os),
        Error::Argument(_) => PyValueError::new_err(text()),
        Error::Damaged { .. } => DamagedError::new_err(text()),
        Error::Unclosed { .. } => UnclosedError::new_err(text()),
        Error::OnRank { .. } => RankError::new_err(text()),
        _ => MultifileError::new_err(text()),
    }
}

/// `OSError(number, text, name)` becomes the subclass for its number.
fn system(path: &Path, file: u32, number: i32) -> PyErr {
    let text = reason(number);
    PyOSError::new_err((number, text, name::physical(path, file).into_os_string()))
}
