//! The part of UCX's C interface that is used here, of API version 1.12.
//!
//! Written by hand from `ucp/api/ucp.h`, `ucp_def.h` and `ucs/type/status.h`. UCX keeps its
//! interface compatible within major version 1: structures grow at the end and `field_mask` says
//! which fields the caller knows, so these serve every later 1.x library as well. The assertions
//! hold the sizes and offsets a C compiler computes; a test has one compare all that is used here
//! with the header that is installed.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    mem::offset_of,
    ptr,
};

/// `UCP_API_MAJOR` and `UCP_API_MINOR` these definitions are taken from.
pub(crate) const API_VERSION: (c_uint, c_uint) = (1, 12);

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! {
    /// `ucp_config_t`.
    Config;
    /// `struct ucp_context`.
    Context;
    /// `struct ucp_worker`.
    Worker;
    /// `struct ucp_ep`.
    Endpoint;
    /// `struct ucp_address`.
    Address;
}

/// `ucs_status_t`: an enumeration packed to one byte.
pub(crate) type Status = i8;

pub(crate) const OK: Status = 0;
pub(crate) const IN_PROGRESS: Status = 1;
pub(crate) const ERR_MESSAGE_TRUNCATED: Status = -9;
pub(crate) const ERR_CANCELED: Status = -16;
/// The lowest error.
pub(crate) const ERR_LAST: Status = -100;

/// `ucs_status_ptr_t`: null, a status from `ERR_LAST` to -1, or a request.
pub(crate) type StatusPointer = *mut c_void;

/// Decoded [`StatusPointer`].
pub(crate) enum Started {
    /// Complete; the callback is not called.
    Done,
    /// The callback is, or was, called.
    Request,
    /// Not started; the callback is not called.
    Failed(Status),
}

impl Started {
    pub(crate) fn new(pointer: StatusPointer) -> Self {
        match i8::try_from(pointer.addr().wrapping_neg()) {
            Ok(0) => Self::Done,
            Ok(error) if (ERR_LAST..OK).contains(&-error) => Self::Failed(-error),
            _ => Self::Request,
        }
    }
}

/// `ucp_params_t`.
#[repr(C)]
pub(crate) struct Params {
    pub(crate) field_mask: u64,
    pub(crate) features: u64,
    pub(crate) request_size: usize,
    pub(crate) request_init: *const c_void,
    pub(crate) request_cleanup: *const c_void,
    pub(crate) tag_sender_mask: u64,
    pub(crate) mt_workers_shared: c_int,
    pub(crate) estimated_num_eps: usize,
    pub(crate) estimated_num_ppn: usize,
    pub(crate) name: *const c_char,
}

pub(crate) const PARAM_FIELD_FEATURES: u64 = 1 << 0;
pub(crate) const FEATURE_WAKEUP: u64 = 1 << 4;
pub(crate) const FEATURE_AM: u64 = 1 << 6;

/// `ucp_worker_params_t`.
#[repr(C)]
pub(crate) struct WorkerParams {
    pub(crate) field_mask: u64,
    /// `ucs_thread_mode_t`.
    pub(crate) thread_mode: c_uint,
    pub(crate) cpu_mask: [u64; 16],
    pub(crate) events: c_uint,
    pub(crate) user_data: *mut c_void,
    pub(crate) event_fd: c_int,
    pub(crate) flags: u64,
    pub(crate) name: *const c_char,
    pub(crate) am_alignment: usize,
    pub(crate) client_id: u64,
}

pub(crate) const WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1 << 0;
pub(crate) const THREAD_MODE_SINGLE: c_uint = 0;
pub(crate) const WORKER_PARAM_FIELD_ALIGNMENT: u64 = 1 << 7;

/// `ucs_sock_addr_t`.
#[repr(C)]
pub(crate) struct SocketAddress {
    addr: *const c_void,
    len: u32,
}

impl SocketAddress {
    pub(crate) const NONE: Self = Self { addr: ptr::null(), len: 0 };
}

/// `ucp_err_handler_cb_t`.
pub(crate) type OnFailure = unsafe extern "C" fn(*mut c_void, *mut Endpoint, Status);

/// `ucp_ep_params_t`.
#[repr(C)]
pub(crate) struct EndpointParams {
    pub(crate) field_mask: u64,
    pub(crate) address: *const Address,
    /// `ucp_err_handling_mode_t`.
    pub(crate) failure_mode: c_uint,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) on_failure_arg: *mut c_void,
    pub(crate) user_data: *mut c_void,
    pub(crate) flags: c_uint,
    pub(crate) socket_address: SocketAddress,
    pub(crate) connection_request: *mut c_void,
    pub(crate) name: *const c_char,
    pub(crate) local_address: SocketAddress,
}

pub(crate) const EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1 << 0;
pub(crate) const EP_PARAM_FIELD_FAILURE_MODE: u64 = 1 << 1;
pub(crate) const EP_PARAM_FIELD_ON_FAILURE: u64 = 1 << 2;
pub(crate) const FAILURE_MODE_PEER: c_uint = 1;
pub(crate) const EP_CLOSE_FLAG_FORCE: u32 = 1 << 0;

