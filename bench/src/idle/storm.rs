//! One job: a process that writes 8 KiB at random places of its file, several at a time.
//!
//! Waits on standard input for `DEPTH MILLIS` and answers each line with one: the operations that
//! were completed in the later part of that time as a histogram, or why there are none.

use std::{
    ffi::CString,
    io::{self, BufRead as _, Write as _},
    os::{
        fd::RawFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::PathBuf,
    process,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use client::{Client, Config, Setting, WriteQueue};

use super::histogram::Histogram;
use crate::worker::Files;

/// Bytes of a write.
pub(super) const WRITE_LEN: usize = 8 << 10;
/// Bytes of the file.
pub(super) const FILE_LEN: u64 = 4 << 20;
const DEPTH_MAX: usize = 64;
/// The first of so many parts of the time is not counted: all writes start at once in it.
pub(super) const RAMP: u32 = 4;

/// Runs one job, for kakehi-bench itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the daemon's socket.
    #[arg(long)]
    socket: PathBuf,
    /// The file to write; as long as it is to be.
    #[arg(long)]
    file: PathBuf,
    /// Whose the file is: GLOB=POLICY.
    #[arg(long)]
    rule: String,
}

/// Answers the lines on standard input until it ends.
pub(crate) fn storm(args: &Args) -> anyhow::Result<()> {
    let fd = open(args)?;
    let mut random = fastrand::Rng::with_seed(u64::from(process::id()));
    for line in io::stdin().lock().lines() {
        let answer = match run(fd, &line?, &mut random) {
            Ok(histogram) => format!("ok {histogram}"),
            Err(why) => format!("error {why:#}"),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

static CLIENT: Client = Client::new(&Files);

/// Connects, and has the daemon open the file.
fn open(args: &Args) -> anyhow::Result<RawFd> {
    let mut config = Config::new();
    config.set(Setting::Socket, args.socket.as_os_str().as_bytes()).context("the folder")?;
    config.set(Setting::Rules, args.rule.as_bytes()).context("the rule")?;
    CLIENT.start(&config);
    let path = CString::new(args.file.clone().into_os_string().into_vec())?;
    let current_folder = libc::AT_FDCWD;
    let opened = CLIENT.open(current_folder, &path, libc::O_RDWR as u32, 0);
    opened.map_err(io::Error::from).with_context(|| args.file.display().to_string())
}

fn run(fd: RawFd, line: &str, random: &mut fastrand::Rng) -> anyhow::Result<Histogram> {
    let (depth, millis) = line.split_once(' ').context("DEPTH MILLIS")?;
    let (depth, millis) = (depth.parse::<usize>()?, millis.parse()?);
    let queue = CLIENT.write_queue(fd, &[0x5a; WRITE_LEN], depth).map_err(io::Error::from);
    let queue = queue.context("this file is not delegated")?;
    write(queue, depth.min(DEPTH_MAX), Duration::from_millis(millis), random)
}

/// Keeps `depth` writes in flight for `time`.
fn write(
    mut queue: WriteQueue,
    depth: usize,
    time: Duration,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Histogram> {
    let mut place = || random.u64(0..FILE_LEN / WRITE_LEN as u64) * WRITE_LEN as u64;
    let mut histogram = Histogram::default();
    let start = Instant::now();
    let mut started = [start; DEPTH_MAX];
    for _ in 0..depth {
        queue.start(place()).map_err(io::Error::from)?;
    }
    for index in (0..depth).cycle() {
        let len = queue.finish().map_err(io::Error::from)?;
        anyhow::ensure!(len == WRITE_LEN as u64, "a write of {len} bytes");
        let now = Instant::now();
        let passed = now.duration_since(start);
        if passed >= time {
            break;
        }
        let began = started.get_mut(index).context("a depth of at most 64")?;
        if passed >= time / RAMP {
            histogram.add(now.duration_since(*began));
        }
        *began = now;
        queue.start(place()).map_err(io::Error::from)?;
    }
    Ok(histogram)
}
