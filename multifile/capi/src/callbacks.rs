//! The callbacks by which a program of the generic interface communicates.

use std::ffi::{c_int, c_void};

use crate::files::NameCallback;

pub(crate) type CreateLocal = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;
pub(crate) type OnComm = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type Broadcast =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, c_int) -> c_int;
pub(crate) type Exchange =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int) -> c_int;
/// Callbacks that programs register and this library has no use for.
pub(crate) type Unused = unsafe extern "C" fn();

/// The callbacks of one descriptor.
#[derive(Clone, Copy, Default)]
pub(crate) struct Api {
    pub(crate) create_local: Option<CreateLocal>,
    pub(crate) free_local: Option<OnComm>,
    pub(crate) barrier: Option<OnComm>,
    pub(crate) broadcast: Option<Broadcast>,
    pub(crate) gather: Option<Exchange>,
    pub(crate) scatter: Option<Exchange>,
    pub(crate) name: Option<NameCallback>,
    pub(crate) gather_varying: Option<Unused>,
    pub(crate) scatter_varying: Option<Unused>,
    pub(crate) gather_and_execute: Option<Unused>,
    pub(crate) execute_and_scatter: Option<Unused>,
    pub(crate) capability: Option<OnComm>,
}