/// `ucp_send_nbx_callback_t`.
pub(crate) type OnSent = unsafe extern "C" fn(*mut c_void, Status, *mut c_void);

/// `ucp_am_recv_data_nbx_callback_t`.
pub(crate) type OnReceived = unsafe extern "C" fn(*mut c_void, Status, usize, *mut c_void);

/// The union `cb` of `ucp_request_param_t`.
#[repr(C)]
pub(crate) union OnComplete {
    pub(crate) sent: OnSent,
    pub(crate) received: OnReceived,
}

/// `ucp_request_param_t`.
#[repr(C)]
pub(crate) struct RequestParam {
    pub(crate) attribute_mask: u32,
    pub(crate) flags: u32,
    pub(crate) request: *mut c_void,
    pub(crate) on_complete: OnComplete,
    pub(crate) datatype: u64,
    pub(crate) user_data: *mut c_void,
    pub(crate) reply_buffer: *mut c_void,
    /// `ucs_memory_type_t`.
    pub(crate) memory_type: c_uint,
    pub(crate) received_len: *mut usize,
    pub(crate) memory_handle: *mut c_void,
}

impl RequestParam {
    pub(crate) fn new(on_complete: OnComplete, user_data: *mut c_void, flags: u32) -> Self {
        Self {
            attribute_mask: OP_ATTR_FIELD_CALLBACK
                | OP_ATTR_FIELD_USER_DATA
                | OP_ATTR_FIELD_FLAGS
                | OP_ATTR_FIELD_MEMORY_TYPE,
            flags,
            request: ptr::null_mut(),
            on_complete,
            datatype: 0,
            user_data,
            reply_buffer: ptr::null_mut(),
            memory_type: MEMORY_TYPE_HOST,
            received_len: ptr::null_mut(),
            memory_handle: ptr::null_mut(),
        }
    }
}

const OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
const OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
const OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;
const OP_ATTR_FIELD_MEMORY_TYPE: u32 = 1 << 6;
const MEMORY_TYPE_HOST: c_uint = 0;

/// Tells the receiver which endpoint the message came through.
pub(crate) const AM_SEND_FLAG_REPLY: u32 = 1 << 0;

/// `ucp_am_recv_param_t`.
#[repr(C)]
pub(crate) struct MessageParam {
    pub(crate) attributes: u64,
    pub(crate) reply_to: *mut Endpoint,
}

pub(crate) const AM_RECV_ATTR_FIELD_REPLY_TO: u64 = 1 << 0;
/// The data may be kept, and is released later.
pub(crate) const AM_RECV_ATTR_FLAG_DATA: u64 = 1 << 16;
pub(crate) const AM_RECV_ATTR_FLAG_RENDEZVOUS: u64 = 1 << 17;

/// `ucp_am_recv_callback_t`.
pub(crate) type OnMessage = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *const MessageParam,
) -> Status;

/// `ucp_am_handler_param_t`.
#[repr(C)]
pub(crate) struct MessageHandler {
    pub(crate) field_mask: u64,
    pub(crate) id: c_uint,
    pub(crate) flags: u32,
    pub(crate) on_message: Option<OnMessage>,
    pub(crate) arg: *mut c_void,
}

