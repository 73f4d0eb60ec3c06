//! Two programs that do the same to the same file, in turns of some hundredths of a second.
//!
//! Both go on for ever, and at any time at least one is stopped. A disk that others share is faster
//! and slower by a third, for a tenth of a second or for minutes: of two runs, one after the other,
//! one may meet the good ones. In turns both meet the same.
//!
//! What is in flight when a program is stopped ends while nobody is measured. The kernel counts
//! bytes when they are asked for, so that much is taken off what a turn has moved.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::{
    io::retry_on_intr,
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};

use crate::{
    kernel_workers::{Workers, run_time},
    options::Deadline,
    process::{Process, end_with_this, pause},
};

/// The shortest turn: so many of them meet each phase of the disk.
const TURN: Duration = Duration::from_millis(40);
/// A turn is at least so many times as long as what is in flight takes.
const IN_FLIGHT_PARTS: u32 = 4;
/// One that needs longer turns does not really move anything.
const TURN_MAX: Duration = Duration::from_secs(20);
/// How long each runs before, and how long it may take to begin.
const WARM_UP: Duration = Duration::from_millis(100);
const START_MAX: Duration = Duration::from_secs(5);
/// Rounds that may fail and be done again.
const FAILURES_MAX: usize = 3;
/// Between two looks whether it has begun.
const LOOK: Duration = Duration::from_millis(2);

/// How two programs compete.
pub(super) struct Turns {
    pub(super) rounds: usize,
    /// How long each program has in a round.
    pub(super) round: Duration,
    /// No round begins later.
    pub(super) end: Deadline,
    pub(super) is_write: bool,
    /// Bytes that each has in flight.
    pub(super) in_flight: u64,
    /// The one that both are kept on.
    pub(super) core: Option<usize>,
}

impl Turns {
    /// Lets the programs run. Returns of each MB/s and MB per second of CPU time, one a round.
    ///
    /// # Errors
    ///
    /// One does not run, or the kernel does not count all that it does by one thread of it.
    pub(super) fn run(&self, programs: &mut [Command; 2]) -> anyhow::Result<[Vec<[f64; 2]>; 2]> {
        programs.iter_mut().for_each(prepare);
        let (mut values, mut failures) = ([Vec::new(), Vec::new()], 0);
        let mut running = None;
        while values[0].len() < self.rounds && !self.end.is_over() {
            let runners = running.take().map_or_else(|| self.start(programs), Ok);
            match runners.and_then(|runners| Ok((self.round(&runners)?, runners))) {
                Ok((sums, runners)) => {
                    for (values, sum) in values.iter_mut().zip(sums) {
                        values.push([sum.moved as f64 / sum.wall, sum.asked as f64 / sum.cpu]);
                    }
                    running = Some(runners);
                }
                // fio does not always survive a stop: both begin anew.
                Err(_) if failures < FAILURES_MAX => failures += 1,
                Err(why) => return Err(why),
            }
        }
        Ok(values)
    }

    /// Starts both, and stops each once it has begun.
    fn start(&self, programs: &mut [Command; 2]) -> anyhow::Result<[Runner; 2]> {
        let [one, other] = programs;
        Ok([Runner::start(one, self)?, Runner::start(other, self)?])
    }

    fn round(&self, runners: &[Runner; 2]) -> anyhow::Result<[Took; 2]> {
        let turn = runners.iter().map(|runner| runner.turn).max().unwrap_or(TURN);
        let turn_count = (self.round.as_nanos() / turn.as_nanos()).max(1);
        let mut sums = [Took::default(); 2];
        for number in 0..turn_count {
            let mut pairs: Vec<_> = runners.iter().zip(&mut sums).collect();
            if number % 2 == 1 {
                pairs.reverse();
            }
            for (runner, sum) in pairs {
                sum.add(&runner.take_turn(turn, self.in_flight)?);
                pause(turn / IN_FLIGHT_PARTS)?;
            }
        }
        runners.iter().try_for_each(Runner::check)?;
        Ok(sums)
    }
}

/// A program that is stopped when it has no turn.
struct Runner {
    process: Process,
    /// Its folder in `/proc`, and that of its thread that reads or writes.
    proc: PathBuf,
    task: PathBuf,
    is_write: bool,
    workers: Workers,
    /// A turn that is long enough for it.
    turn: Duration,
}

/// Cost of one or several turns; times in microseconds.
#[derive(Clone, Copy, Default)]
struct Took {
    /// Bytes it has asked for.
    asked: u64,
    /// Bytes that were moved meanwhile.
    moved: u64,
    wall: f64,
    /// Of the thread, and of the kernel's workers on its core.
    cpu: f64,
}

impl Took {
    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.moved += other.moved;
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

impl Runner {
    fn start(command: &mut Command, turns: &Turns) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let proc = Path::new("/proc").join(child.id().to_string());
        let (task, is_write, turn) = (PathBuf::new(), turns.is_write, TURN);
        let workers = Workers::of(turns.core);
        let mut runner = Self { process: Process(child), proc, task, is_write, workers, turn };
        runner.task = runner.warm_up().with_context(|| program.display().to_string())?;
        runner.process.send(Signal::STOP);
        runner.await_stop()?;
        let took = runner.take_turn(WARM_UP, 0)?;
        runner.turn = turn_of(turns.in_flight, took.moved)?;
        Ok(runner)
    }

    /// Waits until it has begun, and for a while longer; returns the thread that moves its bytes.
    fn warm_up(&mut self) -> anyhow::Result<PathBuf> {
        let begin = Instant::now();
        loop {
            ensure!(self.process.0.try_wait()?.is_none(), "it ended early");
            bytes_of(&self.proc, self.is_write)?; // Fails at once where none are counted.
            if let Some(task) = self.busiest()? {
                pause(WARM_UP)?;
                if self.busiest()?.as_ref() == Some(&task) {
                    return Ok(task);
                }
            }
            ensure!(begin.elapsed() < START_MAX, "the kernel counts no bytes of it");
            pause(LOOK)?;
        }
    }

