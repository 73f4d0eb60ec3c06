//! File systems as users have them: distributed ones, one that is slow on purpose, and the local
//! ones of Linux, each mounted by a script of `rigs/`.
//!
//! Requests and system calls are counted where that is possible, because the times of a busy
//! machine prove little.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    acceptance,
    calls::Calls,
    harness::{
        Daemon, Folder, SOON, kakehi, kakehi_run, kept_in_one_of, pause, program, random, run,
        skip, stats, succeed, target, text, wait_for,
    },
    records::{KINDS, Kind, Writer},
};

const TIME_MAX: Duration = Duration::from_secs(300);
/// Exit code of a rig that this machine cannot run.
const UNABLE: i32 = 77;
/// A file system of a busy cluster.
const BUSY: &str = "--metadata 200us --data 50us --servers 8";
/// One whose kernel part knows no attribute for longer than a call.
const FORGETFUL: &str = "--keep 0us";
const HYBRID: &str = "/**=hybrid";
const DELEGATE: &str = "/**=delegate";

/// A mounted file system; unmounted, and its servers ended, when this goes.
pub(crate) struct Rig {
    script: PathBuf,
    folder: PathBuf,
}

impl Rig {
    /// `None`, loudly, where this machine cannot have it.
    #[track_caller]
    pub(crate) fn start(folder: &Folder, name: &str, argument: &str) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("rigs").join(format!("{name}.sh"));
        let rig = Self { script, folder: folder.join(format!("rig-{name}")) };
        let output = run(rig.command("start").arg(argument), TIME_MAX);
        let said = text(&output.stderr);
        if output.status.code() == Some(UNABLE) {
            skip(&format!("{name} {argument}"), said.trim());
            return None;
        }
        assert!(output.status.success(), "{name}: {}: {said}", output.status);
        Some(rig)
    }

    pub(crate) fn mount(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// A new folder there.
    fn make(&self, name: &str) -> PathBuf {
        let path = self.mount().join(name);
        fs::create_dir(&path).expect("a new folder");
        path
    }

    /// Sends a signal to the servers that keep the data.
    #[track_caller]
    fn signal(&self, name: &str) {
        succeed(self.command("signal").arg(name), SOON);
    }

    /// Stops it; the number of requests of each kind, if it counts them.
    #[track_caller]
    pub(crate) fn stop(self) -> BTreeMap<String, u64> {
        succeed(&mut self.command("stop"), TIME_MAX);
        assert!(!self.folder.exists(), "something is left behind");
        let counts = self.folder.with_extension("counts");
        let lines = fs::read_to_string(counts).unwrap_or_default();
        let lines = lines.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(kind, count)| (kind.to_owned(), count.parse().expect("a number"))).collect()
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new("sh");
        command.env("SLOWFS", target().join("release/slowfs"));
        command.arg(&self.script).arg(what).arg(&self.folder);
        command
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.folder.exists() {
            self.command("stop").output().ok();
        }
    }
}

// ---- requests

/// Requests that program `pattern` makes of slowfs, natively and under `kakehi run`.
pub(crate) fn requests(
    options: &str,
    pattern: &[&str],
    flags: &[&str],
) -> Option<[BTreeMap<String, u64>; 2]> {
    let folder = Folder::new();
    let mut found = Vec::new();
    for is_wrapped in [false, true] {
        let rig = Rig::start(&folder, "slowfs", options)?;
        let files = rig.make("files");
        let mut command = match is_wrapped {
            true => in_started_job(&folder, flags),
            false => Command::new("env"),
        };
        // As users have it: the first small writes of a file are the kernel's.
        command.env_remove("KAKEHI_STAGE_AFTER");
        succeed(command.arg(program("pattern")).arg(&files).args(pattern), TIME_MAX);
        found.push(rig.stop());
    }
    found.try_into().ok()
}