pub(crate) const MESSAGE_HANDLER_FIELD_ID: u64 = 1 << 0;
pub(crate) const MESSAGE_HANDLER_FIELD_CALLBACK: u64 = 1 << 2;
pub(crate) const MESSAGE_HANDLER_FIELD_ARG: u64 = 1 << 3;

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Params>() == 80 && offset_of!(Params, name) == 72);
    assert!(size_of::<WorkerParams>() == 200 && offset_of!(WorkerParams, events) == 144);
    assert!(offset_of!(WorkerParams, client_id) == 192);
    assert!(size_of::<EndpointParams>() == 104 && offset_of!(EndpointParams, on_failure) == 24);
    assert!(offset_of!(EndpointParams, flags) == 48);
    assert!(offset_of!(EndpointParams, connection_request) == 72);
    assert!(size_of::<RequestParam>() == 72 && offset_of!(RequestParam, on_complete) == 16);
    assert!(offset_of!(RequestParam, user_data) == 32);
    assert!(offset_of!(RequestParam, memory_type) == 48);
    assert!(size_of::<MessageHandler>() == 32 && offset_of!(MessageHandler, arg) == 24);
    assert!(size_of::<MessageParam>() == 16 && size_of::<SocketAddress>() == 16);
};

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, io::Write as _, path::Path, process::Command};

    use super::*;

    /// Values that the C compiler has to find equal, as pairs of C and Rust.
    macro_rules! pairs {
        ($($c:literal == $rust:expr,)*) => {
            [$(($c, i128::try_from($rust).expect("fits"))),*]
        };
    }

    #[test]
    fn numbers_and_layouts_are_those_of_the_installed_header() {
        if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
            let line = b"1 SKIPPED: ucx: no ucp/api/ucp.h to compare with (Debian: libucx-dev)\n";
            return std::io::stderr().write_all(line).expect("standard error");
        }
        let pairs = pairs! {
            "UCS_INPROGRESS" == IN_PROGRESS,
            "UCS_ERR_MESSAGE_TRUNCATED" == ERR_MESSAGE_TRUNCATED,
            "UCS_ERR_CANCELED" == ERR_CANCELED,
            "UCS_ERR_LAST" == ERR_LAST,
            "UCP_PARAM_FIELD_FEATURES" == PARAM_FIELD_FEATURES,
            "UCP_FEATURE_WAKEUP" == FEATURE_WAKEUP,
            "UCP_FEATURE_AM" == FEATURE_AM,
            "UCP_WORKER_PARAM_FIELD_THREAD_MODE" == WORKER_PARAM_FIELD_THREAD_MODE,
            "UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT" == WORKER_PARAM_FIELD_ALIGNMENT,
            "UCS_THREAD_MODE_SINGLE" == THREAD_MODE_SINGLE,
            "UCP_EP_PARAM_FIELD_REMOTE_ADDRESS" == EP_PARAM_FIELD_REMOTE_ADDRESS,
            "UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE" == EP_PARAM_FIELD_FAILURE_MODE,
            "UCP_EP_PARAM_FIELD_ERR_HANDLER" == EP_PARAM_FIELD_ON_FAILURE,
            "UCP_ERR_HANDLING_MODE_PEER" == FAILURE_MODE_PEER,
            "UCP_EP_CLOSE_FLAG_FORCE" == EP_CLOSE_FLAG_FORCE,
            "UCP_OP_ATTR_FIELD_CALLBACK" == OP_ATTR_FIELD_CALLBACK,
            "UCP_OP_ATTR_FIELD_USER_DATA" == OP_ATTR_FIELD_USER_DATA,
            "UCP_OP_ATTR_FIELD_FLAGS" == OP_ATTR_FIELD_FLAGS,
            "UCP_OP_ATTR_FIELD_MEMORY_TYPE" == OP_ATTR_FIELD_MEMORY_TYPE,
            "UCS_MEMORY_TYPE_HOST" == MEMORY_TYPE_HOST,
            "UCP_AM_SEND_FLAG_REPLY" == AM_SEND_FLAG_REPLY,
            "UCP_AM_RECV_ATTR_FIELD_REPLY_EP" == AM_RECV_ATTR_FIELD_REPLY_TO,
            "UCP_AM_RECV_ATTR_FLAG_DATA" == AM_RECV_ATTR_FLAG_DATA,
            "UCP_AM_RECV_ATTR_FLAG_RNDV" == AM_RECV_ATTR_FLAG_RENDEZVOUS,
            "UCP_AM_HANDLER_PARAM_FIELD_ID" == MESSAGE_HANDLER_FIELD_ID,
            "UCP_AM_HANDLER_PARAM_FIELD_CB" == MESSAGE_HANDLER_FIELD_CALLBACK,
            "UCP_AM_HANDLER_PARAM_FIELD_ARG" == MESSAGE_HANDLER_FIELD_ARG,
            "sizeof(ucs_status_t)" == size_of::<Status>(),
            "offsetof(ucp_params_t, features)" == offset_of!(Params, features),
            "offsetof(ucp_worker_params_t, thread_mode)" == offset_of!(WorkerParams, thread_mode),
            "offsetof(ucp_worker_params_t, am_alignment)" == offset_of!(WorkerParams, am_alignment),
            "offsetof(ucp_ep_params_t, address)" == offset_of!(EndpointParams, address),
            "offsetof(ucp_ep_params_t, err_mode)" == offset_of!(EndpointParams, failure_mode),
            "offsetof(ucp_ep_params_t, err_handler)" == offset_of!(EndpointParams, on_failure),
            "offsetof(ucp_request_param_t, flags)" == offset_of!(RequestParam, flags),
            "offsetof(ucp_request_param_t, cb)" == offset_of!(RequestParam, on_complete),
            "offsetof(ucp_request_param_t, user_data)" == offset_of!(RequestParam, user_data),
            "offsetof(ucp_request_param_t, memory_type)" == offset_of!(RequestParam, memory_type),
            "offsetof(ucp_am_recv_param_t, reply_ep)" == offset_of!(MessageParam, reply_to),
            "offsetof(ucp_am_handler_param_t, cb)" == offset_of!(MessageHandler, on_message),
            "offsetof(ucp_am_handler_param_t, arg)" == offset_of!(MessageHandler, arg),
        };
        let mut source = "#include <stddef.h>\n#include <ucp/api/ucp.h>\n".to_owned();
        for (c, rust) in pairs {
            writeln!(source, "_Static_assert((long long)({c}) == {rust}, \"{c}\");").unwrap();
        }
        let file = tempfile::Builder::new().suffix(".c").tempfile().expect("a file");
        std::fs::write(&file, source).expect("written");
        let output = Command::new("cc").arg("-fsyntax-only").arg(file.path()).output();
        let output = output.expect("a C compiler, as for linking this test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
