//! The program `kakehi-bench`: measures Kakehi on this machine, each bench against its peers.
//!
//! The two sides of a ratio alternate within one run. What cannot run is a row that says why.

mod all;
mod child;
mod core_time;
mod delegate;
mod file;
mod files;
mod fio;
mod here;
#[path = "../../cli/src/html.rs"]
mod html;
mod idle;
mod job;
mod kakehi;
mod kernel_workers;
mod machine;
mod meter;
mod options;
mod part;
mod places;
#[path = "../../cli/src/plain.rs"]
mod plain;
mod process;
mod progress;
mod report;
mod rounds;
mod rpc;
mod scratch;
mod side;
mod spread;
mod stream;
mod tasks;
mod values;
mod worker;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser as _, error::ErrorKind};

use crate::{plain::without_numbers, progress::Running};

/// Measures Kakehi on this machine.
#[derive(clap::Parser, Debug)]
#[command(name = "kakehi-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand, Debug)]
enum Bench {
    Delegate(delegate::Args),
    Idle(idle::Args),
    File(file::Args),
    Rpc(rpc::Args),
    Tasks(tasks::Args),
    Here(here::Args),
    All(all::Args),
    #[command(hide = true)]
    Part(part::Args),
}

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let (code, line) = match Arguments::try_parse() {
        Ok(arguments) => match start(&arguments.bench) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(why) => (FAILURE, format!("{why:#}")),
        },
        Err(why) if !why.use_stderr() => {
            // A reader of the help that left early is no failure.
            write!(io::stdout(), "{}", why.render()).ok();
            return ExitCode::SUCCESS;
        }
        Err(why) => (USAGE, usage(&why)),
    };
    let line = without_numbers(&line);
    // As those of `kakehi`.
    let line = if std::env::args_os().any(|word| word == "--json") {
        let (reason, advice) =
            line.rsplit_once("; ").unwrap_or((&line, "see 'kakehi-bench --help'"));
        serde_json::json!({"error": {
            "object": "kakehi-bench", "reason": reason, "advice": advice, "exit_status": code,
        }})
        .to_string()
    } else {
        format!("kakehi-bench: {line}")
    };
    // Nobody is left to tell when standard error is gone; the code still says it.
    writeln!(io::stderr(), "{line}").ok();
    code.into()
}

fn start(bench: &Bench) -> anyhow::Result<()> {
    let _running = name(bench).map(Running::start);
    match bench {
        Bench::Delegate(args) => delegate::delegate(args),
        Bench::Idle(args) => idle::idle(args),
        Bench::File(args) => file::file(args),
        Bench::Rpc(args) => rpc::rpc(args),
        Bench::Tasks(args) => tasks::tasks(args),
        Bench::Here(args) => here::here(args),
        Bench::All(args) => all::all(args),
        Bench::Part(args) => part::play(args),
    }
}

/// The name of a bench that a person has started.
fn name(bench: &Bench) -> Option<&'static str> {
    Some(match bench {
        Bench::Delegate(_) => "delegate",
        Bench::Idle(_) => "idle",
        Bench::File(_) => "file",
        Bench::Rpc(_) => "rpc",
        Bench::Tasks(_) => "tasks",
        Bench::Here(_) => "here",
        _ => return None,
    })
}

/// The parser's several lines as one.
fn usage(why: &clap::Error) -> String {
    if why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no bench was named; see 'kakehi-bench --help'".to_owned();
    }
    let text = why.render().to_string();
    let end = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = text.lines().map(str::trim).take_while(end);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let why = lines.join(" ");
    // As `kakehi` says it: the parser has the nearest word last.
    let why = why.split_once(" tip: ").map_or_else(
        || why.clone(),
        |(why, tip)| match tip.rsplit('\'').nth(1) {
            Some(word) if tip.contains("similar") => format!("{why}, did you mean '{word}'?"),
            _ => why.to_owned(),
        },
    );
    let why = why.strip_prefix("error: ").unwrap_or(&why);
    format!("{why}; see 'kakehi-bench --help'")
}
