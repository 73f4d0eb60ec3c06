//! Several servers for one job: how processes and files are spread over them, and what happens when
//! one is away.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{fd::OwnedFd, process::Signal};

use crate::{
    harness::{
        Folder, Running, SOON, kakehi, kakehi_run, pause, program, random, run, skip, succeed,
        text, wait_for,
    },
    remote::{
        LONG, check_rounds, local,
        server::{Scheme, reserve_port},
        start_rounds,
    },
};

/// A server that leaves its address in `servers`, and which root it serves.
struct Gate {
    running: Running,
    url: String,
    folder: PathBuf,
    root: String,
    /// Bound, so that nobody else gets the port while the server is away.
    _reserved: OwnedFd,
}

impl Gate {
    #[track_caller]
    fn start(folder: &Folder, root: &str) -> Self {
        Self::start_over(folder, root, Scheme::Tcp)
    }

    #[track_caller]
    fn start_over(folder: &Folder, root: &str, scheme: Scheme) -> Self {
        fs::create_dir_all(folder.join("servers")).expect("folder");
        fs::create_dir_all(folder.join(root)).expect("root");
        let folder = folder.path().to_owned();
        let (port, _reserved) = reserve_port();
        let (url, root) = (scheme.url("127.0.0.1", port), root.to_owned());
        let gate =
            Self { running: Self::launch(&folder, &root, &url), url, folder, root, _reserved };
        assert_eq!(gate.published(), gate.url);
        gate
    }

    fn launch(folder: &Path, root: &str, url: &str) -> Running {
        let mut command = Command::new(kakehi());
        command.env("XDG_RUNTIME_DIR", folder).env_remove("KAKEHI_JOB").current_dir(folder);
        command.args(["serve", "--listen", url, "--root", root, "--key", "key"]);
        command.args(["--address-file", "servers"]).stdin(Stdio::null()).stderr(Stdio::null());
        Running::start(&mut command)
    }

    /// The address that the server has left.
    #[track_caller]
    fn published(&self) -> String {
        let suffix = format!(".{}", self.running.child.id());
        let mut url = None;
        let found = wait_for(SOON, || {
            let entries = fs::read_dir(self.folder.join("servers")).expect("folder").flatten();
            let mut names = entries.filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.ends_with(&suffix) && !name.starts_with('.')
            });
            url = names.next().and_then(|entry| fs::read_to_string(entry.path()).ok());
            url.is_some()
        });
        assert!(found, "the server did not start");
        url.expect("found").trim().to_owned()
    }

    fn kill(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait(SOON);
    }

    /// Starts it anew at the same address.
    #[track_caller]
    fn restart(&mut self) {
        self.running = Self::launch(&self.folder, &self.root, &self.url);
        assert_eq!(self.published(), self.url);
    }

    fn end(mut self) {
        self.running.signal(Signal::TERM);
        assert!(self.running.wait(SOON).success());
    }
}

/// `kakehi run` with the root of all servers at `local`.
fn run_over(folder: &Folder, flags: &[&str]) -> Command {
    let path = |name: &str| folder.join(name).display().to_string();
    let (servers, key, map) = (path("servers"), path("key"), format!("{}=/", path("local")));
    let remote = ["--remote", &servers, "--key", &key, "--map", &map];
    kakehi_run(folder, &[&remote[..], flags].concat())
}

/// Servers with a root each, in the order of their addresses, so that it shows who served what.
fn start_apart(folder: &Folder) -> Vec<Gate> {
    let mut gates: Vec<_> =
        ["root0", "root1", "root2"].map(|root| Gate::start(folder, root)).into();
    gates.sort_by(|one, other| one.url.cmp(&other.url));
    gates
}

#[test]
fn a_server_ends_in_order_from_when_its_address_is_known() {
    let folder = Folder::new();
    for name in ["servers", "root"] {
        fs::create_dir(folder.join(name)).expect("folder");
    }
    // The moment is short.
    for _ in 0..20 {
        let (port, _reserved) = reserve_port();
        let url = format!("tcp://127.0.0.1:{port}");
        let mut running = Gate::launch(folder.path(), "root", &url);
        let end = Instant::now() + SOON;
        while fs::read_dir(folder.join("servers")).expect("folder").next().is_none() {
            assert!(Instant::now() < end, "the server did not start");
            thread::yield_now();
        }
        running.signal(Signal::TERM);
        assert!(running.wait(SOON).success());
    }
}

