//! Whole programs as a user runs them: default settings, from their start to their end, in turn as
//! they are (`native`), in a job (`kakehi`), and with a library that gathers what they write
//! (`gather`, `programs/gather.c`). CPU time is the program's and the daemon's together.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    QUICK, QUICK_DIVISOR, QUICK_PROGRAMS,
    volumes::{Volumes, succeed},
};
use crate::{
    kakehi::{Daemon, Environment},
    options::{Common, Deadline, Only},
    process::cpu_of_children,
    report::Report,
    rounds::{Rounds, ratio, spread},
    scratch::Scratch,
};

const PREFIX: &str = "program";
const SIDES: [&str; 3] = ["native", "kakehi", "gather"];
/// The daemon's default.
pub(super) const IDLE: &str = "poll-idle";

/// The command of a case; `TO` is an empty folder, `FROM` has the prepared files.
enum What {
    /// `programs/calls.c`: verb, size, a number that `--quick` divides, processes.
    Calls(&'static str, u64, u64, u64),
    Script(&'static str),
}

use What::{Calls, Script};

const MB: u64 = 1_000_000;

const CASES: [(&str, What); 25] = [
    ("write/4KiB", Calls("write", 4 << 10, 200 * MB, 1)),
    ("write/512B", Calls("write", 512, 100 * MB, 1)),
    ("fprintf/100B", Calls("print", 0, 2_000_000, 0)),
    ("write/16KiB", Calls("write", 16 << 10, 200 * MB, 1)),
    ("write/64KiB", Calls("write", 64 << 10, 200 * MB, 1)),
    ("write/256KiB", Calls("write", 256 << 10, 200 * MB, 1)),
    ("write/1MiB", Calls("write", 1 << 20, 200 * MB, 1)),
    ("write/16MiB", Calls("write", 16 << 20, 200 * MB, 1)),
    ("first/4MiB", Calls("write", 4 << 10, 4 << 20, 0)),
    ("write/4KiB/2processes", Calls("write", 4 << 10, 100 * MB, 2)),
    ("write/4KiB/4processes", Calls("write", 4 << 10, 100 * MB, 4)),
    ("files", Calls("files", 0, 5_000, 0)),
    ("tar", Script("tar -xf \"$FROM/tree.tar\" -C \"$TO\"")),
    ("git", Script("git clone -q --no-hardlinks \"$FROM/tree\" \"$TO/tree\"")),
    ("cp", Script("cp -r \"$FROM/tree\" \"$TO\"")),
    ("python", Script(PYTHON)),
    ("stat", Calls("stat", 0, 400_000, 0)),
    ("fstat", Calls("fstat", 0, 400_000, 0)),
    ("access", Calls("access", 0, 400_000, 0)),
    ("lseek", Calls("lseek", 0, 400_000, 0)),
    ("pread/4KiB", Calls("pread", 0, 400_000, 0)),
    ("open+read+close", Calls("open", 0, 200_000, 0)),
    ("true", Script("exec true")),
    ("exec", Script("i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done")),
    ("append", Script("i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done >>\"$TO/a\"")),
];

/// A program that imports a hundred modules.
const PYTHON: &str = "exec python3 -c \"
import importlib, sys
names = [name for name in sorted(sys.stdlib_module_names) if name[0] != '_']
names = [name for name in names if name not in ('antigravity', 'this', 'idlelib', 'turtle')]
for name in names[:100]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
\"";

/// Files to copy, unpack, and clone.
const PREPARE: &str = "mkdir tree && cd tree && for d in $(seq 30); do mkdir $d &&
    head -c 409600 /dev/urandom | split -b 4096 - $d/ || exit 1; done &&
    tar -cf ../tree.tar . && git init -q . && git add . &&
    git -c user.name=bench -c user.email=bench@localhost commit -q -m tree";

/// How often, how much of it, and until when.
pub(super) struct Extent {
    pub(super) rounds: usize,
    pub(super) divisor: u64,
    pub(super) end: Deadline,
}

impl Extent {
    pub(super) fn of(common: &Common) -> Self {
        let [_, whole] = QUICK;
        let end = common.end(QUICK_PROGRAMS, whole);
        match common.quick {
            true => Self { rounds: common.rounds_or(2), divisor: QUICK_DIVISOR, end },
            false => Self { rounds: common.rounds_or(9), divisor: 1, end },
        }
    }
}

/// Times of a run, ms.
#[derive(Clone, Copy)]
struct Time {
    wall: f64,
    cpu: f64,
}

type Times = Rounds<Time>;

/// True if any case is to be measured.
pub(super) fn is_wanted(only: &Only) -> bool {
    CASES.iter().any(|(name, _)| only.wants([format!("{PREFIX}/{name}")]))
}

/// Setting that all rows of whole programs share.
pub(super) struct Setting<'a> {
    pub(super) only: &'a Only,
    pub(super) tools: Result<Tools, String>,
    pub(super) volumes: Volumes,
    pub(super) extent: &'a Extent,
}

/// Measures every case on every file system.
pub(super) fn measure(report: &mut Report, with: &Setting<'_>) {
    let Setting { only, tools, volumes, extent } = with;
    for (name, what) in &CASES {
        if !only.wants([format!("{PREFIX}/{name}")]) {
            continue;
        }
        for volume in &volumes.all {
            let name = format!("{PREFIX}/{name}/{}", volume.name);
            let ready = tools.as_ref().map_err(String::clone);
            let ready = ready.and_then(|tools| Ok((tools, volume.folder.clone()?)));
            let times = match ready {
                Ok((tools, folder)) => tools.rounds(what, &folder.join("to"), extent),
                Err(why) => SIDES.map(|_| Err(why.clone())),
            };
            say(report, &name, &times);
        }
    }
}

/// The environment that every case needs.
pub(super) struct Tools {
    daemon: Daemon,
    environment: Environment,
    calls: Result<PathBuf, String>,
    gather: Result<PathBuf, String>,
    from: Result<(), String>,
    scratch: Scratch,
}

impl Tools {
    pub(super) fn make() -> Result<Self, String> {
        let scratch = Scratch::create_in(Path::new(crate::machine::MEMORY));
        let scratch = scratch.map_err(|why| why.to_string())?;
        let daemon = Daemon::start(IDLE, None).map_err(|why| format!("{why:#}"))?;
        let environment = daemon.environment(None).map_err(|why| format!("{why:#}"))?;
        let compile = |name, text, flags: &[&str]| compile(scratch.path(), name, text, flags);
        let calls = compile("calls", include_str!("../../programs/calls.c"), &[]);
        let shared = ["-shared", "-fPIC"];
        let gather = compile("gather", include_str!("../../programs/gather.c"), &shared);
        let from = succeed(Command::new("sh").args(["-c", PREPARE]).current_dir(scratch.path()));
        Ok(Self { daemon, environment, calls, gather, from, scratch })
    }

