//! Records of changes as bytes: what format rules 11.2 to 11.4 say.

use super::{Change, FILE, FOLDER, LINK, NAME_LEN_MAX, Node, TEXT_LEN_MAX, TYPE};
use crate::codec::{Fields, narrow, put_u32, put_u64, signed, unsigned, wide};

/// Stands for no task.
const NO_TASK: u64 = u64::MAX;
/// Length and checksum in front of a record.
pub(super) const HEAD_LEN: usize = 8;
/// Bytes that most changes take.
const CHANGE_LEN: usize = 80;

/// One record of changes that happen together.
#[must_use]
pub fn encode(changes: &[Change]) -> Vec<u8> {
    let mut record = Encoder::with_room(changes.len() * CHANGE_LEN);
    for change in changes {
        match change {
            Change::Node(inode, node) => record.node(*inode, node),
            Change::Name(folder, name, inode) => record.name(*folder, name, *inode),
            Change::NoName(folder, name) => {
                record.0.push(3);
                put_u64(&mut record.0, *folder);
                put_text(&mut record.0, name);
            }
            Change::Gone(inode) => {
                record.0.push(4);
                put_u64(&mut record.0, *inode);
            }
        }
    }
    record.finish()
}

/// Bytes of a record of one node, and of one name, but for their text.
pub(super) const NODE_LEN: usize = HEAD_LEN + 69;
pub(super) const NAME_LEN: usize = HEAD_LEN + 21;

/// A record that is being made, of changes that happen together.
#[derive(Debug)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// An empty record, which is to get about so many bytes.
    #[must_use]
    pub fn with_room(len: usize) -> Self {
        // Length and checksum come last.
        let mut body = Vec::with_capacity(HEAD_LEN + len);
        body.resize(HEAD_LEN, 0);
        Self(body)
    }

    /// Adds [`Change::Node`].
    pub fn node(&mut self, inode: u64, node: &Node) {
        let body = &mut self.0;
        body.push(1);
        put_u64(body, inode);
        for word in [node.mode, node.user, node.group] {
            put_u32(body, word);
        }
        put_u64(body, node.task.unwrap_or(NO_TASK));
        for (seconds, nanoseconds) in node.times {
            put_u64(body, unsigned(seconds));
            put_u32(body, nanoseconds);
        }
        put_text(body, &node.text);
    }

    /// Adds [`Change::Name`].
    pub fn name(&mut self, folder: u64, name: &[u8], inode: u64) {
        self.0.push(2);
        put_u64(&mut self.0, folder);
        put_u64(&mut self.0, inode);
        put_text(&mut self.0, name);
    }

    /// The end of what was added so far, to [cut](Self::cut) it there.
    #[must_use]
    pub fn end(&self) -> usize {
        self.0.len()
    }

    /// Takes back what was added since.
    pub fn cut(&mut self, len: usize) {
        self.0.truncate(len.max(HEAD_LEN));
    }

    /// The bytes of the record.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut body = self.0;
        let rest = body.get(HEAD_LEN..).unwrap_or_default();
        let (len, sum) = (u32::try_from(rest.len()).unwrap_or(u32::MAX), crc32c::crc32c(rest));
        let head = len.to_le_bytes().into_iter().chain(sum.to_le_bytes());
        body.iter_mut().zip(head).for_each(|(to, byte)| *to = byte);
        body
    }
}

/// Changes that remove the files again which a record has made: their names, and their nodes.
#[must_use]
pub fn unmake_files(bytes: &[u8]) -> Vec<Change> {
    let mut made = Vec::new();
    let is_read = record(bytes).and_then(|body| {
        each_change(body, |change| {
            made.push(change);
            Some(())
        })
    });
    if is_read.is_none() {
        made.clear();
    }
    let undo = made.into_iter().rev().filter_map(|change| match change {
        Change::Name(folder, name, _) => Some(Change::NoName(folder, name)),
        Change::Node(inode, node) => node.is_file().then_some(Change::Gone(inode)),
        Change::NoName(..) | Change::Gone(_) => None,
    });
    undo.collect()
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    put_u32(bytes, u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(text);
}

/// The body of the first record, if that is whole.
pub(super) fn record(stream: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields::little(stream);
    let (len, sum) = (fields.u32()?, fields.u32()?);
    let body = fields.slice(narrow(u64::from(len)))?;
    // Zeros are what a hole reads as: a record of nothing has no use.
    if body.is_empty() || crc32c::crc32c(body) != sum {
        return None;
    }
    Some(body)
}

/// Calls `each` for the changes of a record; `None`: one cannot be read, or `each` has refused it.
pub(super) fn each_change(body: &[u8], mut each: impl FnMut(Change) -> Option<()>) -> Option<()> {
    let mut fields = Fields::little(body);
    while let Some([kind]) = fields.take() {
        each(match kind {
            1 => Change::Node(fields.u64()?, node(&mut fields)?),
            2 => {
                let (folder, inode) = (fields.u64()?, fields.u64()?);
                Change::Name(folder, text(&mut fields, NAME_LEN_MAX)?, inode)
            }
            3 => Change::NoName(fields.u64()?, text(&mut fields, NAME_LEN_MAX)?),
            4 => Change::Gone(fields.u64()?),
            _ => return None,
        })?;
    }
    Some(())
}

fn node(fields: &mut Fields<'_>) -> Option<Node> {
    let (mode, user, group, task) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u64()?);
    let mut times = [(0, 0); 3];
    for time in &mut times {
        *time = (
            signed(fields.u64()?),
            fields.u32().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?,
        );
    }
    let task = Some(task).filter(|task| *task != NO_TASK);
    if !matches!(mode & TYPE, FOLDER | FILE | LINK) {
        return None;
    }
    Some(Node { mode, user, group, task, times, text: text(fields, TEXT_LEN_MAX)? })
}

fn text(fields: &mut Fields<'_>, len_max: usize) -> Option<Vec<u8>> {
    let len = narrow(u64::from(fields.u32()?));
    fields.slice(len).filter(|text| wide(text.len()) <= wide(len_max)).map(<[u8]>::to_vec)
}
