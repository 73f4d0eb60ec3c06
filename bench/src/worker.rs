//! The process that is measured: does one job a line, with the calls any program would make.
//!
//! File calls go through the C library, by way of `std` or directly, so that the preload library
//! sees them. The buffer is touched before it is timed, and kept: large ones cost page faults once.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::RawFd,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use client::{Backing, Client, Config, Host, Peer, Setting};
use rustix::{
    fd::BorrowedFd,
    io::Errno,
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::{
    child::serve,
    job::{Job, Sample, Verb},
};

const PAGE: usize = 4096;
/// Pages among which a sample's buffer begins.
const PLACES: usize = 64;
const SEED: u64 = 0x6b61_6b65_6869;

/// Where a worker runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Args {
    /// The core to stay on.
    pub(crate) core: Option<usize>,
}

/// Does the jobs on standard input until it ends.
pub(crate) fn work(args: &Args) -> anyhow::Result<()> {
    pin(args.core)?;
    let mut worker = Worker { buffer: Vec::new() };
    serve(|job| worker.run(job))
}

/// Keeps the calling thread on one core, if one is named.
pub(crate) fn pin(core: Option<usize>) -> anyhow::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("core {core}"))
}

struct Worker {
    buffer: Vec<u8>,
}

impl Worker {
    fn run(&mut self, job: &Job) -> anyhow::Result<Sample> {
        let len = job.size + (PLACES + 1) * PAGE;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
            fastrand::Rng::with_seed(SEED).fill(&mut self.buffer);
        }
        // The speed of a copy depends on where it starts: on all sides at the start of a page. It
        // depends on the page too, by a fifth for small copies: no side keeps a lucky one.
        let start = self.buffer.as_ptr().align_offset(PAGE) + fastrand::usize(..PLACES) * PAGE;
        let buffer = self.buffer.get_mut(start..start + job.size).context("a buffer")?;
        match job.verb {
            Verb::Write | Verb::Burst => write(job, buffer),
            Verb::Read => read(job, buffer),
            Verb::Nothing => nothing(job),
        }
    }
}

fn write(job: &Job, data: &[u8]) -> anyhow::Result<Sample> {
    let mut file = File::options().write(true).create_new(true).open(&job.path)?;
    let timer = Timer::start();
    for _ in 0..job.count {
        file.write_all(data)?;
    }
    if job.verb == Verb::Burst {
        return Ok(timer.stop());
    }
    drop(file);
    Ok(timer.stop())
}

fn read(job: &Job, buffer: &mut [u8]) -> anyhow::Result<Sample> {
    let mut file = File::open(&job.path)?;
    let timer = Timer::start();
    for _ in 0..job.count {
        file.read_exact(buffer)?;
    }
    Ok(timer.stop())
}

/// Only a client in this process can send a request that no system call stands for.
fn nothing(job: &Job) -> anyhow::Result<Sample> {
    static BACKING: Backing = Backing::new();
    static CLIENT: Client = Client::new(&Files, &BACKING);
    let mut config = Config::new();
    let folder = job.path.as_os_str().as_encoded_bytes();
    config.set(Setting::Socket, folder).context("the daemon's folder")?;
    CLIENT.start(&config);
    let timer = Timer::start();
    for _ in 0..job.count {
        CLIENT.nothing().map_err(io::Error::from)?;
    }
    Ok(timer.stop())
}

/// The client's view of this process.
pub(crate) struct Files;

impl Host for Files {
    fn borrow(&self, fd: RawFd) -> BorrowedFd<'static> {
        // SAFETY: the client borrows only numbers it is given or has opened, and a process of this
        // program keeps those open as long as it has a client.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn replace(&self, _: RawFd, _: BorrowedFd<'_>) -> rustix::io::Result<()> {
        Err(Errno::NOSYS)
    }

    fn peer(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<Peer> {
        let found = uring::Peer::of(socket);
        let found = found.map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))?;
        Ok(Peer { user: found.user.ok_or(Errno::NODATA)?, process: found.process })
    }
}

/// Wall clock and CPU time of this thread from a moment on.
struct Timer(Instant, Duration);

impl Timer {
    fn start() -> Self {
        let cpu = cpu_time();
        Self(Instant::now(), cpu)
    }

    fn stop(&self) -> Sample {
        let (wall, cpu) = (self.0.elapsed(), cpu_time().saturating_sub(self.1));
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Sample { wall_ns: nanos(wall), cpu_ns: nanos(cpu) }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