/// `kakehi run FLAGS --` whose program starts when the daemon serves. Until then writes are the
/// kernel's, on a busy machine hundreds of them.
fn in_started_job(folder: &Folder, flags: &[&str]) -> Command {
    let script = "until \"$0\" status >/dev/null 2>&1; do sleep 0.01; done; exec \"$@\"";
    let mut command = kakehi_run(folder, flags);
    command.args(["sh", "-c", script]).arg(kakehi());
    command
}

#[test]
fn small_writes_take_few_requests_of_a_slow_file_system() {
    for (len, least) in [("100", 20), ("4096", 10)] {
        let Some([native, wrapped]) = requests(BUSY, &["1", "5000", len], &[]) else { return };
        let gain = native["write"] / wrapped["write"];
        assert!(gain >= least, "{len}: {native:?} {wrapped:?}");
    }
}

/// A program that opens a file, writes it by one call, and closes it needs no further requests.
#[test]
fn file_that_is_written_once_takes_the_requests_it_takes_natively() {
    let pattern = ["200", "1", "4096"];
    let Some([native, wrapped]) = requests(FORGETFUL, &pattern, &[]) else { return };
    // Programs and the shell look at folders, so those on attributes are not the same to one.
    for kind in ["open", "write", "close", "change", "sync", "read"] {
        assert_eq!(native[kind], wrapped[kind], "{kind}: {native:?} {wrapped:?}");
    }
    for kind in ["attributes", "lookup"] {
        assert!(wrapped[kind] < native[kind] + 20, "{kind}: {native:?} {wrapped:?}");
    }
}

/// The kernel takes reads in any order for random, and each would be a request.
#[test]
fn small_files_of_a_multifile_are_read_by_few_requests_in_any_order() {
    const FILES: u64 = 1024;
    const READ: &str = "import os, random, sys; folder = sys.argv[1]
names = os.listdir(folder); random.shuffle(names)
print(sum(len(open(f'{folder}/{name}', 'rb', 0).read()) for name in names))";
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", BUSY) else { return };
    let local = folder.join("out");
    fs::create_dir(&local).expect("a folder");
    let coalesced = format!("{}={}/kept.sion", local.display(), rig.mount().display());
    let flags = ["--coalesce", &coalesced];
    let mut made = kakehi_run(&folder, &flags);
    let pattern = [FILES.to_string(), "1".to_owned(), "4096".to_owned()];
    succeed(made.arg(program("pattern")).arg(&local).args(pattern), TIME_MAX);
    // Another daemon opens the physical files: that drops what the kernel has of them.
    let mut read = kakehi_run(&folder, &flags);
    let read = succeed(read.args(["python3", "-c", READ]).arg(&local), TIME_MAX);
    assert_eq!(read.trim(), (FILES * 4096).to_string());
    let requests = rig.stop()["read"];
    assert!(requests < FILES / 4, "{requests} read requests");
}

// ---- content

#[test]
fn tar_writes_the_same_bytes_on_distributed_file_systems() {
    workloads(&["tar"], &[&[]]);
}

#[test]
#[ignore = "half an hour: for `make soak`"]
fn every_workload_writes_the_same_bytes_on_distributed_file_systems() {
    let all = ["lammps", "openfoam", "qe", "python", "git", "tar", "sqlite"];
    workloads(&all, &[&[], &["--rule", DELEGATE]]);
}

fn workloads(names: &[&str], flags: &[&[&str]]) {
    for name in ["moosefs", "glusterfs"] {
        let folder = Folder::new();
        let Some(rig) = Rig::start(&folder, name, "") else { continue };
        for workload in names {
            acceptance::compare_in(&folder, &rig.mount(), workload, flags);
        }
        rig.stop();
    }
}

