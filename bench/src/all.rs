//! `kakehi-bench all`: every figure and table of the four systems Kakehi builds on, measured here,
//! on one page that needs no network.
//!
//! Each bench runs as a child, one after the other, and prints its JSON document. Figures
//! ([`figures`]) are drawn from the cases of these documents; one that lacks cases is marked
//! `[INCOMPLETE]` with the reason.

mod figures;
mod page;
mod plot;
mod results;

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::Signal;

use self::results::Results;
use crate::{machine, options::word, process::end_with_this, progress};

/// Measures every figure and table of the four published systems, and draws them on one page.
///
/// Takes less than 30 minutes on two cores. Run it on a machine that nobody else uses. Exit status:
/// 0, also when a figure is incomplete; 1 when the page cannot be written; 2 when an argument is
/// wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Ends within five minutes: smaller grids, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// The page.
    #[arg(long, value_name = "FILE", default_value = "kakehi-bench.html")]
    report: PathBuf,
    /// Runs these benches alone; figures of others are incomplete.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    only: Vec<Name>,
    /// Folder for the files that are written.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
    /// Keeps the benches' JSON documents in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    keep: Option<PathBuf>,
    /// Draws what an earlier run has kept in this folder, and measures nothing.
    #[arg(long, value_name = "DIR", value_parser = machine::folder)]
    from: Option<PathBuf>,
}

/// A bench that the page is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Name {
    Delegate,
    File,
    Rpc,
    Tasks,
    Idle,
}

/// A child: its bench, its arguments with and without `--quick`, and the seconds after which it
/// begins no case in either.
struct Part {
    name: Name,
    quick: &'static [&'static str],
    full: &'static [&'static str],
    seconds: [u64; 2],
}

/// Whole programs are no figure of the sources.
const CALLS: &str = "overhead,write,read,native/cpu_ns,client/cpu_ns";

const PARTS: [Part; 5] = [
    Part {
        name: Name::Delegate,
        quick: &["--quick", "--only", CALLS],
        full: &["--only", CALLS],
        seconds: [45, 270],
    },
    Part {
        name: Name::File,
        quick: &["--quick"],
        full: &["--quick", "--sizes", "4KiB,16KiB,64KiB,1MiB", "--depths", "1,4,16,64"],
        seconds: [45, 390],
    },
    Part {
        name: Name::Rpc,
        quick: &["--quick"],
        full: &["--quick", "--rounds", "6"],
        seconds: [45, 330],
    },
    Part { name: Name::Tasks, quick: &["--quick"], full: &[], seconds: [40, 300] },
    Part {
        name: Name::Idle,
        quick: &["--quick"],
        full: &["--quick", "--jobs", STEPS, "--depths", STEPS, "--turn", "120ms"],
        seconds: [45, 360],
    },
];
const STEPS: &str = "1,2,4,8,16,32,64";

/// Runs the benches and writes the page.
pub(crate) fn all(args: &Args) -> anyhow::Result<()> {
    let report = &args.report;
    // A wrong name is an error now, not in half an hour.
    let opened = fs::OpenOptions::new().create(true).append(true).open(report);
    opened.with_context(|| report.display().to_string())?;
    if let Some(folder) = &args.keep {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let start = Instant::now();
    let results =
        PARTS.iter().enumerate().map(|(index, part)| (part.name, found(args, index, part)));
    let results: Vec<_> = results.collect();
    let text = page::text(&results, start.elapsed(), args.quick);
    fs::write(report, text).with_context(|| report.display().to_string())?;
    writeln!(io::stderr(), "kakehi-bench: the page is in {}", report.display()).ok();
    Ok(())
}

/// The result of a part, or why there is none.
fn found(args: &Args, index: usize, part: &Part) -> Results {
    let (name, count) = (word(part.name), PARTS.len());
    let kept = |folder: &Path| folder.join(&name).with_extension("json");
    if let Some(folder) = &args.from {
        let text = fs::read_to_string(kept(folder));
        let why = |why| format!("{}: {why}", kept(folder).display());
        return Results::read(text.map_err(why));
    }
    if !args.only.is_empty() && !args.only.contains(&part.name) {
        return Results::read(Err("not one of --only".to_owned()));
    }
    let [quick, full] = part.seconds;
    let seconds = if args.quick { quick } else { full };
    progress::say(&format!("all: {name}, {} of {count}, for about {seconds} s", index + 1));
    let text = run(args, part, seconds);
    if let (Some(folder), Ok(text)) = (&args.keep, &text) {
        // The page is worth more than what it is drawn from.
        fs::write(kept(folder), text).ok();
    }
    Results::read(text)
}

/// Runs a bench; an error is its last word.
fn run(args: &Args, part: &Part, seconds: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut command = Command::new(program);
    command.arg(word(part.name)).arg("--json").arg("--within").arg(format!("{seconds}s"));
    command.args(if args.quick { part.quick } else { part.full });
    // The grid of `idle` is one on a RAM disk.
    if part.name != Name::Idle {
        command.arg("--dir").arg(&args.dir);
    }
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(end_with_this(Signal::TERM)) };
    let output = command.stdin(Stdio::null()).output().map_err(|why| why.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(|why| why.to_string())
    } else {
        Err(format!("{}: {last}", output.status))
    }
}

/// A time for people.
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}
