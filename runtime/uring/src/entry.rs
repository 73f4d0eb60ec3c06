//! Encoding of an operation for a ring.

use std::{os::fd::AsRawFd as _, sync::atomic::AtomicU8};

use io_uring::{
    opcode, squeue,
    types::{Fd, FsyncFlags},
};

use crate::{
    memory::{Buffer, Memory},
    operation::Operation,
    run::Run,
    vectors::Vectors,
};

/// Most bytes of one transfer, as in the kernel.
const LEN_MAX: usize = 0x7fff_f000;

/// Memory pinned by the kernel.
pub(crate) struct Registered<'a> {
    pub(crate) memory: Option<&'a dyn Memory>,
    /// True if an entry may name several places in it.
    pub(crate) lists: bool,
}

/// The submission entry of what is to be executed of `run`. The addresses that it points to, if it
/// points to several, are put into `list`.
///
/// `None` when a ring does not execute it.
pub(crate) fn entry(
    run: &Run,
    sink: &Buffer,
    registered: &Registered<'_>,
    list: &mut Vec<libc::iovec>,
) -> Option<squeue::Entry> {
    let operation = run.first();
    let vectors = match operation {
        Operation::Read { .. } | Operation::Write { .. } => run.vectors(LEN_MAX),
        Operation::Fetch { len, .. } => Vectors::repeated(sink, *len),
        Operation::Sync { file, data_only } => {
            let flags = if *data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            return Some(opcode::Fsync::new(Fd(file.as_raw_fd())).flags(flags).build());
        }
        Operation::Call(_) => return None,
    };
    let (file, at, is_write) = match operation {
        Operation::Read { file, at, .. } | Operation::Fetch { file, at, .. } => (file, *at, false),
        Operation::Write { file, at, .. } => (file, *at, true),
        Operation::Sync { .. } | Operation::Call(_) => return None, // Above.
    };
    let (fd, at) = (Fd(file.as_raw_fd()), offset(at));
    let is_fixed = registered.holds(vectors.as_slice());
    *list = match vectors {
        Vectors::Many(many) => many,
        Vectors::One([one]) => {
            let (bytes, len) = (one.iov_base.cast(), u32::try_from(one.iov_len).ok()?);
            return Some(match (is_write, is_fixed) {
                (false, false) => opcode::Read::new(fd, bytes, len).offset(at).build(),
                (false, true) => opcode::ReadFixed::new(fd, bytes, len, 0).offset(at).build(),
                (true, false) => opcode::Write::new(fd, bytes, len).offset(at).build(),
                (true, true) => opcode::WriteFixed::new(fd, bytes, len, 0).offset(at).build(),
            });
        }
    };
    let (start, count) = (list.as_ptr(), u32::try_from(list.len()).ok()?);
    Some(match (is_write, is_fixed) {
        (false, false) => opcode::Readv::new(fd, start, count).offset(at).build(),
        (false, true) => opcode::ReadvFixed::new(fd, start, count, 0).offset(at).build(),
        (true, false) => opcode::Writev::new(fd, start, count).offset(at).build(),
        (true, true) => opcode::WritevFixed::new(fd, start, count, 0).offset(at).build(),
    })
}

/// An offset as a ring takes it: all ones would mean the file's own position. What is as far beyond
/// every file is refused.
fn offset(at: u64) -> u64 {
    at.min(u64::MAX - 1)
}

impl Registered<'_> {
    /// True if an entry may name these places as places in it.
    fn holds(&self, vectors: &[libc::iovec]) -> bool {
        let Some(memory) = self.memory else { return false };
        let all = memory.bytes().as_ptr_range();
        let is_within = |vector: &libc::iovec| {
            let start = vector.iov_base.cast_const().cast::<AtomicU8>();
            let end = start.wrapping_add(vector.iov_len);
            all.start <= start && start <= end && end <= all.end
        };
        (self.lists || vectors.len() == 1) && vectors.iter().all(is_within)
    }
}
