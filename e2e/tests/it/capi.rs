//! Programs that are linked with libkakehi do the same with a daemon, without one, and when theirs
//! dies.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    harness::{
        Daemon, Folder, Running, SOON, kakehi, kakehi_run, pause, random, skip, stats, succeed,
        sum, wait_for,
    },
    remote::{
        local,
        server::{Scheme, Server},
    },
};

const DELEGATE: &str = "/**=delegate";
const WARNED: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// Time that a daemon has between the start of requests and its death, at most.
const LIFE: Duration = Duration::from_millis(600);

#[test]
fn every_call_does_what_it_does_without_a_daemon() {
    let folder = Folder::new();
    let expected = native(&folder);
    for (index, rule) in ["/**=hybrid", DELEGATE, "/**=pass"].iter().enumerate() {
        let told = folder.join(format!("stats{index}"));
        let mut command =
            kakehi_run(&folder, &["--rule", rule, "--stats", told.to_str().expect("UTF-8")]);
        let path = folder.join("out");
        let is_delegated = if index == 2 { "p" } else { "1" };
        let said = succeed(command.arg(program()).arg("check").arg(&path).arg(is_delegated), LONG);
        assert_eq!((said, fs::read(&path).expect("made")), expected, "{rule}");
        // What was in flight together was not staged, and more than a little.
        let (job, mib) = (stats(&told), 1 << 20);
        let executed = sum(&job, "/bytes_delegated") - sum(&job, "/bytes_staged");
        assert_eq!(executed > 20 * mib, is_delegated == "1", "{rule}: {executed}");
    }
}

#[test]
fn threads_and_processes_find_what_others_have_written() {
    let folder = Folder::new();
    let path = folder.join("out");
    succeed(Command::new(program()).arg("among").arg(&path), LONG);
    let expected = fs::read(&path).expect("made");
    for rule in ["/**=hybrid", DELEGATE] {
        fs::remove_file(&path).expect("made");
        let mut command = kakehi_run(&folder, &["--rule", rule]);
        succeed(command.arg(program()).arg("among").arg(&path), LONG);
        assert!(fs::read(&path).expect("made") == expected, "{rule}");
    }
}

#[test]
fn without_delegation_every_call_is_the_kernels() {
    let folder = Folder::new();
    let (path, expected) = (folder.join("out"), native(&folder));
    let mut disabled = kakehi_run(&folder, &[]);
    disabled.env("KAKEHI_DISABLE", "1").arg(program());
    // A job is named, and nobody serves it.
    let mut orphaned = Command::new(program());
    orphaned.env("LD_PRELOAD", crate::harness::library()).env("KAKEHI_SOCKET", folder.join("job"));
    for mut command in [disabled, orphaned] {
        let said = succeed(command.arg("check").arg(&path).arg("0"), LONG);
        assert_eq!((said, fs::read(&path).expect("made")), expected);
    }
}

#[test]
fn remote_files_are_read_and_written_in_queues() {
    let folder = Folder::new();
    let (said, content) = native(&folder);
    let server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.arg(program()).arg("check").arg(local(&folder).join("out")).arg("r");
    assert_eq!(succeed(&mut command, LONG), said);
    assert!(fs::read(server.job().join("out")).expect("made") == content);
    server.end();
}

/// Wherever in a request the daemon dies, the client finds out, and does the rest.
#[test]
fn requests_of_a_daemon_that_is_killed_at_any_moment_are_done() {
    let mut random = random("queues of killed daemons");
    let (mut in_time, mut expected) = (0, None);
    for round in 0..16 {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, "job", &[]);
        let path = folder.join("out");
        if round % 2 == 0 {
            daemon.set("KAKEHI_RULES", DELEGATE);
        }
        let mut talk = Talk::start(daemon.wrap(program()).arg("going").arg(&path));
        assert_eq!(talk.hear(), "going");
        pause(LIFE.mul_f64(random.f64()));
        daemon.kill();
        let said = talk.hear();
        in_time += u32::from(said == "delegated 1 0");
        assert!(["delegated 1 0", "delegated 1 1"].contains(&&*said), "{said}");
        assert!(talk.running.wait(LONG).success());
        let found = fs::read(&path).expect("made");
        let expected = expected.get_or_insert_with(|| {
            succeed(Command::new(program()).arg("going").arg(&path), LONG);
            fs::read(&path).expect("made")
        });
        assert!(found == *expected, "{round}");
    }
    assert!(in_time > 8, "only {in_time} daemons died before the program had ended");
}

