//! `siondump`: header and tables, in columns that scripts cut. Labelled lines begin with the
//! tool's name; rules and the lines of tables do not.

use std::{fmt::Display, fs::File, path::Path};

use multifile::{
    Reader,
    codec::{Order, signed},
    header::{Header, Keyval},
    name::physical,
};

use super::{
    FORMAT_VERSION, RELEASE,
    options::Options,
    usage::{Sum, Usage, chunk_len},
};
use crate::{
    failure::{Code, Failure},
    multifile::{failure, library_version, open, order_name, records},
    output,
};

/// A line of dashes around tables.
const WIDE: usize = 155;
/// The same around the list of files.
const NARROW: usize = 60;
/// Blocks in one table of `-a`.
const BLOCKS: usize = 10;
/// Entries in a line of `-m` and `-M`.
const ENTRIES: usize = 16;
/// Records in a line of `-K`.
const RECORDS: usize = 5;
const MB: f64 = 1_048_576.0;

/// A multifile being described.
struct Dump<'a> {
    reader: Reader<File>,
    path: &'a Path,
    text: String,
}

pub(super) fn dump(options: &Options) -> Result<(), Failure> {
    let path = options.path(0);
    let mut dump = Dump { reader: open(path)?, path, text: String::new() };
    let header = dump.reader.header(0).cloned();
    let header = header.ok_or_else(|| failure(path, multifile::Argument::Task.into()))?;
    dump.header(&header, options.has(b'S'));
    dump.usage().map_err(|why| failure(path, why))?;
    if dump.reader.mapping().is_some() {
        dump.files(&header, options);
    }
    if options.has(b'a') {
        dump.blocks(options.has(b'l')).map_err(|why| failure(path, why))?;
    }
    let keyval = header.keyval == Keyval::Inline;
    if keyval && options.has(b'k') {
        dump.keys()?;
    }
    if keyval && options.has(b'K') {
        dump.records()?;
    }
    output::print(&dump.text)?;
    if !keyval && (options.has(b'k') || options.has(b'K')) {
        let why = "it holds no key-value records";
        return Err(Failure::new(Code::Failure, path.display(), why, "leave out -k and -K"));
    }
    Ok(())
}

