//! A file that is written in order for long, and its descriptor past the page cache.
//!
//! The second descriptor has `O_DIRECT`. The kernel keeps both coherent: a direct write first
//! writes and drops what the page cache has of its range. It is opened by the file's own, so it is
//! the same inode whatever became of the name, and closed before it.
//!
//! A file that this process has open twice goes through the page cache: if pages of a direct
//! write's range get dirty meanwhile, for which a neighbour in a large folio is enough, `fsync`
//! fails.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{Mode, OFlags, fcntl_getfl, open},
    io::Result,
    param::page_size,
};

use crate::memory::{Buffers, PAGE_LEN};

/// Bytes in order from which on a file counts as a long stream.
pub(crate) const LONG: u64 = 16 << 20;
/// Shorter writes go through the page cache, and are not counted.
const PIECE_LEN_MIN: usize = 64 << 10;
/// Files of this process that have a second descriptor.
const DIRECT_MAX: usize = 64;

static DIRECT: AtomicUsize = AtomicUsize::new(0);

/// Device and inode.
type Inode = (u64, u64);

/// Inodes that are open, each with a share for every open file.
static OPEN: Mutex<BTreeMap<Inode, Arc<Inode>>> = Mutex::new(BTreeMap::new());

/// Progress of an open file.
#[derive(Debug)]
pub(crate) struct Long {
    state: Mutex<State>,
    /// `None`: it is closed.
    inode: Option<Arc<Inode>>,
}

#[derive(Debug, Default)]
struct State {
    /// End of the last write.
    next: u64,
    /// Bytes in order up to there.
    len: u64,
    direct: Option<Direct>,
    has_left: bool,
}

#[derive(Debug)]
struct Direct {
    fd: Arc<OwnedFd>,
    _permit: DirectPermit,
}

impl Long {
    pub(crate) fn new(device: u64, inode: u64) -> Self {
        let inode = (device, inode);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let inode = Arc::clone(open.entry(inode).or_insert_with(|| Arc::new(inode)));
        Self { state: Mutex::default(), inode: Some(inode) }
    }

    /// Notes a write, and returns true if so much has come in order before it that it may pass by
    /// the page cache: whole pages from whole pages.
    pub(crate) fn takes(&self, at: u64, from: &Buffers) -> bool {
        let len = from.len();
        // The kernel's pages may be longer than a device's.
        let page_len = page_size();
        let is_whole = at % page_len as u64 == 0 && len % page_len == 0;
        if len < PIECE_LEN_MIN || !is_whole || !is_aligned(from) {
            return false;
        }
        let mut state = self.lock();
        if state.next != at {
            state.len = 0;
        }
        let before = state.len;
        (state.next, state.len) = (at.saturating_add(len as u64), before + len as u64);
        before >= LONG && !state.has_left && self.is_only()
    }

    /// The second descriptor of the file that `fd` has open; `None` if there can be none.
    pub(crate) fn direct(&self, fd: &OwnedFd) -> Option<Arc<OwnedFd>> {
        let mut state = self.lock();
        if state.direct.is_none() && !state.has_left {
            let permit = DirectPermit::take()?;
            state.direct = reopened(fd).ok().map(|fd| Direct { fd: fd.into(), _permit: permit });
            state.has_left = state.direct.is_none();
        }
        let direct = state.direct.as_ref().filter(|_| !state.has_left);
        direct.map(|direct| Arc::clone(&direct.fd))
    }

    /// Leaves the file to the page cache from now on. The second descriptor stays until the file is
    /// closed: to close it would look to the kernel, and to who watches the file, as its end.
    pub(crate) fn leave(&self) {
        self.lock().has_left = true;
    }

    /// True if the file is open once.
    fn is_only(&self) -> bool {
        self.inode.as_ref().is_some_and(|inode| Arc::strong_count(inode) == 2)
    }

    /// No code that holds the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_only = self.is_only();
        // While nobody else can look.
        if let Some(inode) = self.inode.take().filter(|_| is_only) {
            open.remove(&*inode);
        }
    }
}

/// The right to have one more descriptor.
#[derive(Debug)]
struct DirectPermit;

impl DirectPermit {
    fn take() -> Option<Self> {
        let one_more = |count| (count < DIRECT_MAX).then_some(count + 1);
        DIRECT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for DirectPermit {
    fn drop(&mut self) {
        DIRECT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True if all bytes are whole pages in memory.
fn is_aligned(from: &Buffers) -> bool {
    from.as_slice().iter().all(|buffer| {
        let start = buffer.bytes().as_ptr().addr();
        start % PAGE_LEN == 0 && buffer.len() % PAGE_LEN == 0
    })
}

/// Opens the file to write past the page cache, if a write by `fd` would do nothing else.
fn reopened(fd: &OwnedFd) -> Result<OwnedFd> {
    let flags = fcntl_getfl(fd)?;
    let differs = OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT | OFlags::PATH;
    if flags.intersects(differs) || flags & OFlags::RWMODE == OFlags::RDONLY {
        return Err(rustix::io::Errno::INVAL);
    }
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(link, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::memory::{Buffer, Heap};

    const PIECE: u64 = PIECE_LEN_MIN as u64;

    fn piece() -> Buffers {
        Heap::buffer(PIECE_LEN_MIN).into()
    }

    /// A file of which `len` bytes have come in order from `at` on.
    fn written(at: u64, len: u64) -> Long {
        let long = Long::new(0, at);
        (0..len / PIECE).for_each(|index| assert!(!long.takes(at + index * PIECE, &piece())));
        long
    }

    #[test]
    fn only_pages_behind_a_long_stretch_in_order_pass_by_the_page_cache() {
        let long = written(PIECE, LONG);
        assert!(long.takes(PIECE + LONG, &piece()));
        assert!(!long.takes(LONG + 3 * PIECE, &piece()), "a piece was left out");
        let long = written(0, LONG);
        for (at, from) in [
            (LONG + 1, piece()),
            (LONG, Heap::buffer(PIECE_LEN_MIN + 1).into()),
            (LONG, Heap::buffer(PAGE_LEN).into()),
            (LONG, Heap::buffer(PIECE_LEN_MIN + PAGE_LEN).suffix(1).prefix(PIECE_LEN_MIN).into()),
            (LONG, Buffer::from(vec![0; 2 * PIECE_LEN_MIN + 1]).suffix(1).into()),
        ] {
            assert!(!long.takes(at, &from), "{at} {from:?}");
        }
        assert!(long.takes(LONG, &piece()), "those were not counted");
        let other = Long::new(0, 0);
        assert!(!long.takes(LONG + PIECE, &piece()), "it is open twice");
        drop(other);
        assert!(long.takes(LONG + 2 * PIECE, &piece()));
        long.leave();
        assert!(!long.takes(LONG + 3 * PIECE, &piece()));
    }

    #[test]
    fn files_whose_own_descriptor_writes_otherwise_have_no_second_one() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let direct = |file: std::io::Result<File>| {
            Long::new(1, 0).direct(&file.expect("opened").into()).is_some()
        };
        File::create(&path).expect("made");
        assert!(!direct(File::open(&path)), "it may not be written by this one");
        assert!(!direct(File::options().append(true).open(&path)));
    }
}
