//! `sionsplit`: every task, or every key of every task, in a file of its own.

use std::fmt::Write as _;

use multifile::{codec::Order, header::Keyval};

use super::options::Options;
use crate::{
    failure::Failure,
    multifile::{
        open, order_name,
        split::{Naming, Split},
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
    let keys = reader.header(0).is_some_and(|header| header.keyval == Keyval::Inline);
    let naming = Naming { digits, global_rank: options.has(b'g'), keys };
    let split = Split { path, reader, naming };
    let files = split.run(&prefix, true)?;
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
    line("data size", &total_len(reader));
    line("files written", &files);
    output::print(&text)
}