    /// `programs/calls.c`, to do this.
    pub(super) fn calls(&self, verb: &str) -> Result<Command, String> {
        let mut command = Command::new(self.calls.as_ref()?);
        command.arg(verb).env_remove("LD_PRELOAD").stdin(Stdio::null());
        Ok(command)
    }

    /// Every side in turn, after one round that is not counted.
    fn rounds(&self, what: &What, to: &Path, extent: &Extent) -> [Times; 3] {
        let mut times = [const { Times::Ok(Vec::new()) }; 3];
        for round in 0..=extent.rounds {
            for (side, times) in SIDES.iter().zip(&mut times) {
                let Ok(list) = times else { continue };
                let run = match extent.end.check() {
                    Err(_) if !list.is_empty() => continue,
                    begun => begun.and_then(|()| self.run(side, what, to, extent.divisor)),
                };
                match run {
                    Ok(_) if round == 0 => {}
                    Ok(time) => list.push(time),
                    Err(why) => *times = Err(why),
                }
            }
        }
        times
    }

    fn run(&self, side: &str, what: &What, to: &Path, divisor: u64) -> Result<Time, String> {
        let mut command = self.command(what, to, divisor)?;
        match side {
            "kakehi" => drop(command.envs(&self.environment)),
            "gather" => drop(command.env("LD_PRELOAD", self.gather.as_ref()?)),
            _ => {}
        }
        fs::create_dir_all(to).map_err(|why| why.to_string())?;
        let daemon = || self.daemon.cpu_time().map_err(|why| format!("{why:#}"));
        let (cpu, daemons, start) = (cpu_of_children(), daemon()?, Instant::now());
        let done = succeed(&mut command);
        let wall = start.elapsed();
        let cpu = cpu_of_children().saturating_sub(cpu) + daemon()?.saturating_sub(daemons);
        fs::remove_dir_all(to).map_err(|why| why.to_string())?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        done.map(|()| Time { wall: ms(wall), cpu: ms(cpu) })
    }

    fn command(&self, what: &What, to: &Path, divisor: u64) -> Result<Command, String> {
        let mut command = match what {
            Script(script) => {
                self.from.clone()?;
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                command.env("FROM", self.scratch.path()).env("TO", to);
                command
            }
            Calls(verb, size, count, processes) => {
                let mut command = self.calls(verb)?;
                // The first bytes are few as they are.
                let count =
                    if *processes == 0 && *verb == "write" { *count } else { count / divisor };
                if *verb == "write" {
                    let count = count / size * size;
                    command.args([size, &count, processes.max(&1)].map(u64::to_string));
                } else {
                    command.arg(count.to_string());
                }
                command.arg(to.join("file"));
                command
            }
        };
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        Ok(command)
    }
}

/// Compiles a C program, where there is a compiler.
fn compile(folder: &Path, name: &str, text: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let (source, made) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).map_err(|why| why.to_string())?;
    succeed(Command::new("cc").arg("-O2").args(flags).arg("-o").args([&made, &source]))?;
    Ok(made)
}

fn say(report: &mut Report, name: &str, times: &[Times; 3]) {
    if let [Err(why), Err(_), _] = times {
        report.row(name, "ms", Err(why.clone()));
        return;
    }
    for (side, times) in SIDES.iter().zip(times) {
        report.row(format!("{name}/{side}"), "ms", spread(times, |time| time.wall));
        if times.is_ok() {
            report.row(format!("{name}/{side}/cpu"), "ms", spread(times, |time| time.cpu));
        }
    }
    let [native, kakehi, gather] = times;
    report.ratio(name, ratio(native, kakehi, |time| time.wall));
    report.ratio(format!("{name}/cpu"), ratio(native, kakehi, |time| time.cpu));
    report.ratio(format!("{name}/gather"), ratio(gather, kakehi, |time| time.wall));
}
