//! A process that opens a multifile of many tasks and says how much memory it took: the paper's
//! activation, by itself, because a peak is a process's.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;

use super::create;

/// Creates and closes one multifile, for kakehi-bench itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of tasks.
    count: u32,
    /// The multifile to create.
    path: PathBuf,
}

/// Creates the multifile, and prints the most bytes this process had resident.
pub(crate) fn activate(args: &Args) -> anyhow::Result<()> {
    create::create(&args.path, &create::tasks(args.count))?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.split_whitespace().next()).context("VmHWM")?;
    Ok(writeln!(io::stdout(), "{}", peak.parse::<u64>()? * 1024)?)
}