    /// The thread that has moved most bytes, of those that have not ended.
    fn busiest(&self) -> anyhow::Result<Option<PathBuf>> {
        let tasks = fs::read_dir(self.proc.join("task"))?.flatten().map(|task| task.path());
        let moved = tasks.filter_map(|task| Some((bytes_of(&task, self.is_write).ok()?, task)));
        Ok(moved.filter(|(bytes, _)| *bytes > 0).max().map(|(_, task)| task))
    }

    /// Lets it go on for `time`, and says what it did meanwhile.
    fn take_turn(&self, time: Duration, in_flight: u64) -> anyhow::Result<Took> {
        let turn = || -> anyhow::Result<Took> {
            let (bytes, cpu) = self.so_far()?;
            let begin = Instant::now();
            self.process.send(Signal::CONT);
            pause(time)?;
            self.process.send(Signal::STOP);
            self.await_stop()?;
            let wall = micros(begin.elapsed());
            let (bytes_then, cpu_then) = self.so_far()?;
            let asked = bytes_then.saturating_sub(bytes);
            let (moved, cpu) = (asked.saturating_sub(in_flight), cpu_then.saturating_sub(cpu));
            ensure!(
                moved > 0 && !cpu.is_zero(),
                "the kernel counts {asked} bytes and {cpu:?} of CPU time in a turn of {wall:.0} us"
            );
            Ok(Took { asked, moved, wall, cpu: micros(cpu) })
        };
        let (took, workers) = self.workers.beside(turn);
        let took = took?;
        Ok(Took { cpu: took.cpu + micros(workers), ..took })
    }

    /// Bytes that its thread has moved so far, and CPU time that it has taken.
    fn so_far(&self) -> anyhow::Result<(u64, Duration)> {
        let time = run_time(&self.task.join("schedstat")).context("a time")?;
        Ok((bytes_of(&self.task, self.is_write)?, time))
    }

    fn await_stop(&self) -> anyhow::Result<()> {
        let id = WaitId::Pid(Pid::from_child(&self.process.0));
        // Whoever has ended is left to the handle.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = retry_on_intr(|| waitid(id.clone(), either))?;
        if !status.is_some_and(|status| status.stopped()) {
            bail!("it ended early");
        }
        retry_on_intr(|| waitid(id.clone(), WaitIdOptions::STOPPED))?;
        Ok(())
    }

    /// That the one thread has moved all bytes, but for those by which the program was loaded.
    fn check(&self) -> anyhow::Result<()> {
        let [task, all] = [&self.task, &self.proc].map(|who| bytes_of(who, self.is_write));
        ensure!(task? >= all? / 100 * 99, "it has several threads that move bytes");
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// A turn that is long enough for one with so much in flight, which has moved so much while it
/// warmed up, both in bytes.
fn turn_of(in_flight: u64, moved: u64) -> anyhow::Result<Duration> {
    let turn = WARM_UP.as_secs_f64() * f64::from(IN_FLIGHT_PARTS) * in_flight as f64 / moved as f64;
    ensure!(turn <= TURN_MAX.as_secs_f64(), "it has moved {moved} bytes in {WARM_UP:?}");
    Ok(TURN.max(Duration::from_secs_f64(turn)))
}

/// Has the program say nothing, and end with this one at the latest.
fn prepare(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What stops and continues this program's group is nothing to it.
    command.process_group(0);
    let mortal = end_with_this(Signal::KILL);
    // SAFETY: it makes two system calls, which may be made in the child of a fork.
    unsafe { command.pre_exec(mortal) };
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Bytes that a task, or a process, has asked storage for, or given it.
fn bytes_of(who: &Path, is_write: bool) -> anyhow::Result<u64> {
    let name = if is_write { "write_bytes: " } else { "read_bytes: " };
    let counts = fs::read_to_string(who.join("io"))?;
    let bytes = counts.lines().find_map(|line| line.strip_prefix(name));
    Ok(bytes.context("a count")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> Turns {
        let (rounds, round, end) = (1, TURN, Deadline::default());
        Turns { rounds, round, end, is_write: true, in_flight: 0, core: None }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_ends_or_is_not_there_is_no_runner() {
        let why = |mut command| {
            format!("{:#}", Runner::start(&mut command, &turns()).err().expect("none"))
        };
        assert_eq!(why(shell("exit 3")), "sh: it ended early");
        assert!(why(Command::new("/nobody/here")).starts_with("/nobody/here: "));
    }

    #[test]
    fn a_turn_is_longer_than_what_is_in_flight_takes_but_not_endless() {
        assert_eq!(turn_of(1 << 20, 1 << 30).expect("fast"), TURN);
        assert_eq!(turn_of(1 << 28, 1 << 27).expect("slow"), WARM_UP * 2 * IN_FLIGHT_PARTS);
        turn_of(1 << 24, 1 << 12).expect_err("it stands still");
    }

    #[test]
    fn one_that_ends_while_it_has_its_turn_is_not_waited_for() {
        let child = shell("sleep 0.05").spawn().expect("a shell");
        let proc = Path::new("/proc").join(child.id().to_string());
        let task = proc.clone();
        let (process, workers) = (Process(child), Workers::default());
        let runner = Runner { process, proc, task, is_write: true, workers, turn: TURN };
        pause(TURN * 5).expect("may wait");
        runner.await_stop().expect_err("it has ended");
    }
}
