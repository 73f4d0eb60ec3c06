//! `kakehi._kakehi`: multifiles for the Python module `kakehi`, whose classes wrap these.
//!
//! Reads and writes release the interpreter; collective calls do not, because their messages
//! travel through Python ([`comm`]).

mod comm;
mod error;
mod reading;
mod writing;

use pyo3::prelude::*;

use crate::{error::Errors, reading::Reader, writing::Writer};

#[pymodule]
fn _kakehi(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Reader>()?;
    module.add_class::<Writer>()?;
    Errors::add(module)
}
