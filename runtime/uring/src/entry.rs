//! Encoding of an operation for a ring.

use std::os::fd::AsRawFd as _;

use io_uring::{
    opcode, squeue,
    types::{Fd, FsyncFlags},
};

use crate::{memory::Buffer, operation::Operation, run::Run, vectors::Vectors};

/// Most bytes of one transfer, as in the kernel.
const LEN_MAX: usize = 0x7fff_f000;

/// The submission entry of what is to be executed of `run`. The addresses that it points to, if it
/// points to several, are put into `list`.
///
/// `None` when a ring does not execute it.
pub(crate) fn entry(
    run: &Run,
    sink: &Buffer,
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
    *list = match vectors {
        Vectors::Many(many) => many,
        Vectors::One([one]) => {
            let (bytes, len) = (one.iov_base.cast(), u32::try_from(one.iov_len).ok()?);
            return Some(match is_write {
                false => opcode::Read::new(fd, bytes, len).offset(at).build(),
                true => opcode::Write::new(fd, bytes, len).offset(at).build(),
            });
        }
    };
    let (start, count) = (list.as_ptr(), u32::try_from(list.len()).ok()?);
    Some(match is_write {
        false => opcode::Readv::new(fd, start, count).offset(at).build(),
        true => opcode::Writev::new(fd, start, count).offset(at).build(),
    })
}

/// An offset as a ring takes it: all ones would mean the file's own position. What is as far beyond
/// every file is refused.
fn offset(at: u64) -> u64 {
    at.min(u64::MAX - 1)
}
