//! The records that one client has published, copied out once, and the files they make.
//!
//! A record that makes no sense breaks the source: nothing more is taken from it, and its client is
//! owed an error. Files of others are out of its reach: a file is called by a number that was
//! granted to this client.
//!
//! A file that a client makes comes to the multifile by these states:
//!
//! | state | meaning |
//! |---|---|
//! | claimed | all that is known of it is here, and nobody else can have claimed its name |
//! | doubtful | the same, but somebody else may have |
//! | batched | it was closed, and is made with others: its bytes may be in the multifile |
//! | open | it is open as any file |
//! | failed | it could not be made, and its client is owed that when it closes it |
//! | lost | bytes of it could not be written, and its client was told |
//!
//! The transitions, as a test walks them. Every other pair changes nothing.
//!
//! | event | transitions |
//! |---|---|
//! | batch | claimed -> batched |
//! | give back | batched -> claimed |
//! | open | claimed -> open, doubtful -> open, batched -> open |
//! | fail | claimed -> failed, doubtful -> failed, batched -> failed |
//! | lose | open -> lost |

use std::{collections::BTreeMap, mem, ops::Range, rc::Rc, sync::Arc, time::Duration};

use executor::Instant;
use multifile::catalogue::Time;
use rustix::io::Errno;
use shm::{bundle::ALIGNMENT, copy::copy_out};
use uring::Buffer;
use wire::{CreateFlags, Record};

use super::super::{file::Packed, volume::Volume};
use crate::bundles::Entry;

/// An open file is made if so much of the data log is kept for such: one of so many parts.
const FULL: u64 = 2;
/// Pieces of a file, whose memory is bounded so. What a client can publish between two looks at a
/// file is less: eight whole index logs.
const PIECES_MAX: usize = 1 << 17;
/// Longest that a file without bytes counts as one whose first bytes wait for room.
const EMPTY_TIME_MAX: Duration = Duration::from_millis(100);

/// A file that a client makes, as far as its records tell.
pub(super) struct Making {
    pub(super) volume: Rc<Volume>,
    pub(super) folder: u64,
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) how: CreateFlags,
    pub(super) time: Time,
    /// When it was first seen.
    pub(super) seen: Instant,
    /// From when on its first bytes are waited for.
    pub(super) since: Instant,
    /// Positions and lengths in the data log of what is not in the file yet.
    pub(super) pieces: Vec<(u64, u64)>,
    /// The task with all its bytes, once it is closed and its bytes have left the log.
    pub(super) kept: Option<u64>,
    /// Bytes in the file, and those of the pieces.
    pub(super) written: u64,
    pub(super) len: u64,
    pub(super) is_closed: bool,
    /// A full disk has refused some of it, and until then only who asks has it tried again.
    pub(super) waits_until: Option<Instant>,
    pub(super) state: State<Rc<Packed>>,
}

impl Making {
    /// True if it is open, and not made yet.
    pub(super) const fn is_begun(&self) -> bool {
        self.state.is_new() && !self.is_closed
    }
}

/// How far a file has come, which is an `F` once it is open.
#[derive(Clone, PartialEq)]
pub(super) enum State<F> {
    Claimed,
    Doubtful,
    Batched,
    Open(F),
    Failed(Errno),
    Lost(Errno),
}

impl<F> State<F> {
    /// True if the file is not made yet.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self, Self::Claimed | Self::Doubtful | Self::Batched)
    }

    /// Takes the file into a batch.
    pub(super) fn batch(&mut self) {
        if let Self::Claimed = self {
            *self = Self::Batched;
        }
    }

    /// The batch was not made.
    pub(super) fn give_back(&mut self) {
        if let Self::Batched = self {
            *self = Self::Claimed;
        }
    }

    /// The file was made, or could not be.
    pub(super) fn made(&mut self, made: Result<F, Errno>) {
        if self.is_new() {
            *self = made.map_or_else(Self::Failed, Self::Open);
        }
    }

    /// Bytes could not be written, of which its client is told.
    pub(super) fn lose(&mut self, why: Errno) {
        if let Self::Open(_) = self {
            *self = Self::Lost(why);
        }
    }
}

