//! Growth of a file, for processes that examine how much of an append is there.

use std::ops::Range;

use rustix::io as rustix_io;
use shm::copy::copy_out;
use uring::Heap;

use crate::Storage;

/// Reads all of `range`; `None` if that cannot be, as where the file may not be read.
pub async fn read<S: Storage>(storage: &S, file: &S::File, range: Range<u64>) -> Option<Vec<u8>> {
    let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    let buffer = Heap::buffer(len);
    let read = storage.read_full(file, range.start, &buffer.clone().into()).await.ok()?;
    if read < len {
        return None;
    }
    let mut bytes = vec![0; len];
    copy_out(&mut bytes, buffer.bytes());
    Some(bytes)
}

/// Reads of `bytes`, which stand at `start`, as [`shm::staging::doubt`] makes them.
pub fn source(
    bytes: &[u8],
    start: u64,
) -> impl FnMut(u64, &mut [u8]) -> rustix_io::Result<usize> + '_ {
    move |at, into| {
        let skip = at.checked_sub(start).and_then(|skip| usize::try_from(skip).ok());
        let from = skip.and_then(|skip| bytes.get(skip..)).unwrap_or_default();
        let len = from.len().min(into.len());
        into.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(len)
    }
}
