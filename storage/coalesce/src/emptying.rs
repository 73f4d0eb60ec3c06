//! Chunks of small files that are gone, made zeros: those next to each other by one call.
//!
//! Most are shorter than a page, so only neighbours together have space that can be given back, and
//! to empty each by calls of its own would take longer than to write it.

use std::{io, rc::Rc};

use executor::yield_now;
use multifile::journal::Slot;
use rustix::io::Errno;

use super::{
    member::Member,
    piece::Piece,
    stream::{punch, write_all, zero},
    volume::Volume,
};

/// Bytes of chunks in which there is a whole page, wherever they begin.
const DISCARDED_MIN: u64 = if cfg!(test) { 1 } else { 8 << 10 };

/// Tasks of a dense file whose chunks follow each other.
struct Neighbours {
    member: Rc<Member>,
    first: u64,
    count: u64,
    /// All their chunks.
    piece: Piece,
}

impl Neighbours {
    fn end(&self) -> u64 {
        self.first + self.count
    }
}

impl Volume {
    /// Gives the space of chunks back that nobody has, where there are whole pages. The tasks come
    /// in ascending order; their slots in the journal keep their lengths.
    pub(super) async fn discard_chunks(&self, tasks: impl Iterator<Item = u64>) -> io::Result<()> {
        for Neighbours { member, piece, .. } in self.neighbours(tasks) {
            if piece.len >= DISCARDED_MIN {
                punch(self.machine(), &member.data, piece).await?;
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Makes tasks empty that nobody has, in ascending order, and their chunks zeros.
    pub(super) async fn empty_chunks(&self, tasks: impl Iterator<Item = u64>) -> io::Result<()> {
        for neighbours in self.neighbours(tasks) {
            let Neighbours { member, first, piece, .. } = &neighbours;
            zero(self.machine(), &member.data, *piece).await?;
            let slots = (*first..neighbours.end()).map(|task| {
                let key = member.key(task);
                Slot::of(0, None).encode(&key)
            });
            let (slots, at) = (slots.collect::<Vec<_>>().concat(), member.key(*first).at());
            let at = at.ok_or(Errno::FBIG)?;
            write_all(self.machine(), &member.journal()?, at, &slots.into()).await?;
            for task in *first..neighbours.end() {
                self.streams.borrow_mut().empty(task).ok_or(Errno::IO)?;
            }
            yield_now().await;
        }
        Ok(())
    }

    fn neighbours(&self, tasks: impl Iterator<Item = u64>) -> Vec<Neighbours> {
        let (streams, mut all) = (self.streams.borrow(), Vec::<Neighbours>::new());
        for task in tasks {
            let (Some(member), Some((at, len, _))) = (streams.member_of(task), streams.reach(task))
            else {
                continue;
            };
            debug_assert!(member.is_packed, "others have several blocks");
            let is_next = |last: &&mut Neighbours| {
                let follows = last.end() == task && last.piece.at + last.piece.len == at;
                follows && Rc::ptr_eq(&last.member, member)
            };
            if let Some(last) = all.last_mut().filter(is_next) {
                last.count += 1;
                last.piece.len += len;
            } else if len > 0 {
                let (member, piece) = (Rc::clone(member), Piece { at, len });
                all.push(Neighbours { member, first: task, count: 1, piece });
            }
        }
        all
    }
}