/// Numbers that a client may give in a folder of a multifile.
struct Granted {
    volume: Rc<Volume>,
    folder: u64,
    numbers: Range<u64>,
    /// The set of names was begun anew since.
    is_old: bool,
}

/// One client's bundle.
pub(super) struct Source {
    pub(super) entry: Arc<Entry>,
    /// Numbers that its client may give in a folder of a multifile.
    granted: Vec<Granted>,
    index_read: u64,
    data_read: u64,
    data_tail: u64,
    pub(super) files: BTreeMap<u64, Making>,
    pub(super) stand: Stand,
}

/// Prospects of a source: whether more may come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// More.
    Live,
    /// Nothing: its client is gone, and all that this had published was read.
    Over,
    /// Nothing that is taken: it has published what makes no sense.
    Broken,
}

/// The client has published what no honest one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) &'static str);

impl Source {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        let (granted, files) = (Vec::new(), BTreeMap::new());
        let (index_read, data_read, data_tail) = (0, 0, 0);
        let stand = Stand::Live;
        Self { entry, granted, index_read, data_read, data_tail, files, stand }
    }

    /// From now on its client may give these numbers.
    pub(super) fn grant(&mut self, volume: &Rc<Volume>, folder: u64, numbers: Range<u64>) {
        let is_other =
            |known: &Granted| known.folder != folder || !Rc::ptr_eq(&known.volume, volume);
        self.granted.retain(is_other);
        let volume = Rc::clone(volume);
        self.granted.push(Granted { volume, folder, numbers, is_old: false });
    }

    /// Files that its client has not published yet it may have claimed in vain.
    pub(super) fn outdate(&mut self) {
        self.granted.iter_mut().for_each(|granted| granted.is_old = true);
    }

    /// A file that is to be made, and whose client is sure of this name.
    pub(super) fn sure_of(&self, volume: &Rc<Volume>, folder: u64, name: &[u8]) -> Option<u64> {
        let is_it = |file: &Making| {
            matches!(file.state, State::Claimed | State::Batched)
                && (file.folder, &file.name[..]) == (folder, name)
                && Rc::ptr_eq(&file.volume, volume)
        };
        self.files.iter().find(|(_, file)| is_it(file)).map(|(inode, _)| *inode)
    }

    /// True if its client has an open file of the same inode as this one.
    pub(super) fn has_open(&self, other: &Packed) -> bool {
        let is_same = |file: &Making| match &file.state {
            State::Open(open) => open.is_same(other),
            _ => false,
        };
        self.files.values().any(is_same)
    }

    /// True if a file is not made yet.
    pub(super) fn is_new(&self, inode: u64) -> bool {
        self.files.get(&inode).is_some_and(|file| file.state.is_new())
    }

    /// True if something is published that was not read.
    pub(super) fn has_news(&self) -> bool {
        self.entry.shared().head() != self.index_read
    }

    /// True if the multifile has all that is published.
    pub(super) fn is_idle(&self) -> bool {
        let is_pressed = self.is_pressed();
        let is_meant = |file: &Making| {
            let is_behind = !file.pieces.is_empty() || file.state.is_new();
            file.is_closed || is_behind && (file.waits_until.is_none() || is_pressed)
        };
        !self.has_news() && !self.files.values().any(is_meant)
    }

    /// A file waits for room.
    pub(super) fn wait(&mut self, inode: u64, until: Instant) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.waits_until = Some(until);
        }
    }

    /// The first position of the data log that is still needed.
    fn tail(&self) -> u64 {
        let waiting = self.files.values().filter_map(|file| file.pieces.first());
        waiting.map(|(at, _)| *at).min().unwrap_or(self.data_read)
    }

    /// True if bytes of the file could not be written.
    pub(super) fn has_lost(&self, inode: u64) -> bool {
        self.files.get(&inode).is_some_and(|file| matches!(file.state, State::Lost(_)))
    }

    /// True if files that are open have to be made: a client that waits for room would wait for
    /// ever, or none is there any more.
    pub(super) fn is_pressed(&self) -> bool {
        self.kept() + ALIGNMENT > self.entry.logs.data_len / FULL || self.stand == Stand::Over
    }

    /// Bytes of the data log that stay for files that are open, once all others are taken in.
    pub(super) fn kept(&self) -> u64 {
        let open = self.files.values().filter(|file| !file.is_closed);
        let first = open.filter_map(|file| file.pieces.first()).map(|(at, _)| *at).min();
        first.map_or(0, |first| self.data_read - first)
    }

    /// Reads published records: all of them, or of a live client at most those of `most` bytes of
    /// the data log. Returns true if records are left.
    pub(super) fn read(&mut self, now: Instant, most: Option<u64>) -> Result<bool, Nonsense> {
        // First: what is published until then is read now.
        if self.stand == Stand::Live && self.entry.is_over() {
            self.stand = Stand::Over;
        }
        let (head, logs) = (self.entry.shared().head(), self.entry.logs);
        let len = head.wrapping_sub(self.index_read);
        if len == 0 {
            return Ok(false);
        }
        if self.stand == Stand::Broken {
            self.index_read = head;
            self.refuse();
            return Ok(false);
        }
        if len > logs.index_len {
            return Err(Nonsense("more records than its index log has room for"));
        }
        let mut copy = vec![0; usize::try_from(len).unwrap_or(0)];
        let (mut rest, arena) = (&mut copy[..], self.entry.segment.arena());
        for (at, len) in logs.index().stretches(self.index_read, len) {
            let (at, len) = (usize::try_from(at).unwrap_or(0), usize::try_from(len).unwrap_or(0));
            let from = arena.get(at..at + len).unwrap_or_default();
            let copied = copy_out(rest, from);
            rest = rest.get_mut(copied..).unwrap_or_default();
        }
        let most = most.filter(|_| self.stand == Stand::Live);
        let end = most.map_or(u64::MAX, |most| self.data_read.saturating_add(most));
        let mut rest = &copy[..];
        while !rest.is_empty() && self.data_read < end {
            let (record, len) = Record::decode(rest).map_err(|_| Nonsense("no record"))?;
            self.take(record, now)?;
            rest = rest.get(len..).unwrap_or_default();
        }
        self.index_read = head.wrapping_sub(rest.len() as u64);
        Ok(!rest.is_empty())
    }

    fn take(&mut self, record: Record<'_>, now: Instant) -> Result<(), Nonsense> {
        match record {
            Record::Create { inode, folder, mode, how, time, name } => {
                let is_granted =
                    |its: &&mut Granted| its.folder == folder && its.numbers.contains(&inode);
                let granted = self.granted.iter_mut().find(is_granted);
                let granted = granted.ok_or(Nonsense("a number that it was not granted"))?;
                // In order, so none is given twice.
                granted.numbers.start = inode + 1;
                let Granted { ref volume, is_old, .. } = *granted;
                debug_assert!(volume.tree.borrow().node(inode).is_none(), "{inode} is granted");
                let (volume, name) = (Rc::clone(volume), name.to_vec());
                let (time, pieces) = ((time.0, time.1.min(999_999_999)), Vec::new());
                let state = if is_old { State::Doubtful } else { State::Claimed };
                let file = Making {
                    volume,
                    folder,
                    name,
                    mode,
                    how,
                    time,
                    seen: now,
                    since: now,
                    pieces,
                    kept: None,
                    written: 0,
                    len: 0,
                    is_closed: false,
                    waits_until: None,
                    state,
                };
                self.files.insert(inode, file);
            }
            Record::Data { inode, len } => {
                let len = u64::from(len);
                let file = self.files.get_mut(&inode).filter(|file| !file.is_closed);
                let file = file.ok_or(Nonsense("bytes of no file"))?;
                if file.len == 0 {
                    let aligned = self.data_read.checked_next_multiple_of(ALIGNMENT);
                    self.data_read = aligned.ok_or(Nonsense("too many bytes"))?;
                }
                let at = self.data_read;
                self.data_read = at.checked_add(len).ok_or(Nonsense("too many bytes"))?;
                if self.data_read - self.data_tail > self.entry.logs.data_len {
                    return Err(Nonsense("more bytes than its data log has room for"));
                }
                file.len += len;
                let count = file.pieces.len();
                match file.pieces.last_mut() {
                    Some((last_at, last_len)) if *last_at + *last_len == at => *last_len += len,
                    _ if count >= PIECES_MAX => {
                        return Err(Nonsense("too many pieces of a file"));
                    }
                    _ => file.pieces.push((at, len)),
                }
            }
            Record::Close { inode } => {
                let file = self.files.get_mut(&inode).filter(|file| !file.is_closed);
                file.ok_or(Nonsense("the end of no file"))?.is_closed = true;
            }
        }
        Ok(())
    }

    /// Stretches of the data log as buffers.
    pub(super) fn buffers(&self, pieces: &[(u64, u64)]) -> Option<Vec<Buffer>> {
        let mut buffers = Vec::new();
        add_buffers(&self.entry, pieces, &mut buffers).map(|()| buffers)
    }

    /// Notes that a task has all bytes of a closed file, and frees them in the log.
    pub(super) fn set_kept(&mut self, inode: u64, task: Option<u64>) {
        if let Some(file) = self.files.get_mut(&inode) {
            debug_assert!(file.is_closed, "nothing more comes");
            (file.pieces, file.kept) = (Vec::new(), task);
        }
    }

    /// Forgets files that batches have, which are made.
    pub(super) fn forget_batched(&mut self) {
        let is_batched = |file: &Making| matches!(file.state, State::Batched);
        if self.files.values().any(is_batched) {
            let all = mem::take(&mut self.files).into_iter();
            self.files = all.filter(|(_, file)| !is_batched(file)).collect();
        }
    }

    /// Gives the client back what is not needed any more. One that had filled its log has waited
    /// for this with the first bytes of a file, which is no older than that.
    pub(super) fn release(&mut self, now: Instant) {
        let was_full = self.data_read - self.data_tail > self.entry.logs.data_len / 2;
        self.data_tail = self.data_tail.max(self.tail());
        let is_empty = |file: &&mut Making| {
            let is_recent = now.saturating_since(file.seen) < EMPTY_TIME_MAX;
            file.len == 0 && !file.is_closed && is_recent
        };
        self.files.values_mut().filter(|file| was_full && is_empty(file)).for_each(|file| {
            file.since = now;
        });
        if self.stand != Stand::Broken {
            self.entry.shared().release(self.index_read, self.data_tail);
        }
    }

    /// Nothing more is taken from it.
    pub(super) fn break_off(&mut self) {
        self.stand = Stand::Broken;
        self.files.clear();
        self.refuse();
    }

    /// Has its client told of all that it has published since. It waits for no room in its logs:
    /// whatever of them it has filled is free.
    fn refuse(&self) {
        self.entry.shared().release(self.index_read, u64::MAX);
        self.entry.shared().owe(Errno::IO.raw_os_error().unsigned_abs());
    }
}

/// Adds stretches of a client's data log to others.
pub(super) fn add_buffers(
    entry: &Entry,
    pieces: &[(u64, u64)],
    buffers: &mut Vec<Buffer>,
) -> Option<()> {
    let ring = entry.logs.data();
    let stretches = pieces.iter().flat_map(|(at, len)| ring.stretches(*at, *len));
    for (at, len) in stretches.filter(|(_, len)| *len > 0) {
        buffers.push(entry.segment.buffer(at, len)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_event_leads_where_the_table_says() {
        let why = Errno::NOSPC;
        let states = [
            ("claimed", State::Claimed),
            ("doubtful", State::Doubtful),
            ("batched", State::Batched),
            ("open", State::Open(())),
            ("failed", State::Failed(why)),
            ("lost", State::Lost(why)),
        ];
        invariant::edges::walk(
            include_str!("source.rs"),
            &states,
            &[
                ("batch", State::batch),
                ("give back", State::give_back),
                ("open", |state| state.made(Ok(()))),
                ("fail", |state| state.made(Err(Errno::NOSPC))),
                ("lose", |state| state.lose(Errno::NOSPC)),
            ],
        );
    }
}
