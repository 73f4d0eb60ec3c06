//! `sionsplit`: every task, or every key of every task, in a file of its own.

use std::{fmt::Write as _, fs::File};

use multifile::{Reader, codec::Order};

use super::options::Options;
use crate::{
    failure::Failure,
    multifile::{
        damage, open, order_name,
        split::{Naming, Split, Written},
        total_len,
    },
    output,
};

pub(super) fn split(options: &Options) -> Result<(), Failure> {
    let path = options.path(0);
    let prefix = options.name(1).to_owned();
    let digits = options.number(b'd')?.unwrap_or(5);
    let digits = u8::try_from(digits).ok().filter(|digits| (1..=20).contains(digits));
    let digits = digits.ok_or_else(|| Failure::usage("-d", "1 to 20 digits", "see -h"))?;
    let reader = open(path)?;
    let keys = reader.has_records();
    let naming = Naming { digits, global_rank: options.has(b'g'), keys };
    let split = Split { path, reader, naming };
    let Written { files, damaged } = split.run(&prefix, true)?;
    let reader = &split.reader;
    let mut text = String::new();
    let mut line = |label: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        writeln!(text, "{:37}{value}", format!("sionsplit: {label}:")).ok();
    };
    line("file name", &path.display());
    line("file name prefix", &prefix.to_string_lossy());
    line("sid", &i32::from(reader.mapping().is_some()));
    line("number of tasks", &reader.task_count());
    line("number of files", &reader.file_count());
    line("number of digits", &digits);
    line("use global ranks", &i32::from(naming.global_rank));
    line("keyval", &if keys { 51 } else { 50 });
    line("current endianness", &order_name(Order::NATIVE));
    if let Some(header) = reader.header(0) {
        line("file endianness", &order_name(header.data_order));
        line("filesystem blocksize", &header.fs_block_len);
    }
    line("max number of chunks", &reader.block_count());
    let (data, (table_at, size)) = (total_len(reader), sizes(reader));
    line("data size", &data);
    line("start of META2", &table_at);
    line("file size (estimated)", &size);
    // Of the estimate, in hundredths of a per cent: no float is worth it.
    let usage = u128::from(data) * 10_000 / u128::from(size.max(1));
    line("usage", &format_args!("{}.{:02}%", usage / 100, usage % 100));
    let mask = format!("{}%0{digits}d", prefix.to_string_lossy());
    line("mask", &mask);
    line("mask of keys", &format_args!("{mask}_%012ld"));
    for (task, name) in &files {
        writeln!(text, "sionsplit: file {}", name.to_string_lossy()).ok();
        let lens = if keys { &[] } else { reader.block_lens(*task).unwrap_or_default() };
        for (block, len) in lens.iter().enumerate() {
            writeln!(text, "sionsplit:   block {block}: read {len} bytes").ok();
            writeln!(text, "sionsplit:   block {block}: wrote {len} bytes").ok();
        }
    }
    if keys {
        // Where the original got to, every sixteenth task.
        let tasks = (0..reader.task_count()).step_by(16);
        writeln!(text, "{}", tasks.map(|task| format!("[{task}]")).collect::<String>()).ok();
    }
    output::print(&text)?;
    damage::judge(path, &damaged)
}

/// Where the block table of the first file stands, and about how long that file is.
fn sizes(reader: &Reader<File>) -> (u64, u64) {
    let table = reader.table(0);
    table.map_or((0, 0), |table| (table.at, table.end().unwrap_or(table.at)))
}