#[test]
fn each_rank_has_its_server() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        return skip("ranks over several servers", "no mpirun");
    }
    let folder = Folder::new();
    let gates = start_apart(&folder);
    let mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"];
    // Not by the shell's `>`: these servers have no root in common, and the view asks one of them.
    let rank = "$OMPI_COMM_WORLD_RANK";
    let script = &format!("echo {rank} | tee \"$0\"/out.{rank} >/dev/null");
    let (program, place) = (["sh", "-c", script], local(&folder));
    // Around the launcher, and behind it.
    succeed(run_over(&folder, &["--spread", "rank"]).args(mpirun).args(program).arg(&place), LONG);
    let check = || {
        for rank in 0..4 {
            let file = folder.join(&gates[rank % 3].root).join(format!("out.{rank}"));
            assert_eq!(fs::read_to_string(&file).ok(), Some(format!("{rank}\n")), "{file:?}");
            fs::remove_file(file).expect("there");
        }
    };
    check();
    let behind = run_over(&folder, &["--spread", "rank"]);
    let mut command = Command::new(mpirun[0]);
    command.args(&mpirun[1..]).arg(behind.get_program()).args(behind.get_args());
    command.env("XDG_RUNTIME_DIR", folder.path()).env("KAKEHI_JOB", "ranks");
    succeed(command.args(program).arg(&place), LONG);
    check();
    gates.into_iter().for_each(Gate::end);
}

#[test]
fn each_file_has_its_server_whoever_asks() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let gates = start_apart(&folder);
    let write = "cd \"$0\"; for i in $(seq 60); do echo $i >f$i; done";
    succeed(run_over(&folder, &[]).args(["sh", "-c", write]).arg(local(&folder)), LONG);
    let counts: Vec<usize> = gates
        .iter()
        .map(|gate| {
            let entries = fs::read_dir(folder.join(&gate.root)).expect("root").flatten();
            entries.filter(|entry| entry.file_type().expect("type").is_file()).count()
        })
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 60, "{counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    // Another job, and a process with a rank.
    let read = "cd \"$0\"; for i in $(seq 60); do cat f$i; echo $i >>f$i; done";
    let mut command = run_over(&folder, &[]);
    let read = succeed(
        command.env("SLURM_PROCID", "1").args(["sh", "-c", read]).arg(local(&folder)),
        LONG,
    );
    assert!(read.lines().map(str::parse).eq((1..=60).map(Ok)), "{read}");
    gates.into_iter().for_each(Gate::end);
}

#[test]
fn servers_that_are_away_are_done_without_and_named() {
    let folder = Folder::new();
    fs::create_dir(folder.join("servers")).expect("folder");
    let said = |output: &std::process::Output| text(&output.stderr);
    let output = run(run_over(&folder, &[]).arg("true"), SOON);
    let lines = said(&output);
    assert_eq!(output.status.code(), Some(125), "{lines}");
    assert!(lines.contains("no server has left its address here"), "{lines}");

    let mut live = Gate::start(&folder, "root");
    let (port, _reserved) = reserve_port();
    let dead = format!("tcp://127.0.0.1:{port}");
    fs::write(folder.join("servers/killed.1"), format!("{dead}\n")).expect("written");
    let script = "cd \"$0\"; for i in $(seq 20); do echo $i >f$i; cat f$i; done | wc -l";
    let mut command = run_over(&folder, &[]);
    let output = run(command.args(["sh", "-c", script]).arg(local(&folder)), LONG);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(text(&output.stdout).trim(), "20");
    let lines = said(&output);
    assert!(lines.contains(&format!("{dead}: server unreachable")), "{lines}");
    assert!(!lines.contains(&live.url), "{lines}");

    live.kill();
    let mut command = run_over(&folder, &[]);
    let output = run(command.env("KAKEHI_REMOTE_TIMEOUT", "1s").arg("true"), SOON);
    let lines = said(&output);
    assert_eq!(output.status.code(), Some(125), "{lines}");
    assert!(lines.contains(&dead) && lines.contains(&live.url), "{lines}");

    // A server that is started anew takes the place of the one that was killed.
    live.restart();
    assert_eq!(fs::read_dir(folder.join("servers")).expect("folder").count(), 2);
    live.end();
}

