//! `fsx`: random operations on one file, every read compared with a model in memory.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    harness::{self, Daemon, Folder, Running, note, pause, random, skip, succeed},
    remote::{
        local,
        server::{Scheme, Server},
    },
    strace::Trace,
};

const TIME_MAX: Duration = Duration::from_secs(600);

type Settings = &'static [(&'static str, &'static str)];
const HYBRID: Settings = &[];
const DELEGATE: Settings = &[("KAKEHI_RULES", "/**=delegate")];

/// Relative frequencies of what is done without mapping the file. Nothing of no length: `fsx` takes
/// the refusal of an empty `posix_fallocate` for a file system that has none.
const PLAIN: &str = "
    [weights]
    close_open = 1
    read = 10
    write = 10
    mapread = 0
    mapwrite = 0
    truncate = 4
    fsync = 0.02
    fdatasync = 0.02
    posix_fallocate = 1
    punch_hole = 1
    posix_fadvise = 1
    [opsize]
    min = 1
";
/// Before any weights. After every operation `fsx` asks for the file's size, for which all that is
/// staged is written to the file: without this, nothing is left to be overtaken or missed.
const NO_SIZES: &str = "
    nosizechecks = true
";
/// Every operation there is; seldom those after which nothing is staged until the file is opened
/// again, or ever.
const ALL: &str = "
    [weights]
    close_open = 2
    invalidate = 1
    read = 10
    write = 10
    mapread = 0.2
    mapwrite = 0.2
    truncate = 4
    fsync = 0.1
    fdatasync = 0.1
    posix_fallocate = 1
    punch_hole = 1
    sendfile = 0.5
    posix_fadvise = 1
    copy_file_range = 0.5
    [opsize]
    min = 1
";
/// Nothing that leaves the file to the kernel.
const DATA: &str = "
    [weights]
    close_open = 1
    read = 10
    write = 10
    mapread = 0
    mapwrite = 0
    truncate = 4
    fsync = 0.1
";

#[test]
fn without_mapping_all_reads_are_right() {
    exercise("hybrid", HYBRID, PLAIN, 100_000, 1);
}

#[test]
fn reads_see_what_is_staged() {
    exercise("hybrid, no sizes", HYBRID, &format!("{NO_SIZES}{PLAIN}"), 100_000, 1);
}

#[test]
fn without_mapping_all_reads_are_right_under_delegate() {
    exercise("delegate", DELEGATE, PLAIN, 100_000, 1);
}

#[test]
fn with_mapping_all_reads_are_right() {
    exercise("mapped", HYBRID, ALL, 300, 100);
}

/// Half of the writes are staged, the others go to the kernel around them.
#[test]
fn large_writes_past_staged_ones_keep_their_order() {
    let weights = format!("{NO_SIZES}{PLAIN}");
    exercise("direct", &[("KAKEHI_DIRECT", "16KiB")], &weights, 20_000, 1);
}

#[test]
#[ignore = "half an hour: for `make soak`"]
fn many_seeds_read_right() {
    exercise("hybrid", HYBRID, PLAIN, 100_000, 40);
    exercise("delegate", DELEGATE, PLAIN, 100_000, 20);
    exercise("mapped", HYBRID, ALL, 20_000, 40);
}

#[test]
fn remote_reads_are_right_though_the_server_is_killed() {
    if !is_there() {
        return skip("fsx on a remote file", "not found; 'cargo install fsx' installs it");
    }
    let folder = Folder::new();
    let mut rng = random("fsx and a killed server");
    let mut server = Server::start(&folder, Scheme::Tcp);
    let (config, file) = (configure(&folder, PLAIN), local(&folder).join("file"));
    let log = fs::File::create(folder.join("log")).expect("log");
    let mut command = server.run(&folder);
    command.arg("fsx").args(arguments(&config, 20_000, rng.u32(..), &file)).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("log")).stderr(log);
    let mut program = Running::start(&mut command);
    let mut kills = 0;
    while program.child.try_wait().expect("a child").is_none() && kills < 100 {
        pause(Duration::from_millis(rng.u64(20..400)));
        server.kill_and_restart();
        kills += 1;
    }
    let status = program.wait(TIME_MAX);
    let said = fs::read_to_string(folder.join("log")).expect("log");
    assert!(status.success(), "{status} after {kills} kills: {said}");
    server.end();
}

/// The program itself writes nothing to a delegated file: the daemon does.
#[test]
fn the_kernel_sees_no_write_of_a_delegated_program() {
    if !is_there() || !Trace::is_possible() {
        return skip("fsx", "no strace or no fsx to be watched");
    }
    let folder = Folder::new();
    let mut rng = random("fsx, watched");
    let daemon = Daemon::start(&folder, "job", &[]);
    let (config, file) = (configure(&folder, DATA), folder.join("file"));
    let trace = Trace::new(folder.join("trace"));
    let mut command = trace.command();
    // Not `strace` is delegated, but what it runs.
    command.arg(harness::kakehi()).args(["run", "--socket"]).arg(&daemon.socket);
    command
        .envs(harness::EAGER)
        .envs(DELEGATE.iter().copied())
        .args(["--", "fsx"])
        .args(arguments(&config, 2_000, rng.u32(..), &file));
    succeed(command.current_dir(folder.path()), TIME_MAX);
    assert_eq!(trace.written(&file), [].into());
    let delegated = daemon.status()["summary"]["bytes_delegated"].as_u64();
    assert!(delegated.is_some_and(|bytes| bytes > 1 << 20), "{:#}", daemon.status());
    daemon.end();
}

/// Runs `fsx` with `seeds` seeds under one daemon.
#[track_caller]
fn exercise(name: &str, settings: Settings, weights: &str, operations: u32, seeds: u32) {
    if !is_there() {
        return skip("fsx", "not found; 'cargo install fsx' installs it");
    }
    let folder = Folder::new();
    let mut rng = random(name);
    let daemon = Daemon::start(&folder, "job", &[]);
    let config = configure(&folder, weights);
    for number in 0..seeds {
        // A file that was mapped is not staged to until the job ends.
        let file = folder.join(format!("file{number}"));
        let mut command = Command::new(harness::kakehi());
        command.args(["run", "--socket"]).arg(&daemon.socket);
        command
            .envs(harness::EAGER)
            .envs(settings.iter().copied())
            .args(["--", "fsx"])
            .args(arguments(&config, operations, rng.u32(..), &file));
        succeed(command.current_dir(folder.path()), TIME_MAX);
    }
    let summary = daemon.status()["summary"].clone();
    note(format_args!("fsx {name}: {} delegated", summary["bytes_delegated"]));
    let (delegated, written) = (&summary["bytes_delegated"], &summary["bytes_written"]);
    let share = delegated.as_f64().expect("bytes") / written.as_f64().expect("bytes");
    // What copies leaves the file to the kernel until it is opened again, what maps, for ever.
    assert!(share > 0.05, "{summary:#}");
    daemon.end();
}

fn is_there() -> bool {
    Command::new("fsx").arg("--version").output().is_ok()
}

fn configure(folder: &Folder, weights: &str) -> std::path::PathBuf {
    let path = folder.join("fsx.toml");
    fs::write(&path, weights).expect("a file");
    path
}

fn arguments(config: &Path, operations: u32, seed: u32, file: &Path) -> Vec<String> {
    let (config, file) = (config.display().to_string(), file.display().to_string());
    let (operations, seed) = (operations.to_string(), seed.to_string());
    ["-f", &config, "-N", &operations, "-S", &seed, &file].map(ToOwned::to_owned).into()
}
