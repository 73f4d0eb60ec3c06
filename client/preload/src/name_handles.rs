//! Calls that tie something to a name of this node: a watch, a handle. A remote name is nothing to
//! the kernel, or a local folder in which nothing happens.

use client::Errno;
use libc::{AT_FDCWD, c_int, c_void};

use crate::{
    descriptor::refuse,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask, kernel},
    path_attributes::remote,
    pointers::Text,
    process_client::client,
};

interpose! { safe:
    // As if there were no watch left: programs then look from time to time.
    fn inotify_add_watch(queue: c_int, path: Text<'_>, mask: u32) -> c_int {
        answer(unless_remote(AT_FDCWD, path, Errno::NOSPC, |path| {
            ask!(SYS_inotify_add_watch, queue, path, mask)
        }))
    }
}

interpose! {
    fn name_to_handle_at(
        dir: c_int, path: Text<'_>, handle: *mut c_void, mount: *mut c_int, flags: c_int,
    ) -> c_int {
        if client().is_some_and(|client| client.is_remote_file(dir)) {
            return refuse(Errno::NOTSUP);
        }
        answer(unless_remote(dir, path, Errno::NOTSUP, |path| {
            kernel!(SYS_name_to_handle_at, dir, path, handle, mount, flags)
        }))
    }
}

/// Asks the kernel of a name that is not remote.
fn unless_remote(
    dir: c_int,
    path: Text<'_>,
    refusal: Errno,
    ask: impl FnOnce(Text<'_>) -> Outcome,
) -> Outcome {
    match remote(dir, path) {
        Some(_) => Err(refusal),
        None => ask(path),
    }
}