/// The requests are in flight when the daemon dies.
#[test]
fn requests_that_a_killed_daemon_has_not_seen_are_done() {
    for rule in ["/**=hybrid", DELEGATE] {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, "job", &[]);
        daemon.set("KAKEHI_RULES", rule);
        let mut talk = standing(&daemon, "stands", &folder.join("out"));
        daemon.kill();
        let began = Instant::now();
        talk.say();
        assert_eq!(talk.hear(), "done", "{rule}");
        assert!(began.elapsed() < Duration::from_secs(5), "{rule}: {:?}", began.elapsed());
        assert!(talk.running.wait(SOON).success());
    }
}

/// Nobody else knows the way to the file.
#[test]
fn requests_for_a_remote_file_fail_when_the_daemon_is_killed() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let flags = server.flags(&local(&folder));
    let mut daemon = Daemon::start(&folder, "job", &flags.each_ref().map(String::as_str));
    daemon.set("KAKEHI_RULES", &format!("{}/**=remote", local(&folder).display()));
    let mut talk = standing(&daemon, "lost", &local(&folder).join("out"));
    daemon.kill();
    talk.say();
    assert_eq!(talk.hear(), "done");
    assert!(talk.running.wait(SOON).success());
    server.end();
}

/// The daemon has the request to let go of the file before it sees others for it.
#[test]
fn requests_of_a_file_that_is_left_before_the_daemon_sees_them_are_done() {
    for rule in ["/**=hybrid", DELEGATE] {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, "job", &[]);
        daemon.set("KAKEHI_RULES", rule);
        let mut command = daemon.wrap(program());
        command.arg("left").arg(folder.join("out"));
        command.arg(daemon.pid().as_raw_pid().to_string());
        assert_eq!(succeed(&mut command, LONG), "done\n", "{rule}");
        daemon.end();
    }
}

#[test]
fn daemon_that_stands_still_is_killed_before_its_requests_are_done() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_FENCE_TIMEOUT", "1s");
    let mut talk = standing(&daemon, "stands", &folder.join("out"));
    talk.say();
    assert_eq!(talk.hear(), "done");
    assert!(talk.running.wait(SOON).success());
    assert!(wait_for(SOON, || daemon.running.child.try_wait().expect("own child").is_some()));
}

/// The shared library, by what is installed and what pkg-config says of it, in three languages.
#[test]
fn programs_are_built_with_what_is_installed() {
    let folder = Folder::new();
    let capi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client/capi");
    let mut install = Command::new("sh");
    install.arg(capi.join("install.sh")).arg(archive()).arg(folder.path()).arg("1.2.3");
    succeed(&mut install, SOON);
    let header = folder.join("include/kakehi.h");
    for (compiler, dialect, language) in [("cc", "-std=c99", "c"), ("g++", "-std=c++11", "c++")] {
        let mut check = Command::new(compiler);
        check.args(WARNED).args([dialect, "-fsyntax-only", "-x", language]).arg(&header);
        succeed(&mut check, SOON);
    }
    build_and_check(&folder);
    build_what_the_guide_shows(&folder);
    ask_pkg_config(&folder);
    build_fortran(&folder);
    let mut remove = Command::new("sh");
    succeed(remove.arg(capi.join("install.sh")).arg("--remove").arg(folder.path()), SOON);
    let mut find = Command::new("find");
    find.args([folder.join("include"), folder.join("lib")]).args(["-name", "*kakehi*"]);
    assert_eq!(succeed(&mut find, SOON), "");
}

fn build_and_check(folder: &Folder) {
    let (program, path) = (folder.join("program"), folder.join("out"));
    let mut cc = Command::new("cc");
    succeed(cc.arg(source("capi.c")).args(flags(folder)).arg("-o").arg(&program), SOON);
    let (said, content) = native(folder);
    for (wrap, is_delegated) in [(false, "0"), (true, "1")] {
        let mut command = if wrap { kakehi_run(folder, &[]) } else { Command::new("env") };
        command.arg(&program).arg("check").arg(&path).arg(is_delegated);
        assert_eq!(succeed(&mut command, LONG), said);
        assert!(fs::read(&path).expect("made") == content);
    }
    fs::remove_file(path).expect("made");
}

