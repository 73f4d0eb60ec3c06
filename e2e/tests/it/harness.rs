//! Shared parts of the tests: the built command, daemons, programs, folders, and deadlines.
//!
//! Nothing here waits without a deadline, and nothing outlives its test: a daemon is ended, a
//! program killed, a folder removed when the value that stands for it goes.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    io::{self, Read, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process, kill_process_group},
};
use serde_json::Value;
use tempfile::TempDir;

/// A deadline against hangs, for what ought to take no time at all: no claim of speed, because the
/// machine may have anything else to do.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Has files staged from their first write on, so that short programs are delegated, too.
pub(crate) const EAGER: [(&str, &str); 1] = [("KAKEHI_STAGE_AFTER", "0ms")];

/// The built `kakehi`.
pub(crate) fn kakehi() -> PathBuf {
    let program = target().join("release/kakehi");
    assert!(program.is_file(), "no {}: run 'make build'", program.display());
    program
}

/// The built preload library.
pub(crate) fn library() -> PathBuf {
    let library = target().join("preload/libkakehi_preload.so");
    assert!(library.is_file(), "no {}: run 'make build'", library.display());
    library
}

/// The folder cargo builds into; this test is in `release/deps` there.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    test.ancestors().nth(3).expect("target folder").to_owned()
}

/// A C program of `programs/`, compiled.
pub(crate) fn program(name: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("no test panics here");
    if let Some(path) = compiled.get(name) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(format!("{name}.c"));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Another run of the tests may have the old one open: renamed over it, not written into it.
    let fresh = path.with_extension(std::process::id().to_string());
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&fresh).arg(source);
    let made = run(&mut cc, Duration::from_secs(60));
    assert!(made.status.success(), "{}", text(&made.stderr));
    fs::rename(fresh, &path).expect("rename");
    compiled.insert(name.to_owned(), path.clone());
    path
}

/// Python, and its program of this name in `programs/`; says loudly that `what` was not tested
/// where there is no Python.
pub(crate) fn python(what: &str, name: &str) -> Option<[PathBuf; 2]> {
    // What a user has on the path may be a script that looks for it.
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Some(python) = found.ok().and_then(|found| String::from_utf8(found.stdout).ok()) else {
        skip(what, "no python3");
        return None;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    Some([python.trim().into(), folder.join(name).with_extension("py")])
}

// ---- folders, and turns
//
// Every test that starts a process holds a turn, by its folder, until its processes are gone; so
// one that measures time runs when nothing else of this program does. A test takes one turn at a
// time: a second one would wait for a test that waits to be alone.

static TURN: RwLock<()> = RwLock::new(());

enum Turn {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

/// A temporary folder of one test. Asserts when it goes that no process of the test is left.
pub(crate) struct Folder {
    folder: TempDir,
    _turn: Turn,
}

impl Folder {
    /// A folder for a test that runs beside others.
    pub(crate) fn new() -> Self {
        // A test that failed has let go of its turn all the same.
        let _turn = Turn::Shared(TURN.read().unwrap_or_else(|poison| poison.into_inner()));
        Self { folder: TempDir::with_prefix("kakehi-e2e-").expect("temporary folder"), _turn }
    }

    /// A folder for a test that measures time: no other test runs meanwhile.
    pub(crate) fn alone() -> Self {
        let _turn = Turn::Alone(TURN.write().unwrap_or_else(|poison| poison.into_inner()));
        Self { folder: TempDir::with_prefix("kakehi-e2e-").expect("temporary folder"), _turn }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        let mut left = Vec::new();
        let gone = wait_for(SOON, || {
            left = processes_of(self.path());
            left.is_empty()
        });
        assert!(gone, "processes are left behind: {left:?}");
        unmount_views(self.path());
    }
}

/// Unmounts what killed daemons have left below a folder, which could not be removed with it.
fn unmount_views(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc");
    let places = mounts.lines().filter(|line| line.contains(" fuse.kakehi "));
    for place in places.filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(place).starts_with(folder) {
            Command::new("umount").arg("-l").arg(place).status().ok();
        }
    }
}

/// Processes that have `folder` in their arguments or environment, by pid and arguments.
pub(crate) fn processes_of(folder: &Path) -> Vec<(i32, String)> {
    let needle = folder.to_str().expect("UTF-8");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let said = |name: &str| {
            let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let arguments = said("cmdline");
        if pid != own_pid() && (arguments.contains(needle) || said("environ").contains(needle)) {
            found.push((pid, arguments));
        }
    }
    found
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).expect("a process id")
}