/// Files of all shapes, read back past the daemon.
#[test]
fn files_of_all_shapes_have_their_bytes_on_every_file_system() {
    let rigs = [
        ("moosefs", ""),
        ("glusterfs", ""),
        ("slowfs", BUSY),
        ("loop", "xfs"),
        ("loop", "btrfs"),
        ("loop", "ext4"),
    ];
    for (name, argument) in rigs {
        let folder = Folder::new();
        let Some(rig) = Rig::start(&folder, name, argument) else { continue };
        for (index, shape) in SHAPES.iter().enumerate() {
            for rule in [HYBRID, DELEGATE] {
                let files = rig.make(&format!("{index}-{}", rule.len()));
                let mut command = kakehi_run(&folder, &["--rule", rule]);
                command.arg(program("pattern")).arg(&files).args(shape.0);
                let output = run(&mut command, TIME_MAX);
                let said = text(&output.stdout) + &text(&output.stderr);
                if shape.1 && said.contains("Invalid argument") {
                    continue; // A file system without O_DIRECT.
                }
                assert!(output.status.success(), "{name} {argument} {shape:?}: {said}");
                check_pattern(&files, shape.0);
                fs::remove_dir_all(&files).expect("a folder");
            }
        }
        rig.stop();
    }
}

/// Arguments of `pattern`, and whether a file system may refuse them.
const SHAPES: [(&[&str], bool); 5] = [
    (&["20", "1", "4096"], false),
    (&["1", "3000", "100"], false),
    (&["2", "300", "40000"], false),
    (&["1", "40", "1048576"], false),
    (&["1", "200", "8192", "direct"], true),
];

#[track_caller]
fn check_pattern(folder: &Path, shape: &[&str]) {
    let number = |index: usize| shape[index].parse::<usize>().expect("a number");
    let (files, writes, len) = (number(0), number(1), number(2));
    for file in 0..files {
        let found = fs::read(folder.join(file.to_string())).expect("a file");
        assert_eq!(found.len(), writes * len, "{shape:?}");
        let is_right =
            |(at, byte): (usize, &u8)| usize::from(*byte) == (file + at / len + at) % 251;
        let wrong = found.iter().enumerate().find(|one| !is_right(*one));
        assert!(wrong.is_none(), "{shape:?}: file {file}: {wrong:?}");
    }
}

// ---- what is delegated

/// Returns the statistics of a run of program `pattern` in `files`.
fn told(folder: &Folder, files: &Path, pattern: &[&str], settings: &[(&str, &str)]) -> Value {
    let told = folder.join("told");
    let flags = ["--stats", told.to_str().expect("UTF-8")];
    let mut command = kakehi_run(folder, &flags);
    command.envs(settings.iter().copied());
    succeed(command.arg(program("pattern")).arg(files).args(pattern), TIME_MAX);
    check_pattern(files, pattern);
    let documents = stats(&told);
    fs::remove_file(told).expect("a file");
    documents.into_iter().next_back().expect("a document")
}

/// With the memory that is granted for it, and not where the file system is as fast.
#[test]
fn large_writes_are_staged_where_the_file_system_is_slower_than_a_copy() {
    let pattern = ["1", "48", "1048576"];
    let granted = [("KAKEHI_STAGING", "128MiB"), ("KAKEHI_MEMORY", "4GiB")];
    let folder = Folder::new();
    // The faster one is slow for who has granted memory for a burst.
    for (slow, len_min) in [("--bandwidth 100", 40 << 20), ("--bandwidth 200", 36 << 20)] {
        let options = format!("{slow} --servers 2");
        let Some(rig) = Rig::start(&folder, "slowfs", &options) else { return };
        let said = told(&folder, &rig.make("files"), &pattern, &granted);
        let staged = said["bytes_staged"].as_u64();
        assert!(staged.is_some_and(|len| len >= len_min), "{slow}: {said:#}");
        // Natively 48; the daemon may come before a whole megabyte is there.
        let counts = rig.stop();
        assert!(counts["write"] <= 80, "{slow}: {counts:?}");
    }
    let memory = tempfile::tempdir_in("/dev/shm").expect("a folder");
    // With other work on every core memory may seem slow.
    kept_in_one_of(4, || {
        let said = told(&folder, memory.path(), &pattern, &granted);
        said["bytes_undelegated"]["large"] == 48 << 20
    });
}

