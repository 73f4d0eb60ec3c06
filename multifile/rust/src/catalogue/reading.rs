//! Reading a stream of names to its end, and past damage in it (format rule 11.3).
//!
//! A writer that dies leaves its last record incomplete, which is no damage: it was never answered
//! for. A record that is not whole and has whole ones behind it was whole once.

use std::ops::Range;

use super::{
    Catalogue, END, FOLDER, HEAD_LEN_MAX, Node, ROOT, Unreadable, head,
    record::{HEAD_LEN, each_change, record},
};
use crate::codec::wide;

/// Bytes that are compared with checksums, at most, to find whole records behind damage.
const SEARCHED_MAX: usize = 1 << 30;

/// The names in a stream, and how far it counts.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The names; behind damage, what whole records say that makes sense without the others.
    pub catalogue: Catalogue,
    /// Where the records begin in the stream.
    pub begin: u64,
    /// Bytes of the stream up to the first record that is not whole.
    pub len: u64,
    /// How it ends there.
    pub end: End,
}

/// How the records of a stream end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last one is whole, and nothing or zeros are behind it.
    Whole,
    /// The last one is not whole.
    Torn,
    /// One is not whole, and whole ones are behind it.
    Damaged,
}

impl Reading {
    /// True if names are lost that were there. In a multifile that was closed every record was
    /// whole; in one that was not, the last one may never have been.
    #[must_use]
    pub fn is_damaged(&self, was_closed: bool) -> bool {
        match self.end {
            End::Whole => false,
            End::Torn => was_closed,
            End::Damaged => true,
        }
    }
}

impl Catalogue {
    /// Reads the names in a stream.
    ///
    /// # Errors
    ///
    /// Why these are no names.
    pub fn read(stream: &[u8]) -> Result<Reading, Unreadable> {
        let part = |part: Range<u64>| {
            let (from, to) = (usize::try_from(part.start), usize::try_from(part.end));
            let part = from.ok().zip(to.ok()).and_then(|(from, to)| stream.get(from..to));
            part.map(<[u8]>::to_vec).ok_or(())
        };
        Self::read_parts(wide(stream.len()), part).unwrap_or(Err(Unreadable::Damaged))
    }

    /// Reads the names in a stream of `len` bytes, of which `part` returns a part: the head, and
    /// the records. What is between, where names were before they were written anew, may be a long
    /// hole.
    ///
    /// # Errors
    ///
    /// Those of `part`; within, why these are no names.
    pub fn read_parts<E>(
        len: u64,
        mut part: impl FnMut(Range<u64>) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Reading, Unreadable>, E> {
        let (number, begin) = match head(&part(0..len.min(wide(HEAD_LEN_MAX)))?) {
            Ok((_, begin)) if begin > len => return Ok(Err(Unreadable::Damaged)),
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Self::new(number, Node::default()).read_records(begin, &part(begin..len)?))
    }

    fn read_records(mut self, begin: u64, records: &[u8]) -> Result<Reading, Unreadable> {
        let mut at = 0;
        while let Some(body) = records.get(at..).and_then(record) {
            each_change(body, |change| self.apply(change)).ok_or(Unreadable::Damaged)?;
            at += HEAD_LEN + body.len();
        }
        let end = if is_end(records, at) {
            End::Whole
        } else if self.read_behind(records, at) {
            End::Damaged
        } else {
            End::Torn
        };
        Ok(Reading { catalogue: self, begin, len: begin + wide(at), end })
    }

    /// Makes the changes of whole records behind one at `at` that is not, as far as they make
    /// sense; false if there are none.
    fn read_behind(&mut self, stream: &[u8], mut at: usize) -> bool {
        let (mut is_found, mut left) = (false, SEARCHED_MAX);
        while !is_end(stream, at) {
            let Some(next) = (at..stream.len()).find(|at| is_record(stream, *at, &mut left)) else {
                break;
            };
            let body = stream.get(next..).and_then(record).unwrap_or_default();
            each_change(body, |change| {
                self.apply(change);
                Some(())
            });
            is_found = true;
            at = next + HEAD_LEN + body.len();
        }
        if let Some(root) = self.nodes.get_mut(ROOT).filter(|root| root.node.mode == 0) {
            root.node.mode = FOLDER | 0o755;
        }
        is_found
    }
}

/// True if no record is to be at `at`: the stream ends there, or zeros say so.
fn is_end(stream: &[u8], at: usize) -> bool {
    let rest = stream.get(at..).unwrap_or_default();
    rest.iter().take(END.len()).all(|byte| *byte == 0)
}

/// True if a whole record is at `at`, which may be any byte; takes what it reads from `left`.
fn is_record(stream: &[u8], at: usize, left: &mut usize) -> bool {
    let rest = stream.get(at..).unwrap_or_default();
    let Some((len, [_, _, _, _, 1..=4, ..])) = rest.split_first_chunk() else { return false };
    let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
    if len > rest.len() || len > *left {
        return false;
    }
    *left -= len;
    record(rest).is_some_and(|body| each_change(body, |_| Some(())).is_some())
}
