//! The command `kakehi`: parses the command line, starts one command, and turns its result into an
//! exit code and, when it failed, one line on standard error.
#![forbid(unsafe_code)]

mod affinity;
mod answer;
mod bench;
mod check;
mod coalesce;
mod config;
mod costs;
mod doctor;
mod drain;
mod env;
mod environment;
mod failure;
mod finding;
mod folders;
mod for_run;
mod html;
mod image;
mod job;
mod jobs;
mod launch;
mod library;
mod loader;
mod log;
mod manual;
mod metrics;
mod mount;
mod multifile;
mod original;
mod output;
mod peers;
mod plain;
mod profile;
mod remote;
mod report;
mod run;
mod serve;
mod settings;
mod show;
mod signals;
mod similar;
mod size;
mod span;
mod starter;
mod status;
mod top;
mod usage;
mod voice;
mod witness;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};

use crate::{
    config::Environment,
    failure::Failure,
    original::Tool,
    usage::{usage, wants_json},
    voice::{Voice, Volume},
};

/// Delegates the file I/O of unmodified programs to a daemon on the same node.
#[derive(clap::Parser, Debug)]
#[command(name = "kakehi", version, arg_required_else_help = true)]
#[command(after_help = "Begin with 'kakehi doctor', then 'kakehi run -- PROGRAM'.")]
struct Arguments {
    /// Says only what went wrong, and what was asked for.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Says each step, too; a daemon that is started logs who comes and goes.
    #[arg(long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
#[command(defer = true)]
enum Command {
    Run(run::Args),
    Serve(serve::Args),
    Status(status::Args),
    Jobs(jobs::Args),
    Top(top::Args),
    Drain(drain::Args),
    Doctor(doctor::Args),
    Check(check::Args),
    Env(env::Args),
    Config(show::Args),
    Multifile(multifile::Args),
    Mount(mount::Args),
    Umount(mount::Unmount),
    Bench(bench::Args),
    #[command(hide = true)]
    Manual(manual::Args),
    /// Writes a byte, for `kakehi doctor`.
    #[command(hide = true)]
    Probe(doctor::Probe),
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if let Some(tool) = Tool::named(&name) {
        return tool.run(&name, arguments.collect());
    }
    if name == witness::COMMAND {
        return witness::testify();
    }
    let environment = Environment::read();
    let parsed = parse();
    let volume = match &parsed {
        Ok(Arguments { quiet: true, .. }) => Volume::Quiet,
        Ok(Arguments { verbose: true, .. }) => Volume::Verbose,
        _ => Volume::Normal,
    };
    Voice::new(volume, wants_json(std::env::args_os()), &environment).set();
    let result = match parsed {
        Ok(arguments) => start(&arguments.command, &environment),
        Err(why) if !why.use_stderr() => {
            output::print(&why.render().to_string()).map(|()| ExitCode::SUCCESS)
        }
        Err(why) => Err(usage(&why, &whole(), std::env::args_os())),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            // The code says it, too, where standard error is gone.
            voice::tell("error", &failure);
            failure.code.into()
        }
    }
}

/// Builds what is known of all commands for help and mistakes only: that takes 0.3 ms.
fn parse() -> Result<Arguments, clap::Error> {
    Arguments::try_parse().or_else(|_| Arguments::from_arg_matches(&whole().try_get_matches()?))
}

/// The command line with the arguments of all commands.
fn whole() -> clap::Command {
    let mut command = Arguments::command();
    command.build();
    command
}

fn start(command: &Command, environment: &Environment) -> Result<ExitCode, Failure> {
    // These are programs like others, whose files may be delegated.
    match command {
        Command::Multifile(_) | Command::Probe(_) => {}
        Command::Run(_) => library::leave_all(environment),
        _ => library::leave(environment),
    }
    let done = match command {
        Command::Run(args) => return run::run(args, environment),
        Command::Serve(args) => return serve::serve(args, environment),
        Command::Status(args) => status::status(args, environment),
        Command::Jobs(args) => jobs::jobs(args, environment),
        Command::Top(args) => top::top(args, environment),
        Command::Drain(args) => drain::drain(args, environment),
        Command::Doctor(args) => doctor::doctor(args, environment),
        Command::Check(args) => check::check(args, environment),
        Command::Env(args) => env::env(args, environment),
        Command::Config(args) => show::config(args, environment),
        Command::Multifile(args) => multifile::multifile(args),
        Command::Mount(args) => mount::mount(args, environment),
        Command::Umount(args) => mount::unmount(args, environment),
        Command::Bench(args) => bench::bench(args),
        Command::Manual(args) => manual::manual(args, Arguments::command()),
        Command::Probe(probe) => probe.write(),
    };
    done.map(|()| ExitCode::SUCCESS)
}