fn build_what_the_guide_shows(folder: &Folder) {
    let (example, program) = (folder.join("example.c"), folder.join("example"));
    let guide = include_str!("../../../docs/guide/library.md").split("```c\n").nth(1);
    let text = guide.and_then(|rest| rest.split("```").next()).expect("an example");
    fs::write(&example, text).expect("the file");
    let mut cc = Command::new("cc");
    succeed(cc.args(WARNED).arg(&example).args(flags(folder)).arg("-o").arg(&program), SOON);
    let mut command = kakehi_run(folder, &[]);
    succeed(command.arg(program).current_dir(folder.path()), SOON);
    assert_eq!(fs::metadata(folder.join("out")).expect("made").len(), 8 << 20);
}

fn ask_pkg_config(folder: &Folder) {
    if is_here("what pkg-config says of libkakehi", "pkg-config") {
        let ask = |flags: &[&str]| {
            let mut asked = Command::new("pkg-config");
            asked.env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")).args(flags).arg("kakehi");
            succeed(&mut asked, SOON)
        };
        assert_eq!(ask(&["--modversion"]).trim(), "1.2.3");
        let flags = ask(&["--cflags", "--libs"]);
        assert!(flags.contains("-I") && flags.contains("-lkakehi"), "{flags}");
    }
}

fn build_fortran(folder: &Folder) {
    if !is_here("Fortran programs with libkakehi", "gfortran") {
        return;
    }
    let program = folder.join("fortran");
    let mut compile = Command::new("gfortran");
    compile.current_dir(folder.path()).args(["-Wall", "-Werror"]);
    compile.arg(folder.join("include/kakehi.f90")).arg(source("capi.f90")).args(flags(folder));
    succeed(compile.arg("-o").arg(&program), SOON);
    let alone = succeed(Command::new(&program).current_dir(folder.path()), SOON);
    assert!(alone.contains("good"), "{alone}");
    let mut command = kakehi_run(folder, &[]);
    assert_eq!(succeed(command.arg(&program).current_dir(folder.path()), SOON), alone);
}

/// Returns the flags that link a program with the library installed in a folder.
fn flags(folder: &Folder) -> [String; 4] {
    let [include, lib] = ["include", "lib"].map(|name| folder.join(name).display().to_string());
    [format!("-I{include}"), format!("-L{lib}"), format!("-Wl,-rpath,{lib}"), "-lkakehi".into()]
}

/// A program that has started requests of a daemon that stands still since before that.
fn standing(daemon: &Daemon, how: &str, path: &Path) -> Talk {
    let mut talk = Talk::start(daemon.wrap(program()).arg(how).arg(path));
    assert_eq!(talk.hear(), "ready");
    daemon.running.signal(Signal::STOP);
    talk.say();
    assert_eq!(talk.hear(), "started");
    talk
}

/// A program that says lines and is told to go on.
struct Talk {
    running: Running,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let to = running.child.stdin.take().expect("piped");
        let from = BufReader::new(running.child.stdout.take().expect("piped"));
        Self { running, to, from }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn say(&mut self) {
        self.to.write_all(b"\n").expect("the program reads");
    }
}

/// Returns the output and the file that every call makes natively.
fn native(folder: &Folder) -> (String, Vec<u8>) {
    let path = folder.join("native-check");
    let said = succeed(Command::new(program()).arg("check").arg(&path).arg("0"), LONG);
    (said, fs::read(path).expect("made"))
}

/// The program, linked with the static library of the build.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client/capi/include");
        // Another run of the tests may have the old one open: renamed over it.
        let fresh = path.with_extension(std::process::id().to_string());
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(headers);
        cc.arg(source("capi.c")).arg("-o").arg(&fresh).arg(archive()).args(["-lm", "-ldl"]);
        succeed(&mut cc, SOON);
        fs::rename(fresh, &path).expect("rename");
        path
    });
    made.clone()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

fn archive() -> PathBuf {
    kakehi().with_file_name("libkakehi_capi.a")
}

fn is_here(what: &str, program: &str) -> bool {
    let is_here = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !is_here {
        skip(what, format_args!("no {program}"));
    }
    is_here
}

/// A program that does much, on a machine that is busy.
const LONG: Duration = Duration::from_secs(180);
