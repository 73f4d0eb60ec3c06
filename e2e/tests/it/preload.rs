//! Unmodified programs do the same with the preload library as without it.
//!
//! Each program runs in an empty folder, once by itself and once in every other way; output, exit
//! status, and every file it leaves are compared byte for byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{Folder, SOON, kakehi, library, skip, succeed};

/// Longest run of a program, seconds.
const DEADLINE: &str = "300";

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The library is loaded, and no job is named: every wrapper is a system call.
    Idle,
    /// A job is named, and nobody serves it: every call passes through the client.
    Orphaned,
    /// Under `kakehi run`.
    Served,
    /// Under `kakehi run`, and the daemon opens every file.
    Delegated,
}

impl Way {
    const ALL: [Self; 4] = [Self::Idle, Self::Orphaned, Self::Served, Self::Delegated];

    /// Returns the words before the program.
    fn wrap(self) -> &'static [&'static str] {
        match self {
            Self::Idle | Self::Orphaned => &[],
            Self::Served => &["run", "--"],
            Self::Delegated => &["run", "--rule", "/**=delegate", "--"],
        }
    }
}

/// Deeds of a program, as others can see them.
#[derive(Debug, PartialEq, Eq)]
struct Deeds {
    status: Option<i32>,
    output: String,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

#[test]
fn streams_behave_as_without_the_library() {
    same_in_every_way(&compile("stdio.c", "cc", &[]));
}

#[test]
fn sanitized_programs_behave_as_without_the_library() {
    for (compiler, flag) in [
        ("cc", "-fsanitize=thread"),
        ("clang", "-fsanitize=memory"),
        ("clang", "-fsanitize=thread"),
    ] {
        match compiled("sanitized.c", compiler, &[flag, "-pthread"]) {
            Some(program) => same_in(&[Way::Idle, Way::Served], &program),
            None => skip("a sanitized program", format_args!("no {flag} of {compiler}")),
        }
    }
}

/// Not under `delegate`: libc's wide streams write to the number itself.
#[test]
fn wide_streams_behave_as_without_the_library() {
    let program = compile("wide.c", "cc", &[]);
    same_in(&[Way::Idle, Way::Orphaned, Way::Served], &program);
}

#[test]
fn descriptors_behave_as_without_the_library() {
    same_in_every_way(&compile("descriptors.c", "cc", &[]));
}

#[test]
fn descriptors_that_come_past_open_behave_as_without_the_library() {
    if let Some(program) = possible("files opened by a handle", "handles.c", &[]) {
        same_in_every_way(&program);
    }
}

#[test]
fn numbers_that_programs_choose_are_theirs_as_without_the_library() {
    same_in_every_way(&compile("chosen.c", "cc", &["-pthread"]));
}

#[test]
fn requests_that_the_kernel_looks_for_are_served_as_without_the_library() {
    if let Some(program) = possible("io_uring with a thread of its own", "polled.c", &[]) {
        same_in_every_way(&program);
    }
}

/// Flags of the compiler by which a program has liburing, wherever they stand.
pub(crate) const LIBURING: [&str; 2] = ["-Wl,--no-as-needed", "-luring"];

#[test]
fn rings_of_liburing_work_as_without_the_library() {
    if let Some(program) = possible("io_uring by liburing", "ring.c", &LIBURING) {
        same_in_every_way(&program);
    }
}

#[test]
fn record_locks_are_held_as_without_the_library() {
    same_in_every_way(&compile("held.c", "cc", &[]));
}

#[test]
fn mappings_behave_as_without_the_library() {
    same_in_every_way(&compile("maps.c", "cc", &[]));
}

/// A write that goes to the kernel does not overtake what was staged for the same place.
#[test]
fn large_writes_over_small_ones_win_as_without_the_library() {
    same_in_every_way(&compile("overlap.c", "cc", &[]));
}

#[test]
fn what_programs_seldom_do_is_done_as_without_the_library() {
    same_in_every_way(&compile("corners.c", "cc", &["-pthread"]));
}

#[test]
fn open_files_are_changed_by_the_names_of_their_numbers_as_without_the_library() {
    same_in_every_way(&compile("own_names.c", "cc", &[]));
}

#[test]
fn what_libc_does_to_files_by_itself_is_done_as_without_the_library() {
    let [program] = compile("inside.c", "cc", &[]);
    let [plugin] = compile("plugin.c", "cc", &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"]);
    same_in_every_way(&[program, plugin]);
}

#[test]
fn files_are_ready_as_without_the_library() {
    same_in_every_way(&compile("ready.c", "cc", &[]));
}

#[test]
fn what_is_seldom_asked_of_files_is_answered_as_without_the_library() {
    same_in_every_way(&compile("asked.c", "cc", &[]));
}

#[test]
fn calls_by_number_behave_as_without_the_library() {
    same_in_every_way(&compile("numbers.c", "cc", &[]));
}

/// An interposed function must not forget the system call of its name.
#[test]
fn calls_that_are_interposed_are_served_by_number_too() {
    let [table, symbols, calls] = [
        vec!["cat", concat!(env!("CARGO_MANIFEST_DIR"), "/../client/preload/src/by_number.rs")],
        vec!["nm", "--dynamic", "--defined-only", library().to_str().expect("UTF-8")],
        vec!["cc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "/dev/null"],
    ]
    .map(|line| succeed(Command::new(line[0]).args(&line[1..]), SOON));
    let is_in_names = |c: char| c.is_alphanumeric() || c == '_';
    let numbers = |text| -> BTreeSet<_> {
        let words = str::split(text, |c| !is_in_names(c));
        words.filter_map(|word| word.strip_prefix("SYS_")).collect()
    };
    let functions: BTreeSet<_> = symbols.split_whitespace().collect();
    // `accept` and `accept4` are calls of one function.
    let is_ours = |call: &&str| {
        functions.contains(call) || functions.contains(call.trim_end_matches(char::is_numeric))
    };
    let ours: BTreeSet<_> = numbers(&calls).into_iter().filter(is_ours).collect();
    assert!(ours.len() > 80, "{ours:?}");
    let missing: Vec<_> = ours.difference(&numbers(&table)).copied().collect();
    assert!(missing.is_empty(), "not in by_number.rs: {missing:?}");
}

#[test]
fn children_behave_as_without_the_library() {
    same_in_every_way(&compile("children.c", "cc", &[]));
}

#[test]
fn functions_that_libc_runs_at_a_fork_behave_as_without_the_library() {
    same_in_every_way(&compile("atfork.c", "cc", &[]));
}

#[test]
fn programs_end_as_without_the_library() {
    same_in_every_way(&compile("late.c", "cc", &["-pthread"]));
}

#[test]
fn threads_behave_as_without_the_library() {
    same_in_every_way(&compile("threads.c", "cc", &["-pthread"]));
}

#[test]
fn checked_calls_behave_as_without_the_library() {
    let checked = ["-D_FORTIFY_SOURCE=2", "-O2", "-pthread"];
    let sources = ["stdio.c", "descriptors.c", "children.c", "fortified.c", "ready.c", "numbers.c"];
    for source in sources {
        same_in_every_way(&compile(source, "cc", &checked));
    }
}

#[test]
fn cpp_streams_behave_as_without_the_library() {
    same_in_every_way(&compile("fstream.cc", "g++", &[]));
}

#[test]
fn fortran_units_behave_as_without_the_library() {
    if has("gfortran") {
        same_in_every_way(&compile("units.f90", "gfortran", &[]));
    }
}

#[test]
fn shells_and_tools_behave_as_without_the_library() {
    for script in [
        "for i in 1 2 3; do echo $i >> out; done; exec 7>seven; echo x >&7; (echo y >&7); \
            cat out seven",
        "seq 20000 | tee numbers | tail -1; sort -rn numbers > sorted; \
            cmp numbers sorted | head -c 3",
        "mkdir a; echo 1 > a/1; tar cf a.tar --mtime=@0 a; mkdir b; tar xf a.tar -C b; \
            cat b/a/1; dd if=a.tar of=copy bs=700 2>/dev/null; cmp a.tar copy",
        "cp /bin/true mine; chmod +x mine; ./mine && echo ran; mv mine yours; \
            ln yours ours; rm yours ours",
    ] {
        same_in_every_way(&["bash".into(), "-c".into(), script.into()]);
    }
}

#[test]
fn python_behaves_as_without_the_library() {
    if !has("python3") {
        return;
    }
    same_in_every_way(&["python3".into(), "-c".into(), PYTHON.into()]);
}

#[test]
fn git_behaves_as_without_the_library() {
    let script = "export HOME=$PWD GIT_AUTHOR_DATE=@0 GIT_COMMITTER_DATE=@0 \
        GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; \
        git init -q -b main r && cd r && seq 9999 > f && git add f && git commit -qm one \
        && echo x >> f && git commit -qam two && git gc -q && git fsck && git log --format=%H; \
        cd .. && git clone -q r s && cat s/f | tail -1; rm -rf r s";
    if has("git") {
        same_in_every_way(&["bash".into(), "-c".into(), script.into()]);
    }
}

const PYTHON: &str = r#"
import mmap, os, subprocess, shutil, tempfile, sqlite3
with open("text", "w") as f:
    for i in range(10000): f.write(f"{i}\n")
    f.seek(3); f.write("CHANGED")
with open("bytes", "wb", buffering=0) as f:
    f.write(b"raw"); os.pwrite(f.fileno(), b"R", 0); os.fsync(f.fileno())
    print(os.fstat(f.fileno()).st_size)
print(subprocess.run(["cat", "bytes"], capture_output=True).stdout)
with open("out", "w") as f:
    f.write("before "); f.flush()
    subprocess.run(["echo", "child"], stdout=f, close_fds=True); f.write("after")
with open("map", "w+b") as f:
    f.write(bytes(5000)); f.flush()
    m = mmap.mmap(f.fileno(), 5000); m[7:10] = b"map"; m.flush()
shutil.copyfile("text", "copy")
pid = os.fork()
if pid == 0:
    open("forked", "w").write("child"); os._exit(3)
print(os.waitpid(pid, 0)[1])
db = sqlite3.connect("db"); db.execute("create table t(x)")
db.executemany("insert into t values(?)", [(i,) for i in range(1000)]); db.commit()
print(db.execute("select sum(x) from t").fetchone())
db.close(); print(os.stat("text").st_size)
with tempfile.NamedTemporaryFile(dir=".") as f:
    f.write(b"x"); f.flush(); print(os.path.getsize(f.name))
"#;

/// The compiled program; says so when this machine does not have what it is about.
pub(crate) fn possible(what: &str, source: &str, flags: &[&str]) -> Option<[String; 1]> {
    let program = compile(source, "cc", flags);
    let _turn = Folder::new();
    let native = run(&program, None);
    let is_possible = native.status != Some(77);
    if !is_possible {
        skip(what, native.output.trim_end());
    }
    is_possible.then_some(program)
}

/// Runs the command by itself, and compares every other way with that.
pub(crate) fn same_in_every_way(command: &[String]) {
    same_in(&Way::ALL, command);
}

pub(crate) fn same_in(ways: &[Way], command: &[String]) {
    let _turn = Folder::new();
    let native = run(command, None);
    for way in ways {
        let other = run(command, Some(*way));
        assert_eq!(other.output, native.output, "output, {way:?}: {command:?}");
        assert_eq!(other.status, native.status, "status, {way:?}: {command:?}");
        let names = |deeds: &Deeds| deeds.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&other), names(&native), "files, {way:?}: {command:?}");
        for (name, content) in &native.files {
            assert!(other.files.get(name) == Some(content), "{name:?}, {way:?}: {command:?}");
        }
    }
}

/// Runs the command in a folder of its own; `None` runs it natively.
fn run(command: &[String], way: Option<Way>) -> Deeds {
    let folder = TempDir::new().expect("a folder");
    let job = TempDir::new().expect("a folder");
    let mut line = Command::new("timeout");
    line.args(["-k", "5", DEADLINE]);
    let wrap = way.map_or(&[][..], Way::wrap);
    if !wrap.is_empty() {
        line.arg(kakehi()).args(wrap);
    }
    line.args(command).current_dir(folder.path()).stdin(Stdio::null());
    match way {
        Some(Way::Idle) => line.env("LD_PRELOAD", library()),
        Some(Way::Orphaned) => line.env("LD_PRELOAD", library()).env("KAKEHI_SOCKET", job.path()),
        Some(Way::Served | Way::Delegated) => {
            line.env("KAKEHI_PRELOAD", library()).env("XDG_RUNTIME_DIR", job.path())
        }
        None => &mut line,
    };
    let output = line.output().expect("the program starts");
    let mut files = BTreeMap::new();
    collect(folder.path(), folder.path(), &mut files);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    Deeds { status: output.status.code(), output: output_text, files }
}

/// Reads every file below a folder.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("below").to_owned();
            files.insert(name, fs::read(&path).expect("readable"));
        }
    }
}

/// Compiles one of `e2e/programs`; returns the command that runs it.
pub(crate) fn compile(source: &str, compiler: &str, flags: &[&str]) -> [String; 1] {
    compiled(source, compiler, flags).unwrap_or_else(|| panic!("{source} does not compile"))
}

/// As [`compile`], if there is such a compiler, and it can.
fn compiled(source: &str, compiler: &str, flags: &[&str]) -> Option<[String; 1]> {
    let _turn = Folder::new();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join(format!("{source}{}", flags.concat()));
    // Another test may run the one that is there: renamed over it, not written into it.
    let fresh = TempDir::new_in(target).expect("a folder");
    let made = fresh.path().join("made");
    let status = Command::new(compiler)
        .args(flags)
        .args(["-w", "-g", "-o"])
        .arg(&made)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source))
        .current_dir(target)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return None;
    }
    fs::rename(made, &program).expect("rename");
    Some([program.into_os_string().into_string().expect("UTF-8")])
}

/// True if a program is installed; says so when it is not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let has = found.is_ok_and(|output| output.status.success());
    if !has {
        skip("a program with the preload library", format_args!("no {program}"));
    }
    has
}
