//! Files opened with `O_DIRECT`: the daemon writes what is staged of them by its ring, past the
//! page cache, in longer writes than the program's.
//!
//! The kernel wants memory, length, and place aligned. A log begins at a page, so everything in it
//! is aligned if all that is staged is; a write that is not goes to the kernel, behind what is
//! staged, which says what is wrong with it.

use core::mem;

use rustix::{
    fd::BorrowedFd,
    fs::{self, AtFlags, Mode, OFlags, SeekFrom, StatxFlags},
    io,
};

use wire::Reason;

use crate::{buffers::total, cursor::Keeper, locked_file::Locked};

/// Staged bytes begin and end at multiples of this in the file, in the program's memory, and in
/// the log, bytes.
const ALIGNED: u64 = 4096;
/// Nothing is gained where the page cache is all there is. By name: it tells no alignment, nor does
/// btrfs, nor any file system before Linux 6.1.
const TMPFS: i64 = 0x0102_1994;
/// How a process's maps name its io_urings, of whose writes nobody is told.
const RING: &[u8] = b"anon_inode:[io_uring]";
/// Bytes of the maps that are looked at together.
const PART_LEN: usize = 2048;

impl Locked {
    /// Why a write past the page cache is not staged: its place, length, or memory is not aligned,
    /// or it does not follow the last one. Only what becomes one longer write gains by that.
    pub(crate) fn unfit_direct(&mut self, data: &[&[u8]], at: Option<u64>) -> Option<Reason> {
        let is_aligned = |value: u64| value % ALIGNED == 0;
        let is_fit_buffer = |buffer: &&[u8]| {
            is_aligned(buffer.as_ptr().addr() as u64) && is_aligned(buffer.len() as u64)
        };
        let position = || match self.entry.cursor.keeper() {
            Keeper::Kernel => fs::seek(self.borrow(), SeekFrom::Current(0)).ok(),
            Keeper::Client(position) => Some(position),
            Keeper::End => None,
        };
        let start = at.or_else(position).filter(|start| is_aligned(*start));
        let Some(start) = start.filter(|_| data.iter().all(is_fit_buffer)) else {
            return Some(Reason::Unsupported);
        };
        let end = start.saturating_add(total(data) as u64);
        let follows = mem::replace(&mut self.direct_end, end) == start;
        (!follows).then_some(Reason::Large)
    }
}

/// True if a file on a file system of `kind` can be staged to: its alignment is no larger than
/// ours, and no io_uring of the process writes to it beside.
pub(crate) fn is_fit(file: BorrowedFd<'_>, kind: i64) -> bool {
    let is_small = |align: u32| u64::from(align) <= ALIGNED;
    // Kernels before 6.1 do not tell; their devices had blocks of 4 KiB at most.
    let alignment = fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let is_small = alignment
        .is_ok_and(|stat| is_small(stat.stx_dio_mem_align) && is_small(stat.stx_dio_offset_align));
    kind != TMPFS && is_small && has_ring() == Some(false)
}

/// True if the process has an io_uring; `None` where that cannot be known.
fn has_ring() -> Option<bool> {
    let maps = fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let (maps, mut part, mut kept) = (maps.ok()?, [0; PART_LEN], 0);
    loop {
        let room = part.get_mut(kept..)?;
        let len = io::retry_on_intr(|| io::read(&maps, &mut *room)).ok()?;
        if len == 0 {
            return Some(false);
        }
        let read = part.get(..kept + len)?;
        if read.windows(RING.len()).any(|window| window == RING) {
            return Some(true);
        }
        // The name may lie across the end of the part.
        let end = read.len();
        kept = end.min(RING.len() - 1);
        part.copy_within(end - kept..end, 0);
    }
}
