//! Key-value records inside a task's stream: key, length, bytes, back to back (format section 5).
//!
//! The stream has no index; [`Records::scan`] makes one by hopping from header to header. Lengths
//! come from the file and are checked against the stream before they are believed.

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    codec::{Order, narrow, wide},
    error::{Argument, Error, Part, Result},
    header::Keyval,
    reader::{Reader, TaskReader},
    storage::File,
};

/// Bytes of a record's key and length.
pub const RECORD_HEADER_LEN: usize = 16;
/// Empty records with the key 0 that a task may have: a hole reads as nothing else.
pub(crate) const BLANK_MAX: usize = 1 << 20;

/// The header of a record, in the byte order of the file's metadata.
#[must_use]
pub fn encode_header(key: u64, len: u64, order: Order) -> [u8; RECORD_HEADER_LEN] {
    let mut bytes = [0; RECORD_HEADER_LEN];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&order.bytes_u64(key));
    second.copy_from_slice(&order.bytes_u64(len));
    bytes
}

/// Reads what [`encode_header`] wrote: key and length.
#[must_use]
pub(crate) fn decode_header(bytes: [u8; RECORD_HEADER_LEN], order: Order) -> (u64, u64) {
    let half = |half: &[u8]| order.u64(half.try_into().unwrap_or_default());
    let (key, len) = bytes.split_at(8);
    (half(key), half(len))
}

/// One record of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, which several records may share.
    pub key: u64,
    /// Position of the record's data in the task's stream.
    pub at: u64,
    /// Length of the data in bytes, may be 0.
    pub len: u64,
}

/// How much there is under one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Number of records.
    pub record_count: usize,
    /// Bytes of all records together.
    pub len: u64,
}

/// All records of one task, each key with a read position of its own.
#[derive(Clone, Debug)]
pub struct Records<F> {
    stream: TaskReader<F>,
    records: Vec<Record>,
    keys: Vec<u64>,
    chains: HashMap<u64, Chain>,
}

/// The records of one key, and where reading stands in them.
#[derive(Clone, Debug, Default)]
struct Chain {
    records: Vec<usize>,
    current: usize,
    in_record: u64,
}

impl<F: File> Reader<F> {
    /// True if the streams are key-value records.
    pub fn has_records(&self) -> bool {
        self.header(0).is_some_and(|header| header.keyval == Keyval::Inline)
    }

    /// The key-value records of task `task`.
    ///
    /// # Errors
    ///
    /// Those of [`stream`](Self::stream) and of [`Records::scan`].
    pub fn records(&self, task: usize) -> Result<Records<F>> {
        let order = self.header(0).map_or(Order::NATIVE, |header| header.order);
        Records::scan(self.stream(task)?, order)
    }
}

impl<F: File> Records<F> {
    /// Finds all records of `stream`, whose headers are in `order`.
    ///
    /// # Errors
    ///
    /// [`Part::Record`] when a record reaches beyond the stream or a million of them are empty and
    /// have the key 0, and the errors of reading.
    pub fn scan(mut stream: TaskReader<F>, order: Order) -> Result<Self> {
        let damaged = Error::Damaged { part: Part::Record, file: stream.file_number() };
        let mut found =
            Self { stream: stream.clone(), records: vec![], keys: vec![], chains: HashMap::new() };
        stream.seek(0)?;
        let (mut header, mut blank) = ([0; RECORD_HEADER_LEN], 0);
        loop {
            match stream.read(&mut header)? {
                0 => return Ok(found),
                RECORD_HEADER_LEN => {}
                _ => return Err(damaged),
            }
            let (key, len) = decode_header(header, order);
            blank += usize::from((key, len) == (0, 0));
            if len > stream.cursor().left() || blank > BLANK_MAX {
                return Err(damaged);
            }
            let at = stream.cursor().position();
            stream.seek(at + len)?;
            found.push(Record { key, at, len });
        }
    }

