//! Hands over what waits in write buffers when a program ends without closing its files, as stdio
//! does: the files stay unclosed, and repair finds all that was written.
//!
//! A forked child has its parent's buffers and leaves them alone.

use std::{
    process,
    sync::{
        Arc, Mutex, Once, OnceLock, TryLockError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::handle::{Body, Open};

static REGISTERED: Once = Once::new();
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Gives the open multifiles.
type Files = fn() -> Vec<Arc<Mutex<Open>>>;

static FILES: OnceLock<Files> = OnceLock::new();

/// Makes sure that the end of this process is noticed, and what is open then is found.
pub(crate) fn watch(files: Files) {
    FILES.get_or_init(|| files);
    REGISTERED.call_once(|| {
        // SAFETY: the function may be called at any time, and lives as long as this library.
        unsafe { libc::atexit(flush_all) };
    });
    OWNER.store(process::id(), Relaxed);
}

extern "C" fn flush_all() {
    if OWNER.load(Relaxed) != process::id() {
        return;
    }
    for open in FILES.get().map(|files| files()).unwrap_or_default() {
        // A thread that is still writing keeps its file; nobody waits for it here.
        let mut open = match open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(open)) => open.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        if let Body::Write(writing) = &mut open.body {
            // There is nobody left to tell.
            writing.flush().ok();
        }
    }
}