/// The memory for it comes when it is asked for, and goes when the file is closed.
#[test]
fn memory_for_a_burst_is_had_by_demand_and_given_back() {
    const MEGABYTES: u64 = 64;
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "--bandwidth 50") else { return };
    let file = rig.make("files").join("file");
    let burst = |memory: &str, is_enough: bool| {
        let mut command = kakehi_run(&folder, &[]);
        command.env("KAKEHI_MEMORY", memory).arg(program("burst")).arg(&file);
        let output = run(command.arg(MEGABYTES.to_string()), TIME_MAX);
        assert!(output.status.success(), "{memory}: {output:?}");
        let said = text(&output.stdout);
        let said: Vec<u64> =
            said.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let [took_ms, before_kb, after_kb] = said[..] else { panic!("{said:?}") };
        assert_eq!(before_kb > MEGABYTES << 9, is_enough, "{memory}: {said:?}");
        assert!(after_kb < 33 << 10, "{memory}: {said:?}");
        let found = fs::read(&file).expect("a file");
        assert_eq!(found.len() as u64, MEGABYTES << 20);
        let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == (at >> 20) % 251;
        assert!(found.iter().enumerate().all(is_right), "{memory}");
        took_ms
    };
    // The file system takes 1.3 s for them; a machine may take long to find so much memory.
    kept_in_one_of(4, || burst("4GiB", true) < 600);
    assert!(burst("64MiB", false) >= 600);
    rig.stop();
}

/// A write past the page cache is staged, and has the results and the bytes it has natively.
#[test]
fn direct_writes_are_delegated_and_end_as_they_do_natively() {
    for system in ["ext4", "xfs"] {
        let folder = Folder::new();
        let Some(rig) = Rig::start(&folder, "loop", system) else { return };
        for rule in [HYBRID, DELEGATE] {
            for how in [&[][..], &["libaio"]] {
                let files = rig.make(&format!("{}-{}", rule.len(), how.len()));
                let told = folder.join("told");
                let flags = ["--rule", rule, "--stats", told.to_str().expect("UTF-8")];
                let found =
                    [Command::new("env"), kakehi_run(&folder, &flags)].map(|mut command| {
                        let file = files.join("file");
                        let output =
                            run(command.arg(program("direct")).arg(&file).args(how), TIME_MAX);
                        assert!(output.status.success(), "{system} {rule}: {output:?}");
                        (text(&output.stdout), fs::read(&file).expect("a file"))
                    });
                let [(native_said, native), (said, bytes)] = found;
                assert_eq!(said, native_said, "{system} {rule} {how:?}");
                assert!(bytes == native, "{system} {rule} {how:?}");
                let said = stats(&told).into_iter().next_back().expect("a document");
                fs::remove_file(told).expect("a file");
                let staged = said["bytes_staged"].as_u64();
                assert!(staged.is_some_and(|len| len > 400 << 10), "{said:#}");
            }
        }
        rig.stop();
    }
}

// ---- faults