// ---- programs

/// Runs a program to its end.
///
/// # Panics
///
/// When it has not ended in time; it is killed then, with whatever it has started.
#[track_caller]
pub(crate) fn run(command: &mut Command, time: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(command);
    let stdout = collect(running.child.stdout.take().expect("piped"));
    let stderr = collect(running.child.stderr.take().expect("piped"));
    let status = running.wait(time);
    // Whoever the program left behind may hold the pipes open; then the deadline above was theirs.
    let output = |thread: thread::JoinHandle<Vec<u8>>| thread.join().expect("reader");
    Output { status, stdout: output(stdout), stderr: output(stderr) }
}

/// As [`run`], for a program that has to end well; returns what it printed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command, time: Duration) -> String {
    let output = run(command, time);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}: {printed}{said}", output.status);
    printed
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads everything, on a thread.
pub(crate) fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("pipe");
        bytes
    })
}

/// A program in a process group of its own; killed with the group when this goes.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self { child: child.unwrap_or_else(|why| panic!("{command:?}: {why}")) }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the program has not been waited for");
    }

    /// Waits for the end.
    ///
    /// # Panics
    ///
    /// When it does not come in time.
    #[track_caller]
    pub(crate) fn wait(&mut self, time: Duration) -> ExitStatus {
        let mut status = None;
        let ended = wait_for(time, || {
            status = self.child.try_wait().expect("own child");
            status.is_some()
        });
        assert!(ended, "pid {} has not ended after {time:?}", self.child.id());
        status.expect("ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            // What is gone by now need not be killed.
            kill_process_group(self.pid(), Signal::KILL).ok();
            self.child.wait().ok();
        }
    }
}

// ---- daemons

/// A daemon in a folder of its own.
pub(crate) struct Daemon {
    pub(crate) running: Running,
    pub(crate) socket: PathBuf,
    log: PathBuf,
    variables: Vec<(String, String)>,
}

impl Daemon {
    #[track_caller]
    pub(crate) fn start(folder: &Folder, name: &str, flags: &[&str]) -> Self {
        let socket = folder.join(name);
        let mut command = Command::new(kakehi());
        command.arg("serve").arg("--socket").arg(&socket).args(flags);
        Self::start_by(folder, socket, &mut command)
    }

    /// Starts a daemon by a command that becomes `kakehi serve` in folder `socket`.
    #[track_caller]
    pub(crate) fn start_by(folder: &Folder, socket: PathBuf, command: &mut Command) -> Self {
        let log = socket.with_extension("log");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&log).expect("log"));
        let mut running = Running::start(command.current_dir(folder.path()));
        // It has the lock until it serves, and heeds signals.
        let is_free = || {
            let lock = fs::File::open(socket.join("lock"));
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
        };
        let link = socket.join("job");
        let mut ended = None;
        let listens = wait_for(SOON, || {
            ended = running.child.try_wait().expect("own child");
            ended.is_some() || link.is_symlink() && is_free()
        });
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(listens && ended.is_none(), "the daemon did not start: {ended:?} {said}");
        let variables = variables(&socket);
        Self { running, socket, log, variables }
    }

    /// Gives programs that are started from now on a setting.
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.variables.push((variable.to_owned(), value.to_owned()));
    }

    /// A command under delegation by this daemon.
    pub(crate) fn wrap(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// Descriptors the daemon has open, and segments it has mapped. What its allocator and its
    /// threads map comes and goes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let process = PathBuf::from(format!("/proc/{}", self.pid().as_raw_pid()));
        let maps = fs::read_to_string(process.join("maps")).expect("maps");
        let segments = maps.lines().filter(|line| line.contains("/memfd:")).count();
        (fs::read_dir(process.join("fd")).expect("descriptors").count(), segments)
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let mut command = Command::new(kakehi());
        let output = run(command.args(["status", "--json", "--socket"]).arg(&self.socket), SOON);
        assert!(output.status.success(), "{}{}", text(&output.stderr), self.said());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the daemon's standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends the daemon and asserts that it ended well and left nothing.
    #[track_caller]
    pub(crate) fn end(self) {
        self.end_by(0);
    }

    /// As [`end`](Self::end), with this exit code; returns what it said.
    #[track_caller]
    pub(crate) fn end_by(mut self, code: i32) -> String {
        self.running.signal(Signal::TERM);
        let status = self.running.wait(SOON);
        let said = self.said();
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!self.socket.exists(), "the socket's folder is left behind");
        said
    }

    /// Kills the daemon and waits until it is gone.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait(SOON);
    }
}

