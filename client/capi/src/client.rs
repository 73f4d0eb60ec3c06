//! The preload library's client, if it is in the process.

use std::{mem, ptr::NonNull, sync::OnceLock};

use seam::{Calls, Find};

/// Returns the client's functions; `None` where nothing is delegated.
pub(crate) fn client() -> Option<&'static Calls> {
    static FIND: OnceLock<Option<Find>> = OnceLock::new();
    let find = (*FIND.get_or_init(find))?;
    // SAFETY: the name is the promise: it takes nothing.
    let calls = unsafe { find() };
    // SAFETY: null, or a table that stays.
    unsafe { calls.as_ref() }
}

/// A library that is preloaded is there from the start, and is found by whoever looks among all.
fn find() -> Option<Find> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, seam::NAME.as_ptr()) };
    // SAFETY: the name is the promise: a function of this type.
    NonNull::new(found).map(|found| unsafe { mem::transmute::<NonNull<_>, Find>(found) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_the_preload_library_there_is_no_client() {
        assert!(super::client().is_none());
    }
}
