//! What a ring is told of an operation.

use std::{os::fd::AsRawFd as _, sync::atomic::AtomicU8};

use io_uring::{
    opcode, squeue,
    types::{Fd, FsyncFlags},
};

use crate::{
    memory::{Buffer, Memory},
    operation::{Operation, Vectors},
    run::Run,
};

/// Most bytes of one transfer, as in the kernel.
const LEN_MAX: usize = 0x7fff_f000;

/// The submission entry of what is to be executed of `run`, with the addresses that it points to.
///
/// `None` when a ring does not execute it.
pub(crate) fn entry(
    run: &Run,
    sink: &Buffer,
    registered: Option<&dyn Memory>,
) -> Option<(squeue::Entry, Box<[libc::iovec]>)> {
    let operation = run.operations().next()?;
    let vectors = match operation {
        Operation::Read { .. } | Operation::Write { .. } => {
            let transfers = run.operations().filter_map(Operation::transfer);
            Vectors::collect(transfers.flat_map(|(.., buffers)| buffers.as_slice()), LEN_MAX)
        }
        Operation::Fetch { len, .. } => Vectors::repeated(sink, *len),
        Operation::Sync { file, data_only } => {
            let flags = if *data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(flags).build();
            return Some((entry, Box::default()));
        }
        Operation::Call(_) => return None,
    };
    let list: Box<[_]> = match vectors.as_slice() {
        [_one] => Box::default(),
        several => several.into(),
    };
    let count = u32::try_from(list.len()).ok()?;
    let entry = match (operation, vectors.as_slice()) {
        (Operation::Write { file, at, .. }, &[one]) => {
            let (fd, len) = (Fd(file.as_raw_fd()), u32::try_from(one.iov_len).ok()?);
            match registered {
                Some(memory) if is_within(one, memory) => {
                    opcode::WriteFixed::new(fd, one.iov_base.cast(), len, 0).offset(*at).build()
                }
                _ => opcode::Write::new(fd, one.iov_base.cast(), len).offset(*at).build(),
            }
        }
        (Operation::Write { file, at, .. }, _) => {
            opcode::Writev::new(Fd(file.as_raw_fd()), list.as_ptr(), count).offset(*at).build()
        }
        (Operation::Read { file, at, .. } | Operation::Fetch { file, at, .. }, &[one]) => {
            let (fd, len) = (Fd(file.as_raw_fd()), u32::try_from(one.iov_len).ok()?);
            match registered {
                Some(memory) if is_within(one, memory) => {
                    opcode::ReadFixed::new(fd, one.iov_base.cast(), len, 0).offset(*at).build()
                }
                _ => opcode::Read::new(fd, one.iov_base.cast(), len).offset(*at).build(),
            }
        }
        (Operation::Read { file, at, .. } | Operation::Fetch { file, at, .. }, _) => {
            opcode::Readv::new(Fd(file.as_raw_fd()), list.as_ptr(), count).offset(*at).build()
        }
        (Operation::Sync { .. } | Operation::Call(_), _) => return None,
    };
    Some((entry, list))
}

/// Whether all bytes of `vector` are in `memory`.
fn is_within(vector: libc::iovec, memory: &dyn Memory) -> bool {
    let all = memory.bytes().as_ptr_range();
    let start = vector.iov_base.cast_const().cast::<AtomicU8>();
    let end = start.wrapping_add(vector.iov_len);
    all.start <= start && start <= end && end <= all.end
}
