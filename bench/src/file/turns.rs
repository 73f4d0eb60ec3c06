//! Two programs that do the same to the same file, in turns of some hundredths of a second.
//!
//! Both go on for ever, and one of them is stopped at any time. A disk that others share is faster
//! and slower by a third for a tenth of a second, or for minutes: of two runs, one after the other,
//! one may meet the good ones. In turns both meet the same. What one has in flight when it is
//! stopped ends while nobody is measured, so a turn is long by that.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;

use crate::{
    kernel_workers,
    process::{Process, end_with_this, pause},
};

/// The shortest turn: so many of them meet each phase of the disk.
const TURN: Duration = Duration::from_millis(40);
/// A turn is at least so many times as long as what is in flight takes.
const IN_FLIGHT_PARTS: u32 = 16;
/// How long each runs before, and the longest that it may take to begin.
const WARM_UP: Duration = Duration::from_millis(200);
const START_MAX: Duration = Duration::from_secs(20);
/// Between two looks whether something has happened.
const LOOK: Duration = Duration::from_micros(200);

/// How two programs compete.
pub(super) struct Turns {
    pub(super) rounds: usize,
    /// Of each program, in a round.
    pub(super) turns: usize,
    pub(super) is_write: bool,
    /// Bytes that each has in flight.
    pub(super) in_flight: u64,
    /// The one that both are kept on.
    pub(super) core: Option<usize>,
}

impl Turns {
    /// Lets the programs run. Returns of each MB/s and MB per second of CPU time, one a round.
    pub(super) fn run(&self, programs: [Command; 2]) -> anyhow::Result<[Vec<[f64; 2]>; 2]> {
        let [first, second] = programs;
        let first = Runner::start(first, self)?;
        let second = Runner::start(second, self)?;
        let turn = first.turn.max(second.turn);
        let mut values = [Vec::new(), Vec::new()];
        for round in 0..self.rounds {
            let mut sums = [Took::default(); 2];
            for number in 0..self.turns {
                let [ours, others] = &mut sums;
                let mut pairs = [(&first, ours), (&second, others)];
                if (round * self.turns + number) % 2 == 1 {
                    pairs.reverse();
                }
                for (runner, sum) in pairs {
                    sum.add(&runner.take_turn(turn, self.core)?);
                    pause(turn / (IN_FLIGHT_PARTS / 2))?;
                }
            }
            for (values, sum) in values.iter_mut().zip(&sums) {
                values.push([sum.bytes_by(sum.wall), sum.bytes_by(sum.cpu)]);
            }
        }
        Ok(values)
    }
}

/// A program that is stopped when it has no turn.
struct Runner {
    process: Process,
    /// The folder of its thread that reads or writes.
    task: PathBuf,
    is_write: bool,
    /// A turn that is long enough for it.
    turn: Duration,
}

/// What a turn took, or several.
#[derive(Clone, Copy, Default)]
struct Took {
    bytes: u64,
    wall: Duration,
    /// Of the thread, and of the kernel's workers on its core.
    cpu: Duration,
}

impl Took {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.wall += other.wall;
        self.cpu += other.cpu;
    }

    /// MB a second of `time`.
    fn bytes_by(&self, time: Duration) -> f64 {
        self.bytes as f64 / 1e6 / time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Runner {
    fn start(mut command: Command, turns: &Turns) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mortal = end_with_this();
        // SAFETY: it makes two system calls, which may be made in the child of a fork.
        unsafe { command.pre_exec(mortal) };
        let child = command.spawn().with_context(|| format!("{:?}", command.get_program()))?;
        let mut process = Process(child);
        let tasks = Path::new("/proc").join(process.0.id().to_string()).join("task");
        let begin = Instant::now();
        while busiest(&tasks, turns.is_write).is_none() {
            if begin.elapsed() > START_MAX || process.0.try_wait()?.is_some() {
                process.kill();
                bail!("it moves no bytes that the kernel counts");
            }
            pause(LOOK)?;
        }
        pause(WARM_UP)?;
        let task = busiest(&tasks, turns.is_write).context("it has ended early")?;
        let mut runner = Self { process, task, is_write: turns.is_write, turn: TURN };
        let took = runner.take_turn(WARM_UP, turns.core)?;
        ensure!(took.bytes > 0, "it moves no bytes that the kernel counts");
        let part = turns.in_flight as f64 / took.bytes as f64;
        runner.turn = TURN.max(took.wall.mul_f64(part) * IN_FLIGHT_PARTS);
        Ok(runner)
    }

    /// Lets it go on for about `time`, and says what it did meanwhile.
    fn take_turn(&self, time: Duration, core: Option<usize>) -> anyhow::Result<Took> {
        let turn = || -> anyhow::Result<Took> {
            let (bytes, cpu) = self.so_far()?;
            let begin = Instant::now();
            self.process.send(Signal::CONT);
            pause(time)?;
            self.process.send(Signal::STOP);
            while !self.is_stopped()? {
                pause(LOOK)?;
            }
            let wall = begin.elapsed();
            let (bytes_then, cpu_then) = self.so_far()?;
            Ok(Took { bytes: bytes_then - bytes, wall, cpu: cpu_then.saturating_sub(cpu) })
        };
        let (took, workers) = kernel_workers::beside(core, turn);
        let mut took = took.context("it has ended early")?;
        took.cpu += workers;
        Ok(took)
    }

    /// Bytes that its thread has moved so far, and CPU time that it has taken.
    fn so_far(&self) -> anyhow::Result<(u64, Duration)> {
        let bytes = bytes_of(&self.task, self.is_write)?.context("bytes")?;
        let times = fs::read_to_string(self.task.join("schedstat"))?;
        let nanos = times.split(' ').next().context("a time")?.parse()?;
        Ok((bytes, Duration::from_nanos(nanos)))
    }

    fn is_stopped(&self) -> anyhow::Result<bool> {
        let stat = fs::read_to_string(self.task.join("stat"))?;
        // Behind its name, which may contain anything.
        let (_, state) = stat.rsplit_once(") ").context("a state")?;
        Ok(state.starts_with('T'))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// The task that has moved most bytes, if one has.
fn busiest(tasks: &Path, is_write: bool) -> Option<PathBuf> {
    let folders = fs::read_dir(tasks).ok()?.flatten().map(|task| task.path());
    let moved = folders.filter_map(|task| Some((bytes_of(&task, is_write).ok()??, task)));
    moved.filter(|(bytes, _)| *bytes > 0).max().map(|(_, task)| task)
}

/// Bytes that a task has asked storage for, or given it.
fn bytes_of(task: &Path, is_write: bool) -> io::Result<Option<u64>> {
    let name = if is_write { "write_bytes: " } else { "read_bytes: " };
    let text = fs::read_to_string(task.join("io"))?;
    Ok(text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()))
}