    /// Reads from the current record of `key`, and returns the bytes read: fewer than asked for
    /// at the end of the record, 0 at the end of the last. A call at the end of a record goes on
    /// with the key's next one.
    ///
    /// # Errors
    ///
    /// The errors of reading. A key without records reads 0 bytes.
    pub fn read(&mut self, key: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(chain) = self.chains.get_mut(&key) else { return Ok(0) };
        loop {
            let index = chain.records.get(chain.current);
            let Some(record) = index.and_then(|index| self.records.get(*index)) else {
                return Ok(0);
            };
            debug_assert!(chain.in_record <= record.len, "the position is in its record");
            let left = record.len - chain.in_record;
            if left > 0 {
                let len = buf.len().min(narrow(left));
                self.stream.seek(record.at + chain.in_record)?;
                let n = self.stream.read(buf.get_mut(..len).unwrap_or_default())?;
                chain.in_record += wide(n);
                return Ok(n);
            }
            chain.current += 1;
            chain.in_record = 0;
        }
    }

    /// Moves the read position of `key` to byte `at` of its record number `entry`.
    ///
    /// # Errors
    ///
    /// [`Argument::Record`] when there is no such byte.
    pub fn seek(&mut self, key: u64, entry: usize, at: u64) -> Result<()> {
        let chain = self.chains.get_mut(&key).ok_or(Argument::Record)?;
        let record = chain.records.get(entry).and_then(|index| self.records.get(*index));
        if record.is_none_or(|record| at > record.len) {
            return Err(Argument::Record.into());
        }
        (chain.current, chain.in_record) = (entry, at);
        Ok(())
    }

    /// The number of the record that the next read of `key` begins in: the current one, or the
    /// first behind it that is not empty once it was read to its end. `None` when nothing is left.
    #[must_use]
    pub fn unfinished(&self, key: u64) -> Option<usize> {
        let chain = self.chains.get(&key)?;
        let rest = chain.records.iter().enumerate().skip(chain.current);
        let mut lens = rest.map(|(entry, index)| (entry, self.records.get(*index)));
        let left = |entry| if entry == chain.current { chain.in_record } else { 0 };
        lens.find(|(entry, record)| record.is_some_and(|record| record.len > left(*entry)))
            .map(|(entry, _)| entry)
    }

    /// Moves the read position of `key` to byte `at` of all its records together.
    ///
    /// # Errors
    ///
    /// [`Argument::Record`] when there is no such byte.
    pub fn seek_absolute(&mut self, key: u64, mut at: u64) -> Result<()> {
        let chain = self.chains.get_mut(&key).ok_or(Argument::Record)?;
        for (entry, index) in chain.records.iter().enumerate() {
            let len = self.records.get(*index).map_or(0, |record| record.len);
            if at < len || (at == len && entry + 1 == chain.records.len()) {
                (chain.current, chain.in_record) = (entry, at);
                return Ok(());
            }
            at -= len;
        }
        Err(Argument::Record.into())
    }

    /// Makes record number `index` of the task the current one of its key.
    ///
    /// # Errors
    ///
    /// [`Argument::Record`] when there is no such record.
    pub fn select(&mut self, index: usize) -> Result<Record> {
        let record = *self.records.get(index).ok_or(Argument::Record)?;
        let chain = self.chains.get_mut(&record.key).ok_or(Argument::Record)?;
        chain.current = chain.records.binary_search(&index).map_err(|_| Argument::Record)?;
        chain.in_record = 0;
        Ok(record)
    }

    /// The current record number of `key` and the position in it.
    #[must_use]
    pub fn position(&self, key: u64) -> Option<(usize, u64)> {
        self.chains.get(&key).map(|chain| (chain.current, chain.in_record))
    }

    /// All records in the order they were written.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Every key once, in the order of their first records.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// How much there is under `key`.
    #[must_use]
    pub fn stat(&self, key: u64) -> Option<Stat> {
        let chain = self.chains.get(&key)?;
        let lens = chain.records.iter().filter_map(|index| self.records.get(*index));
        Some(Stat { record_count: chain.records.len(), len: lens.map(|record| record.len).sum() })
    }

    fn push(&mut self, record: Record) {
        let chain = match self.chains.entry(record.key) {
            Entry::Occupied(chain) => chain.into_mut(),
            Entry::Vacant(slot) => {
                self.keys.push(record.key);
                slot.insert(Chain::default())
            }
        };
        debug_assert!(chain.records.last() < Some(&self.records.len()), "a chain is in order");
        chain.records.push(self.records.len());
        self.records.push(record);
    }
}