impl Dump<'_> {
    /// A line of a table.
    fn line(&mut self, text: impl Display) {
        self.text += &format!("{text}\n");
    }

    /// A label and a value that starts behind `width` letters.
    fn field(&mut self, width: usize, label: &str, value: impl Display) {
        let label = format!("siondump: {label}:");
        self.text += &format!("{label:width$}{value}\n");
    }

    fn header(&mut self, header: &Header, sizes: bool) {
        let set = header.file_count > 1;
        let name = self.path.display().to_string();
        let prefix = String::from_utf8_lossy(&header.prefix).into_owned();
        self.field(37, "sid", i32::from(self.reader.mapping().is_some()));
        self.field(37, "filename", format_args!("{name:<30}"));
        self.field(37, "prefix", format_args!("{prefix:<30}"));
        self.field(37, "number of tasks", self.reader.task_count());
        self.field(37, "current endianness", order_name(Order::NATIVE));
        self.field(37, "file endianness", order_name(header.data_order));
        let len = header.fs_block_len;
        let megabytes = f64::from(len) / MB;
        self.field(37, "filesystem blocksize", format_args!("{len} bytes ({megabytes:6.2} MB)"));
        self.field(37, "file set", if set { "Yes" } else { "No" });
        self.field(37, "file number", header.file_number);
        self.field(37, "number of files", header.file_count);
        let (mode, name) = match header.keyval {
            Keyval::None => (50, "SION_KEYVAL_NONE"),
            Keyval::Inline => (51, "SION_KEYVAL_INLINE"),
            Keyval::Other(52) => (52, "SION_KEYVAL_META"),
            Keyval::Other(53) => (53, "SION_KEYVAL_HASH"),
            Keyval::Other(mode) => (mode, "SION_KEYVAL_UNKNOWN"),
        };
        if header.version >= FORMAT_VERSION {
            self.field(37, "flag1", format_args!("{} ({mode}+0)", u64::from(mode) << 32));
        }
        self.field(37, "flag2", signed(header.flag2));
        self.field(37, "keyval", format_args!("{mode} ({name})"));
        self.field(37, "file format version", header.version);
        let library = library_version(header);
        self.field(37, "file SIONlib version", format_args!("{library} (current {RELEASE})"));
        self.field(38, "number of blocks", self.reader.block_count());
        if sizes {
            let (bytes, fds) = (size_of::<Reader<File>>(), self.reader.file_count());
            let value = format!("{bytes} bytes {fds} file descriptors");
            self.field(37, "sizeof internal struct", value);
        }
    }

    fn usage(&mut self) -> multifile::Result<()> {
        let usage = Usage::of(&self.reader)?;
        let Usage { chunks, data, full, partly, empty, .. } = usage;
        self.bytes("size of chunks", chunks, "");
        self.bytes("datasize in file (aggr.)", data, "");
        for (label, Sum { bytes, count }) in
            [("full", full), ("partly filled", partly), ("empty", empty)]
        {
            self.bytes(&format!("size of {label} chunks"), bytes, format_args!(" # {count:6}"));
        }
        self.bytes("overhead compared to task-local file", chunks.saturating_sub(data), "");
        if chunks > 0 {
            self.percent(47, "file usage (user data/chunk size)", data, chunks);
        }
        for (label, Sum { bytes, count }) in
            [("used", usage.fs_used), ("fully used", usage.fs_full)]
        {
            let megabytes = bytes as f64 / MB;
            let value = format!("{bytes:12} bytes  ({megabytes:8.2} MB, {count} blocks)");
            self.field(49, &format!("size of {label} fsblocks"), value);
        }
        let (used, of) = (usage.fs_partly_data, usage.fs_partly);
        let value = format!(
            "{used:12} bytes of {:12} bytes ({:6.2} MB of {:6.2} MB, {} blocks)",
            of.bytes,
            used as f64 / MB,
            of.bytes as f64 / MB,
            of.count
        );
        self.field(49, "size of partly used fsblocks", value);
        if usage.fs_used.bytes > 0 {
            self.percent(48, "fsblock usage (user data/used fsblocks)", data, usage.fs_used.bytes);
        }
        if of.bytes > 0 {
            self.percent(48, "usage of partly used fsblocks", used, of.bytes);
        }
        Ok(())
    }

    fn bytes(&mut self, label: &str, bytes: u64, behind: impl Display) {
        let megabytes = bytes as f64 / MB;
        self.field(49, label, format_args!("{bytes:12} bytes  ({megabytes:8.2} MB){behind}"));
    }

    fn percent(&mut self, width: usize, label: &str, part: u64, whole: u64) {
        let percent = 100.0 * part as f64 / whole as f64;
        self.field(width, label, format_args!("{percent:14.6}%"));
    }

    fn files(&mut self, header: &Header, options: &Options) {
        self.line("-".repeat(NARROW));
        self.field(37, "number of files", header.file_count);
        let prefix = String::from_utf8_lossy(&header.prefix).into_owned();
        for file in 0..header.file_count {
            let name = physical(Path::new(&prefix), file);
            self.field(37, &format!("file {:3}", file + 1), name.display());
        }
        self.line("-".repeat(NARROW));
        let mapping = self.reader.mapping().unwrap_or_default().to_vec();
        if options.has(b'm') {
            let entry = |(task, (file, local)): (usize, &(u32, u32))| {
                format!("[{task:05} -> (f{file:03},t{local:03})] ")
            };
            let entries: Vec<_> = mapping.iter().enumerate().map(entry).collect();
            for entries in entries.chunks(ENTRIES) {
                self.line(format_args!("  mapping: {}", entries.concat()));
            }
        }
        if options.has(b'M') {
            for file in 0..header.file_count {
                let own = mapping.iter().enumerate().filter(|(_, (of, _))| *of == file);
                let entries: Vec<_> =
                    own.map(|(task, (_, local))| format!("{local:2}:{task:05} ")).collect();
                for entries in entries.chunks(ENTRIES) {
                    self.line(format_args!("  file[{file:03}]: {}", entries.concat()));
                }
            }
        }
    }

    fn blocks(&mut self, long: bool) -> multifile::Result<()> {
        self.text += "\n";
        self.line("-".repeat(WIDE));
        // Not what the header says, which may be anything.
        let lens = (0..self.reader.task_count()).map(|task| self.reader.block_lens(task));
        let count = lens.flatten().map(<[u64]>::len).max().unwrap_or(0);
        // What stands in place of a block that a task does not have.
        let missing = if self.reader.mapping().is_some() { -1 } else { 0 };
        for first in (0..count).step_by(BLOCKS) {
            let blocks = first..count.min(first + BLOCKS);
            let heads: String = blocks.clone().map(|block| format!("BLK{block:03}    ")).collect();
            self.line(format_args!("{:70}{heads}", ""));
            for task in 0..self.reader.task_count() {
                let found = self.reader.task(task)?;
                let lens = self.reader.block_lens(task)?;
                let total: u64 = lens.iter().sum();
                let (rank, own) = (found.global_rank, lens.len());
                let size = chunk_len(&self.reader, task)?;
                let slot = |block: usize| lens.get(block).map_or(missing, |len| signed(*len));
                let text = if long {
                    let slots: String =
                        blocks.clone().map(|block| format!("{:9} ", slot(block))).collect();
                    format!(
                        "Task {task:02}: size={size:10} B glblrnk={rank:4} #blks={own:2} \
                         lsz={total:10} B: {slots}"
                    )
                } else {
                    let megabytes = |len: f64| len / MB;
                    let slots: String = blocks
                        .clone()
                        .map(|block| format!(" {:6.2} MB ", megabytes(slot(block) as f64)))
                        .collect();
                    let (size, total) = (megabytes(size as f64), megabytes(total as f64));
                    format!(
                        "Task {task:02}: size={size:8.2} MB glblrnk={rank:4} #blks={own:2} \
                         lsz={total:8.2} MB:  {slots}"
                    )
                };
                self.line(text);
            }
            self.text += "\n";
        }
        self.line("-".repeat(WIDE));
        Ok(())
    }

    fn keys(&mut self) -> Result<(), Failure> {
        self.line("-".repeat(WIDE));
        for task in 0..self.reader.task_count() {
            let records = records(&self.reader, self.path, task)?;
            for (index, key) in records.keys().iter().enumerate() {
                let (count, len) =
                    records.stat(*key).map_or((0, 0), |stat| (stat.record_count, stat.len));
                self.line(format_args!(
                    "Task {task:02}: key[{index:02}]={:8}: #blocks={count:6} totalsize={len:10}",
                    signed(*key)
                ));
            }
        }
        self.line("-".repeat(WIDE));
        Ok(())
    }

    fn records(&mut self) -> Result<(), Failure> {
        for task in 0..self.reader.task_count() {
            let records = records(&self.reader, self.path, task)?;
            let entries = records.records().iter().enumerate().map(|(index, record)| {
                format!(" [{index:02}:k=<{}>,size={}]", signed(record.key), record.len)
            });
            let entries: Vec<_> = entries.collect();
            let lines: Vec<_> = entries.chunks(RECORDS).map(<[String]>::concat).collect();
            self.line(format_args!("Task {task:02}:{}", lines.join("\n       :")));
        }
        Ok(())
    }
}
