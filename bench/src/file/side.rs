//! The process that reads or writes a file: one thread, past the page cache where the file system
//! can, each call a whole block of the file.

use std::{
    cell::{Cell, RefCell},
    fs, io, iter,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
};

use anyhow::{Context as _, bail};
use executor::{Class, Config, Executor, Idle, Notify};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use uring::{Choice, Engines, Events, File, Pool, SystemClock};

use crate::{
    child::{Child, command, patience, say},
    kakehi::Environment,
    meter::{Meter, Sample},
    values::values,
    worker::pin,
};

const PAGE: usize = 4096;

/// Executor of the calls.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// The daemon's choice.
    Auto,
    /// io_uring.
    Uring,
    /// A few threads of blocking calls.
    Threads,
    /// One blocking call after the other.
    Psync,
}

/// Reads or writes a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Args {
    pub(crate) engine: Engine,
    pub(crate) write: bool,
    /// Blocks in no order, instead of one after the other.
    pub(crate) random: bool,
    /// Bytes of a call.
    pub(crate) size: usize,
    /// Calls in all.
    pub(crate) count: u64,
    /// Calls at a time.
    pub(crate) depth: usize,
    /// Length of the file; after its end comes its start.
    pub(crate) span: u64,
    /// Begins in the middle of it.
    pub(crate) halfway: bool,
    pub(crate) path: PathBuf,
    pub(crate) core: Option<usize>,
}

impl Args {
    /// Has another process do it.
    pub(crate) fn run(&self) -> Result<Sample, String> {
        let patience = patience(self.count * self.size as u64);
        let child = Child::start("file-side", self, &Environment::new());
        child.and_then(|mut child| child.hear(patience)).map_err(|why| format!("{why:#}"))
    }

    /// The process that does it without end, from the middle of the file on: beside another that
    /// began at its start, neither goes where the other has just been.
    pub(crate) fn endless(&self) -> io::Result<Command> {
        command("file-side", &Self { count: u64::MAX, halfway: true, ..self.clone() })
    }
}

/// Does what it is told, and says what it took.
pub(crate) fn work(args: &Args) -> anyhow::Result<()> {
    pin(args.core)?;
    let file = open(&args.path, args.write)?;
    let choice = match args.engine {
        Engine::Psync => return say(one_after_the_other(args, &file)?),
        Engine::Auto => Choice::Auto,
        Engine::Uring => Choice::Uring,
        Engine::Threads => Choice::Threads,
    };
    // With turns as long as fio's: a thread that prefers short ones keeps a kernel worker, which
    // completes the writes of some file systems, from its core after the first of them.
    let events = Events::new()?;
    let config = Config { idle: Idle::Park, ..Config::default() };
    let mut executor = Executor::new(Rc::new(SystemClock), Box::new(events.parker()), config);
    let handle = executor.handle();
    let engines = Engines::new(&handle, choice, 4, &events);
    let pool = Pool::new(args.size, args.depth);
    let buffers: Vec<_> = iter::from_fn(|| pool.try_take()).collect();
    buffers.iter().for_each(|buffer| buffer.store(&values(args.size)));
    drop(buffers);
    let calls = Rc::new(Calls {
        engines,
        pool,
        file: File::new(OwnedFd::from(file))?,
        blocks: RefCell::new(Blocks::new(args)),
        is_write: args.write,
        left: Cell::new(args.count),
        failure: Cell::new(None),
        news: Notify::new(),
        meter: Meter::new(args.count),
    });
    calls.meter.start();
    for _ in 0..args.depth {
        handle.spawn(Class::Latency, Rc::clone(&calls).go_on());
    }
    executor.run_until(calls.news.until(|| calls.left.get() == 0));
    match calls.failure.take() {
        Some(why) => bail!(why),
        None => say(calls.meter.sample()),
    }
}

/// Opens a file past the page cache.
pub(crate) fn open(path: &Path, is_write: bool) -> anyhow::Result<fs::File> {
    let mut options = fs::File::options();
    options.read(!is_write).write(is_write).custom_flags(libc::O_DIRECT);
    options.open(path).with_context(|| path.display().to_string())
}

/// Where each call goes.
struct Blocks {
    next: u64,
    first: u64,
    count: u64,
    order: Option<Rng>,
    size: u64,
    /// Of the file.
    block_count: u64,
}

impl Blocks {
    fn new(args: &Args) -> Self {
        let size = args.size as u64;
        let order = args.random.then(Rng::new);
        let block_count = args.span / size;
        let first = if args.halfway { block_count / 2 } else { 0 };
        Self { next: 0, first, count: args.count, order, size, block_count }
    }
}

impl Iterator for Blocks {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next == self.count {
            return None;
        }
        self.next += 1;
        let block = match &mut self.order {
            Some(rng) => rng.u64(..self.block_count),
            None => (self.first + self.next - 1) % self.block_count,
        };
        Some(block * self.size)
    }
}

/// State shared by the tasks that each keep one call in flight.
struct Calls {
    engines: Engines,
    pool: Pool,
    file: File,
    blocks: RefCell<Blocks>,
    is_write: bool,
    left: Cell<u64>,
    failure: Cell<Option<String>>,
    news: Notify,
    meter: Meter,
}

impl Calls {
    async fn go_on(self: Rc<Self>) {
        let buffer = self.pool.take().await;
        loop {
            let Some(block) = self.blocks.borrow_mut().next() else { return };
            let mut done = 0;
            while done < buffer.len() {
                let (at, rest) = (block + done as u64, buffer.suffix(done).into());
                let moved = match self.is_write {
                    true => self.engines.write(&self.file, at, rest).await,
                    false => self.engines.read(&self.file, at, rest).await,
                };
                match moved {
                    Ok(len @ 1..) => done += len,
                    Ok(_) => return self.fail("the file is too short".to_owned()),
                    Err(why) => return self.fail(why.to_string()),
                }
            }
            self.left.set(self.left.get() - 1);
            if self.left.get() == 0 {
                self.news.notify_all();
            }
        }
    }

    fn fail(&self, why: String) {
        self.failure.set(Some(why));
        self.left.set(0);
        self.news.notify_all();
    }
}

fn one_after_the_other(args: &Args, file: &fs::File) -> anyhow::Result<Sample> {
    let mut space = vec![0; args.size + PAGE];
    let start = space.as_ptr().align_offset(PAGE);
    let buffer = space.get_mut(start..start + args.size).unwrap_or_default();
    buffer.copy_from_slice(&values(buffer.len()));
    let meter = Meter::new(args.count);
    meter.start();
    for block in Blocks::new(args) {
        match args.write {
            true => file.write_all_at(buffer, block)?,
            false => file.read_exact_at(buffer, block)?,
        }
    }
    Ok(meter.sample())
}
