//! libucp, opened at run time.
//!
//! The library is never closed: it starts threads and leaves hooks in the process.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    mem,
};

use crate::{
    abi::{self, Status, StatusPointer},
    error::Error,
};

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libucp that are used here. Each is what its name says in `ucp.h`.
        #[derive(Clone, Copy)]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(handle: *mut c_void, library: &str) -> Result<Self, Error> {
                Ok(Self { $($name: {
                    let address = function(handle, library, concat!(stringify!($name), "\0"))?;
                    // SAFETY: `find` is called with a libucp that serves API 1.12; this is the
                    // function's type there, and an address of a function is not null.
                    unsafe {
                        mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(address)
                    }
                },)* })
            }
        }
    };
}

functions! {
    ucp_config_read: fn(*const c_char, *const c_char, *mut *mut abi::Config) -> Status;
    ucp_config_modify: fn(*mut abi::Config, *const c_char, *const c_char) -> Status;
    ucp_config_release: fn(*mut abi::Config);
    ucp_init_version: fn(
        c_uint, c_uint, *const abi::Params, *const abi::Config, *mut *mut abi::Context
    ) -> Status;
    ucp_cleanup: fn(*mut abi::Context);
    ucp_worker_create: fn(
        *mut abi::Context, *const abi::WorkerParams, *mut *mut abi::Worker
    ) -> Status;
    ucp_worker_destroy: fn(*mut abi::Worker);
    ucp_worker_progress: fn(*mut abi::Worker) -> c_uint;
    ucp_worker_get_efd: fn(*mut abi::Worker, *mut c_int) -> Status;
    ucp_worker_arm: fn(*mut abi::Worker) -> Status;
    ucp_worker_get_address: fn(*mut abi::Worker, *mut *mut abi::Address, *mut usize) -> Status;
    ucp_worker_release_address: fn(*mut abi::Worker, *mut abi::Address);
    ucp_worker_set_am_recv_handler: fn(*mut abi::Worker, *const abi::MessageHandler) -> Status;
    ucp_ep_create: fn(
        *mut abi::Worker, *const abi::EndpointParams, *mut *mut abi::Endpoint
    ) -> Status;
    ucp_ep_close_nbx: fn(*mut abi::Endpoint, *const abi::RequestParam) -> StatusPointer;
    ucp_am_send_nbx: fn(
        *mut abi::Endpoint, c_uint, *const c_void, usize, *const c_void, usize,
        *const abi::RequestParam
    ) -> StatusPointer;
    ucp_am_recv_data_nbx: fn(
        *mut abi::Worker, *mut c_void, *mut c_void, usize, *const abi::RequestParam
    ) -> StatusPointer;
    ucp_am_data_release: fn(*mut abi::Worker, *mut c_void);
    ucp_request_free: fn(*mut c_void);
}

impl Library {
    /// Opens `library`, a file name for the dynamic linker, and checks its version.
    pub(crate) fn open(library: &str) -> Result<Self, Error> {
        let missing =
            |reason: &str| Error::Missing { library: library.into(), reason: reason.into() };
        let name = CString::new(library).map_err(|_| missing("the name contains a zero byte"))?;
        // SAFETY: the name ends in zero; what constructors of libraries do is the user's choice
        // of library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing(&linker_error()));
        }
        let found = version(handle, library)?;
        if !serves(found.0, found.1) {
            return Err(Error::Version { library: library.into(), found });
        }
        Self::find(handle, library)
    }
}

/// True if a library of this version keeps the interface written down in `abi`.
fn serves(major: u32, minor: u32) -> bool {
    let (api_major, api_minor) = abi::API_VERSION;
    major == api_major && minor >= api_minor
}

fn version(handle: *mut c_void, library: &str) -> Result<(u32, u32, u32), Error> {
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);

    let address = function(handle, library, "ucp_get_version\0")?;
    // SAFETY: the type of this function in every version of UCX, and not null.
    let get_version = unsafe { mem::transmute::<*mut c_void, GetVersion>(address) };
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three places to write to.
    unsafe { get_version(&raw mut major, &raw mut minor, &raw mut release) };
    Ok((major, minor, release))
}

/// Looks up `name`, which ends in a zero byte.
fn function(handle: *mut c_void, library: &str, name: &'static str) -> Result<*mut c_void, Error> {
    // SAFETY: `handle` comes from dlopen and is never closed; the name ends in zero.
    let address = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    if address.is_null() {
        let name = name.trim_end_matches('\0');
        return Err(Error::Function { library: library.into(), name });
    }
    Ok(address)
}

/// Why the last dlopen of this thread failed.
fn linker_error() -> String {
    // SAFETY: no conditions; the text is this thread's.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".into();
    }
    // SAFETY: a C string, valid until this thread's next call of the dynamic linker.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_with_the_same_interface_serve() {
        assert!(serves(1, 12) && serves(1, 13) && serves(1, 20));
        assert!(!serves(1, 11) && !serves(2, 0) && !serves(0, 99));
    }
}