/// Returns the variables of a program to be served by the daemon in a folder.
#[track_caller]
pub(crate) fn variables(socket: &Path) -> Vec<(String, String)> {
    let mut command = Command::new(kakehi());
    command.args(["env", "--json", "--socket"]).arg(socket);
    let document: Value = serde_json::from_str(&succeed(&mut command, SOON)).expect("JSON");
    let variables = document.as_object().expect("an object").iter();
    let variables =
        variables.map(|(name, value)| (name.clone(), value.as_str().expect("text").into()));
    let eager = EAGER.map(|(name, value)| (name.to_owned(), value.to_owned()));
    variables.chain(eager).collect()
}

/// `kakehi run FLAGS --`, to which the program is added; the job's folder lies in `folder`.
pub(crate) fn kakehi_run(folder: &Folder, flags: &[&str]) -> Command {
    let mut command = Command::new(kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB").envs(EAGER);
    command.arg("run").args(flags).arg("--");
    command
}

/// `command`, started by another one: its words follow, in its folder, with its variables.
pub(crate) fn started_by(mut launcher: Command, command: &Command) -> Command {
    launcher.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => launcher.env(name, value),
            None => launcher.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        launcher.current_dir(folder);
    }
    launcher
}

/// The JSON documents that `--stats` appended to a file.
#[track_caller]
pub(crate) fn stats(path: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(path).expect("statistics");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Sum of one number over documents; `name` is a JSON pointer.
pub(crate) fn sum(documents: &[Value], name: &str) -> u64 {
    documents.iter().filter_map(|one| one.pointer(name).and_then(Value::as_u64)).sum()
}

// ---- time and chance

/// Waits until `condition` holds; returns whether it did in time.
pub(crate) fn wait_for(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    let mut pause_len = Duration::from_micros(100);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        pause(pause_len);
        pause_len = (pause_len * 2).min(Duration::from_millis(1));
    }
}

/// Asserts that a promise of time is kept in one of a few tries. A machine with other work may
/// break it now and then; what breaks it by itself does so in every try.
#[track_caller]
pub(crate) fn kept_in_one_of(tries: u32, mut is_kept: impl FnMut() -> bool) {
    assert!((0..tries).any(|_| is_kept()), "broken in each of {tries} tries");
}

#[expect(clippy::disallowed_methods, reason = "other processes are watched, who ring no bell here")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// A generator of numbers for `what`, seeded by `SEED`; without it always the same. `make soak`
/// sets another every time.
pub(crate) fn random(what: &str) -> fastrand::Rng {
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration but this")]
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("a number"));
    note(format_args!("{what}: SEED={seed}"));
    fastrand::Rng::with_seed(seed)
}

/// Says loudly that something was not tested, past the capture of a test's output.
pub(crate) fn skip(what: &str, why: impl Display) {
    let line = format!("1 SKIPPED: {what}: {why}\n");
    io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Those of some signals that a process started here does not ignore: a shell has its background
/// jobs ignore SIGINT, and so all they start.
pub(crate) fn heeded(signals: impl IntoIterator<Item = Signal>) -> impl Iterator<Item = Signal> {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("a mask").trim(), 16).expect("a mask");
    signals.into_iter().filter(move |signal| {
        let is_heeded = ignored >> (signal.as_raw() - 1) & 1 == 0;
        if !is_heeded {
            skip(&format!("{signal:?}"), "it is ignored here: run the tests in the foreground");
        }
        is_heeded
    })
}

/// Records a figure in the test's output, past its capture.
pub(crate) fn note(line: impl Display) {
    io::stderr().write_all(format!("    {line}\n").as_bytes()).expect("standard error");
}