#[test]
fn nothing_is_lost_when_one_of_two_servers_of_a_root_is_killed() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut gates = [Gate::start(&folder, "root"), Gate::start(&folder, "root")];
    let mut rng = random("one of two servers");
    let mut program = start_rounds(&folder, &mut run_over(&folder, &[]), 200);
    for _ in 0..8 {
        pause(Duration::from_millis(rng.u64(20..250)));
        let gate = &mut gates[rng.usize(0..2)];
        gate.kill();
        gate.restart();
    }
    let status = program.wait(LONG);
    let said = fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(status.success(), "{status}: {said}");
    check_rounds(&folder.join("root"), 200);
    gates.into_iter().for_each(Gate::end);
}

/// A server dies in the middle of one client's append, and the other client's, of the same bytes,
/// comes first when it is back.
#[test]
fn equal_appends_of_two_clients_are_counted_once_each() {
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if scheme.is_here("equal appends of two clients") {
            append_equally(scheme);
        }
    }
}

fn append_equally(scheme: Scheme) {
    let folder = Folder::new();
    let mut gate = Gate::start_over(&folder, "root", scheme);
    let mut rng = random("two clients that append");
    let programs = ["one", "two"].map(|job| {
        let mut command = run_over(&folder, &[]);
        command.env("KAKEHI_JOB", job).env("KAKEHI_SYNC", "1").arg(program("append"));
        command.arg(local(&folder).join("log")).arg("1500");
        thread::spawn(move || run(&mut command, LONG))
    });
    let log = folder.join("root/log");
    let len = || fs::metadata(&log).map_or(0, |file| file.size());
    let mut kills = 0;
    while !programs.iter().all(thread::JoinHandle::is_finished) {
        let before = len();
        // Whatever the machine does besides: not before they have got on.
        wait_for(SOON, || {
            len() > before + 70 || programs.iter().all(thread::JoinHandle::is_finished)
        });
        pause(Duration::from_micros(rng.u64(0..3000)));
        if kills < 15 {
            gate.kill();
            gate.restart();
            kills += 1;
        }
    }
    let (mut certain, mut unknown) = (0, 0);
    for program in programs {
        let output = program.join().expect("it ran");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let printed = text(&output.stdout);
        let mut counts = printed.split_whitespace().map(|word| word.parse().expect("a number"));
        certain += counts.next().unwrap_or(0_u64);
        unknown += counts.next().unwrap_or(0_u64);
    }
    let found = len();
    assert!((certain..=certain + unknown).contains(&found), "{found} of {certain} + {unknown}");
    assert!(certain >= 2 * 1500 * 7 - 7 * 40, "{certain} for certain after {kills} kills");
    assert!(kills > 2, "{kills} kills");
    gate.end();
}

/// Locks of clients of the other server are not its to wait for.
#[test]
fn server_that_is_started_anew_waits_for_no_locks_that_another_server_has() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut gates = [Gate::start(&folder, "root"), Gate::start(&folder, "root")];
    // Of so many files each server has some.
    let hold = "cd \"$0\"; for i in 0 1 2 3 4 5 6 7; do flock -o held$i sh -c \
        \"echo >there$i; while ! test -e over; do sleep 0.1; done\" & done; wait";
    let mut holder = run_over(&folder, &[]);
    holder.env("KAKEHI_JOB", "holder").args(["sh", "-c", hold]).arg(local(&folder));
    let mut holder = Running::start(&mut holder);
    let is_held = || (0..8).all(|i| folder.join(format!("root/there{i}")).exists());
    assert!(wait_for(SOON, is_held), "nothing is locked");
    gates[1].kill();
    gates[1].restart();
    let lock = "cd \"$0\"; for i in 0 1 2 3 4 5 6 7; do flock -w 9 free$i true || exit 9; \
        flock -n held$i true && exit 8; done; echo >over";
    let mut command = run_over(&folder, &[]);
    let output = run(command.args(["sh", "-c", lock]).arg(local(&folder)), LONG);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    assert!(holder.wait(LONG).success());
    gates.into_iter().for_each(Gate::end);
}