#[test]
fn kills_lose_nothing_on_distributed_file_systems() {
    kill_on_distributed(5);
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn many_kills_lose_nothing_on_distributed_file_systems() {
    kill_on_distributed(40);
}

/// Kills clients and daemons by turns, while they write.
fn kill_on_distributed(rounds: usize) {
    let mut rng = random("killed on distributed file systems");
    for (name, rule) in [("moosefs", HYBRID), ("glusterfs", HYBRID), ("glusterfs", DELEGATE)] {
        let folder = Folder::new();
        let Some(rig) = Rig::start(&folder, name, "") else { continue };
        for round in 0..rounds {
            let mut daemon = Daemon::start(&folder, &format!("job{round}"), &[]);
            daemon.set("KAKEHI_RULES", rule);
            let kind = KINDS[round % KINDS.len()];
            let len = if matches!(kind, Kind::Blocks | Kind::Spread) { 4096 } else { 64 };
            let path = rig.make(&format!("round{round}")).join("out");
            let log = folder.join(format!("accepted{round}"));
            let count = if round % 2 == 0 { 0 } else { 2_000 };
            let mut writer = Writer::start_logging(&daemon, kind, (path, log), count, len);
            assert!(writer.reaches(1, SOON), "{name}: nothing is accepted");
            pause(Duration::from_micros(rng.u64(..20_000)));
            if round % 2 == 0 {
                writer.running.signal(Signal::KILL);
                writer.running.wait(SOON);
                let accepted = writer.accepted();
                let is_complete = wait_for(SOON, || writer.missing(&accepted).is_empty());
                assert!(is_complete, "{name} {rule} {kind:?}: {:?}", writer.missing(&accepted));
                daemon.end();
            } else {
                daemon.kill();
                assert!(writer.running.wait(SOON).success(), "{name} {rule} {kind:?}");
                let missing = writer.missing(&writer.accepted());
                assert!(missing.is_empty(), "{name} {rule} {kind:?}: {missing:?}");
                fs::remove_dir_all(&daemon.socket).expect("what a killed daemon leaves");
            }
        }
        rig.stop();
    }
}

#[test]
fn servers_that_stand_still_cost_time_only() {
    stand_still(Duration::from_secs(2));
}

#[test]
#[ignore = "half a minute: for `make soak`"]
fn servers_that_stand_still_for_long_cost_time_only() {
    stand_still(Duration::from_secs(10));
}

fn stand_still(time: Duration) {
    for name in ["moosefs", "glusterfs"] {
        let folder = Folder::new();
        let Some(rig) = Rig::start(&folder, name, "") else { continue };
        let daemon = Daemon::start(&folder, "job", &[]);
        let (path, log) = (rig.make("files").join("out"), folder.join("accepted"));
        let count = 20_000;
        let mut writer = Writer::start_logging(&daemon, Kind::Blocks, (path, log), count, 4096);
        assert!(writer.reaches(1, SOON), "{name}: nothing is accepted");
        rig.signal("STOP");
        pause(time);
        rig.signal("CONT");
        assert!(writer.running.wait(TIME_MAX).success(), "{name}");
        let accepted = writer.accepted();
        assert_eq!(accepted.len() as u64, count, "{name}");
        assert!(writer.missing(&accepted).is_empty(), "{name}");
        daemon.end();
        rig.stop();
    }
}

/// A writer gets the error at the latest when the file is closed, as natively.
#[test]
fn killed_servers_are_reported_to_whoever_has_written() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "glusterfs", "") else { return };
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut programs = [Calls::wrapped(&daemon), Calls::start(&mut Command::new(program("calls")))];
    let files = ["wrapped", "native"].map(|name| rig.make(name).join("out"));
    let fds: Vec<_> = programs
        .iter_mut()
        .zip(&files)
        .map(|(program, path)| {
            let fd = program.get(&format!("open {} wct", path.display()));
            assert_eq!(program.get(&format!("write {fd} before")), 6);
            assert_eq!(program.ask(&format!("fsync {fd}")), "0");
            fd
        })
        .collect();
    rig.signal("KILL");
    for (program, fd) in programs.iter_mut().zip(fds) {
        let answers = ["write FD behind", "fsync FD", "close FD"]
            .map(|call| program.ask(&call.replace("FD", &fd.to_string())));
        assert!(answers.iter().any(|answer| answer.starts_with('E')), "{answers:?}");
        program.end();
    }
    daemon.end_by(0);
    rig.stop();
}

/// Several servers of one root, where that is on a file system that other machines share.
#[test]
fn several_servers_of_a_root_on_glusterfs_pass_their_tests() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "glusterfs", "") else { return };
    let mut tests = Command::new(env::current_exe().expect("a program"));
    tests.args(["remote_servers::", "--test-threads=2"]).env("TMPDIR", rig.mount());
    let said = succeed(&mut tests, 2 * TIME_MAX);
    assert!(said.contains("7 passed; 0 failed"), "{said}");
    rig.stop();
}
