//! One job: a process that writes 8 KiB at random places of its file, several at a time.
//!
//! Answers every order on standard input: the operations that were completed in the later part of
//! its time as a histogram, or why there are none.

use std::{
    ffi::CString,
    io,
    os::{fd::RawFd, unix::ffi::OsStrExt as _},
    path::PathBuf,
    process,
    sync::atomic::AtomicU8,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use client::{Backing, Client, Config, Queue, Setting, Transfer};
use serde::{Deserialize, Serialize};
use shm::copy::copy_in;

use super::histogram::Histogram;
use crate::{child::serve, worker::Files};

/// Bytes of a write.
pub(super) const WRITE_LEN: usize = 8 << 10;
/// Bytes of the file.
pub(super) const FILE_LEN: u64 = 4 << 20;
const DEPTH_MAX: usize = 64;
/// The first of so many parts of the time is not counted: all writes start at once in it.
pub(super) const RAMP: u32 = 4;

/// Writes for `time`, with `depth` of them in flight.
#[derive(Deserialize, Serialize)]
pub(super) struct Order {
    pub(super) depth: usize,
    pub(super) time: Duration,
}

/// One job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Args {
    /// Folder of the daemon's socket.
    pub(super) socket: PathBuf,
    /// The file to write; as long as it is to be.
    pub(super) file: PathBuf,
    /// Rule of the file: GLOB=POLICY.
    pub(super) rule: String,
}

/// Does the orders on standard input until it ends.
pub(crate) fn storm(args: &Args) -> anyhow::Result<()> {
    let fd = open(args)?;
    let mut random = fastrand::Rng::with_seed(u64::from(process::id()));
    serve(|order| run(fd, order, &mut random))
}

static BACKING: Backing = Backing::new();
static CLIENT: Client = Client::new(&Files, &BACKING);

/// Connects, and has the daemon open the file.
fn open(args: &Args) -> anyhow::Result<RawFd> {
    let Args { socket, file, rule } = args;
    let mut config = Config::new();
    config.set(Setting::Socket, socket.as_os_str().as_bytes()).context("the folder")?;
    config.set(Setting::Rules, rule.as_bytes()).context("the rule")?;
    CLIENT.start(&config);
    let path = CString::new(file.as_os_str().as_bytes())?;
    let current_folder = libc::AT_FDCWD;
    let opened = CLIENT.open(current_folder, &path, libc::O_RDWR as u32, 0);
    opened.map_err(io::Error::from).with_context(|| file.display().to_string())
}

fn run(fd: RawFd, order: &Order, random: &mut fastrand::Rng) -> anyhow::Result<Histogram> {
    let Order { depth, time } = *order;
    anyhow::ensure!((1..=DEPTH_MAX).contains(&depth), "a depth of 1 to {DEPTH_MAX}");
    let memory = CLIENT.allocate_shared(depth * WRITE_LEN).context("no daemon, or no memory")?;
    copy_in(memory, &vec![0x5a; memory.len()]);
    let starter = Starter { queue: CLIENT.queue(), fd, memory, random };
    let written = write(starter, depth, time);
    CLIENT.free_shared(memory.as_ptr().addr());
    written
}

/// Parts needed to start writes.
struct Starter<'a> {
    queue: Queue,
    fd: RawFd,
    /// A buffer for each in flight.
    memory: &'static [AtomicU8],
    random: &'a mut fastrand::Rng,
}

impl Starter<'_> {
    /// Starts a write from buffer `index` to a random place.
    fn start(&mut self, index: usize) -> anyhow::Result<()> {
        let buffer = self.memory.get(index * WRITE_LEN..).context("a buffer for each")?;
        let at = self.random.u64(0..FILE_LEN / WRITE_LEN as u64) * WRITE_LEN as u64;
        let address = buffer.as_ptr().addr();
        let transfer = Transfer { fd: self.fd, is_write: true, address, len: WRITE_LEN, at };
        anyhow::ensure!(self.queue.start(&transfer), "this file is not delegated");
        Ok(())
    }
}

/// Keeps `depth` writes in flight for `time`.
fn write(mut starter: Starter<'_>, depth: usize, time: Duration) -> anyhow::Result<Histogram> {
    let mut histogram = Histogram::default();
    let start = Instant::now();
    let mut started = [start; DEPTH_MAX];
    for index in 0..depth {
        starter.start(index)?;
    }
    for index in (0..depth).cycle() {
        let len = starter.queue.finish().context("one in flight")?.map_err(io::Error::from)?;
        anyhow::ensure!(len == WRITE_LEN, "a write of {len} bytes");
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
        starter.start(index)?;
    }
    Ok(histogram)
}
