//! Space of a stream in its physical file: found ahead, given back, and made zeros.

use std::io;

use rustix::{fs::FallocateFlags, io::Errno};
use storage::{Machine, Storage as _, names::FileCall};
use uring::Heap;

use super::{super::piece::Piece, Stream, write_all};

/// Zeros that are written at a time where no hole can be made.
const ZEROS_LEN: usize = 1 << 20;

/// Length of the pages in which space is given back, bytes.
const PAGE_LEN: u64 = 4096;

impl Stream {
    /// Gives back space that was reserved, as far as the stream does not reach it.
    pub(in super::super) async fn give_back(
        &self,
        machine: &Machine,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        self.clear(machine, from.max(self.len()), to).await
    }

    /// Cuts off all bytes of a stream that nobody has, where the file system takes their space
    /// back; else it is as it was.
    pub(in super::super) async fn discard(&self, machine: &Machine) -> io::Result<()> {
        let _held = self.alone().await;
        let _taken = self.turn.take().await;
        let (len, mut at) = (self.len(), 0);
        self.change_len(machine, len, 0).await?;
        // Its last page is nobody else's where a chunk has whole pages.
        let has_pages = self.ends.get().is_none() && self.place.get().chunk_len % PAGE_LEN == 0;
        let end = if has_pages { len.next_multiple_of(PAGE_LEN) } else { len };
        while at < end {
            let piece = self.piece(at, end - at)?;
            if let Err(why) = punch(machine, &self.member.data, piece).await {
                // What is left there would be seen if it got longer again.
                self.change_len(machine, 0, len).await?;
                return Err(why);
            }
            at += piece.len;
        }
        Ok(())
    }

    pub(super) async fn clear(&self, machine: &Machine, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let piece = self.piece(at, to - at)?;
            zero(machine, &self.member.data, piece).await?;
            at += piece.len;
        }
        Ok(())
    }

    /// Has the file system find space for bytes, so that writing them does not fail for want of it.
    pub(in super::super) async fn reserve(
        &self,
        machine: &Machine,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        let (mut at, end) = (from, to);
        self.lengthen(machine, end).await?;
        while at < end {
            let piece = self.piece(at, end - at)?;
            match allocate(machine, &self.member.data, FallocateFlags::KEEP_SIZE, piece).await {
                // It cannot be known here.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                    return Ok(());
                }
                done => done?,
            }
            at += piece.len;
        }
        Ok(())
    }
}

/// Makes bytes of a physical file zeros.
pub(in super::super) async fn zero(
    machine: &Machine,
    file: &uring::File,
    piece: Piece,
) -> io::Result<()> {
    match punch(machine, file, piece).await {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
            write_zeros(machine, file, piece).await
        }
        done => done,
    }
}

/// The same, by giving their space back.
pub(in super::super) async fn punch(
    machine: &Machine,
    file: &uring::File,
    piece: Piece,
) -> io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    allocate(machine, file, hole, piece).await
}

async fn allocate(
    machine: &Machine,
    file: &uring::File,
    mode: FallocateFlags,
    Piece { at, len }: Piece,
) -> io::Result<()> {
    let call = FileCall::Allocate { mode: mode.bits(), at, len };
    machine.on(file, call).await.map(drop)
}

async fn write_zeros(machine: &Machine, file: &uring::File, piece: Piece) -> io::Result<()> {
    let mut done = 0;
    while done < piece.len {
        let len = usize::try_from(piece.len - done).unwrap_or(ZEROS_LEN).min(ZEROS_LEN);
        write_all(machine, file, piece.at + done, &Heap::buffer(len)).await?;
        done += len as u64;
    }
    Ok(())
}
