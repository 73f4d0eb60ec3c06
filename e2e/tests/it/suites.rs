//! Other people's tests of file I/O, under every policy: each gives the result that it gives
//! without.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::{
    harness::{Folder, kakehi, kakehi_run, note, program, run, skip, started_by, succeed, text},
    remote::server::{Scheme, Server},
    views::{can_mount, with_device},
};

const LONG: Duration = Duration::from_secs(900);
const POLICIES: [(&str, &[&str]); 2] = [("hybrid", &[]), ("delegate", &["--rule", "/**=delegate"])];
/// Becomes nobody, to whom calls are refused that are not to root.
pub(crate) const NOBODY: [&str; 6] =
    ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
/// CPython's tests of files that take seconds.
const PYTHON: [&str; 7] =
    ["fileio", "file", "bufio", "fileinput", "filecmp", "univnewlines", "glob"];
/// Those that take minutes.
const PYTHON_LONG: &str =
    "io os mailbox tempfile shutil pathlib subprocess gzip mmap fcntl posix zipfile tarfile
     dbm_dumb largefile";
/// h5py's that pytest is not needed for.
const H5PY: [&str; 6] =
    ["test_file2", "test_group", "test_attrs", "test_h5f", "test_h5p", "test_slicing"];
/// stress-ng's, each of which looks at what it reads.
const STRESSORS: &str = "
    hdd seek fallocate rename link symlink dentry dir dirdeep filename flock lockf lockofd locka
    copy-file fcntl fiemap file-ioctl utime chmod chown fstat iomix access getdent handle lease open
    revio sendfile splice sync-file touch xattr readahead";
/// Calls of `posix` that differ in mapped and coalesced folders, and why
/// (`docs/guide/remote.md`).
const NOT_REMOTE: [(&str, &str); 12] = [
    ("getcwd(here, sizeof here) ? 1 : -1", "the kernel is not told that the folder is gone"),
    ("mkfifo(\"fifo\", 0644)", "EOPNOTSUPP: FIFOs are a node's"),
    ("S_ISFIFO(mode_of(\"fifo\"))", "there is none"),
    ("open_of(\"fifo\", O_WRONLY | O_NONBLOCK)", "there is none"),
    ("open_of(\"fifo\", O_RDONLY | O_NONBLOCK)", "there is none"),
    ("bound_socket(\"sock\")", "EOPNOTSUPP: sockets are a node's"),
    ("S_ISSOCK(mode_of(\"sock\"))", "there is none"),
    ("open_of(\"sock\", O_RDONLY)", "there is none"),
    ("unlink(\"sock\")", "there is none"),
    ("mknod(\"node\", S_IFREG | 0644, 0)", "EOPNOTSUPP: open makes regular files"),
    ("size_of(\"node\")", "there is none"),
    ("stat(\".\", &found) ? -1 : (int)found.st_nlink", "a removed folder has no name to ask by"),
];
/// Parts of the names of tests whose results differ in mapped and coalesced folders, and why
/// (`docs/guide/remote.md`).
const NOT_MAPPED: [(&str, &str); 21] = [
    ("PathTest.test_is_fifo_true", "EOPNOTSUPP: FIFOs are a node's"),
    ("PathTest.test_is_socket_true", "EOPNOTSUPP: sockets are a node's"),
    ("ProcessTestCase.test_remapping_std_fds", UNNAMED),
    ("ProcessTestCase.test_swap_", UNNAMED),
    (".test_check_output_stdin_arg)", UNNAMED),
    (".test_stderr_filedes)", UNNAMED),
    (".test_stderr_fileobj)", UNNAMED),
    (".test_stdout_filedes)", UNNAMED),
    (".test_stdout_fileobj)", UNNAMED),
    (".test_stdout_stderr_file)", UNNAMED),
    (".test_no_leaking)", "EMFILE: of more files than 256 it finds the limit, and is not skipped"),
    ("test_posix.PosixTester.test_mkfifo", "EOPNOTSUPP: FIFOs are a node's"),
    ("test_posix.PosixTester.test_mknod", "EOPNOTSUPP: FIFOs are a node's"),
    ("TestPosixDirFd.test_mkfifo_dir_fd", "EOPNOTSUPP: FIFOs are a node's"),
    ("TestPosixDirFd.test_mknod_dir_fd", "EOPNOTSUPP: FIFOs are a node's"),
    ("PosixTester.test_preadv_flags", "EOPNOTSUPP: preadv2 with flags"),
    ("TestCopy.test_copyfile_named_pipe", "EOPNOTSUPP: FIFOs are a node's"),
    ("TestCopyTree.test_copytree_named_pipe", "EOPNOTSUPP: FIFOs are a node's"),
    ("TestCopy.test_copy2_xattr", "EOPNOTSUPP: no extended attributes"),
    ("TestCopy.test_copyxattr", "EOPNOTSUPP: no extended attributes"),
    ("test_os.ExtendedAttributeTests", "EOPNOTSUPP: no extended attributes"),
];
/// As Python's `TemporaryFile` is.
const UNNAMED: &str = "EBADF: a file without a name is none of its children's";
/// Stressors that fail there, and why.
const NOT_STRESSED: [(&str, &str); 2] = [
    ("copy-file", "EINVAL: of files without a name"),
    ("xattr", "EOPNOTSUPP: no extended attributes"),
];

// ---- names, attributes, descriptors

#[test]
fn posix_calls_answer_as_the_kernels_under_hybrid_and_delegate() {
    let folder = Folder::new();
    if !is_nobody_let_in(&folder) {
        return skip("calls on names and files", "nobody may not run what is built here");
    }
    let native = posix(&folder, "native", |command| command);
    for (policy, flags) in POLICIES {
        let flags = flags.to_vec();
        let found = posix(&folder, policy, |_| kakehi_run(&folder, &flags));
        compare(policy, &native, &found, &[]);
    }
}

#[test]
fn posix_calls_answer_as_the_kernels_in_coalesced_and_remote_folders() {
    if !can_mount("calls on names and files in views") {
        return;
    }
    let folder = Folder::new();
    if !is_nobody_let_in(&folder) {
        return skip("calls on names and files", "nobody may not run what is built here");
    }
    let native = posix(&folder, "native", |command| command);
    let map = format!("{}=kept.sion", folder.join("coalesced").display());
    let found = posix(&folder, "coalesced", |_| {
        let mut command = kakehi_run(&folder, &["--coalesce", &map]);
        command.current_dir(folder.path());
        command
    });
    compare("coalesced", &native, &found, &NOT_REMOTE);
    for name in ["root", "root/job"] {
        fs::create_dir(folder.join(name)).expect("a folder");
        give(&folder.join(name));
    }
    let words = if is_root() { &NOBODY[..] } else { &["env"] };
    let wrapper: Vec<_> = words.iter().map(Path::new).collect();
    let server = Server::start_under(&wrapper, &folder, Scheme::Tcp);
    let found = posix(&folder, "local", |_| server.run(&folder));
    compare("remote", &native, &found, &NOT_REMOTE);
    server.end();
}

/// Runs `posix` in a folder of this name, as nobody if this is root: nothing is refused to root.
fn posix(folder: &Folder, name: &str, wrap: impl Fn(Command) -> Command) -> Vec<String> {
    let place = folder.join(name);
    fs::create_dir(&place).expect("a folder");
    let program = program("posix");
    let mut command = wrap(Command::new("env"));
    if command.get_program() != "env" {
        command.arg("env");
    }
    if is_root() {
        give(folder.path());
        give(&place);
        let mut nobody = Command::new(NOBODY[0]);
        nobody.args(&NOBODY[1..]);
        command = started_by(nobody, &command);
    }
    command.arg(program).arg(&place);
    let printed = succeed(&mut with_device(folder, command), LONG);
    printed.lines().map(str::to_owned).collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if this is not root, or nobody can execute what is built.
pub(crate) fn is_nobody_let_in(folder: &Folder) -> bool {
    give(folder.path());
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).args(["test", "-x"]).arg(kakehi());
    !is_root() || command.status().is_ok_and(|done| done.success())
}

fn give(folder: &Path) {
    if is_root() {
        std::os::unix::fs::chown(folder, Some(65534), Some(65534)).expect("a folder");
    }
}

#[track_caller]
fn compare(what: &str, native: &[String], found: &[String], known: &[(&str, &str)]) {
    assert_eq!(native.len(), found.len(), "{what}: {found:#?}");
    let (is, differences): (Vec<_>, Vec<_>) =
        native.iter().zip(found).partition(|(one, other)| one == other);
    let is_known = |line: &str| known.iter().any(|(call, _)| *call == call_of(line));
    let news: Vec<_> = differences.iter().filter(|(line, _)| !is_known(line)).collect();
    assert!(news.is_empty(), "{what}: {news:#?}");
    // What does not differ any more is not to stay among what may.
    let old = |call: &str| is.iter().any(|(line, _)| call_of(line) == call);
    let old: Vec<_> = known.iter().filter(|(call, _)| old(call)).collect();
    assert!(old.is_empty(), "{what}: as without: {old:?}");
}

/// The call of a line: behind it come the result, and an errno or nothing.
fn call_of(line: &str) -> &str {
    let call = line.rsplit_once(' ').and_then(|(line, _errno)| line.rsplit_once(' '));
    call.map_or(line, |(call, _result)| call.trim_end())
}

// ---- suites

#[test]
fn tests_of_cpython_give_the_same_results() {
    python_tests(&PYTHON.map(|name| format!("test.test_{name}")));
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn long_tests_of_cpython_give_the_same_results() {
    let modules = PYTHON_LONG.split_whitespace().map(|name| format!("test.test_{name}"));
    python_tests(&modules.collect::<Vec<_>>());
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn tests_of_h5py_give_the_same_results() {
    // Debian has two builds of it side by side.
    let packages = ["h5py._debian_h5py_serial.tests", "h5py.tests"];
    let has = |package: &str| python_with(&format!("{package}.{}", H5PY[0])).is_some();
    let package = packages.into_iter().find(|package| has(package)).unwrap_or(packages[1]);
    python_tests(&H5PY.map(|name| format!("{package}.{name}")));
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn stressors_of_stress_ng_find_nothing_wrong() {
    stress(STRESSORS.split_whitespace().take(6));
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn every_stressor_of_stress_ng_finds_nothing_wrong() {
    stress(STRESSORS.split_whitespace());
}

/// Where the files of a suite are, and who has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Native,
    Hybrid,
    Delegate,
    Coalesced,
    Remote,
}

impl Way {
    const SERVED: [Self; 4] = [Self::Hybrid, Self::Delegate, Self::Coalesced, Self::Remote];

    /// Those that this machine can serve.
    fn served() -> impl Iterator<Item = Self> {
        Self::SERVED.into_iter().filter(|way| !way.is_mapped() || can_mount("suites in views"))
    }

    /// True if only a daemon or a server has the files.
    fn is_mapped(self) -> bool {
        matches!(self, Self::Coalesced | Self::Remote)
    }

    /// Runs a program in an empty folder, which is that of its temporary files, too.
    fn run(self, folder: &Folder, words: &[&str]) -> Output {
        let scene = tempfile::tempdir_in(folder.path()).expect("a folder");
        let place = scene.path().join("local");
        fs::create_dir(&place).expect("a folder");
        let map = format!("{}={}", place.display(), scene.path().join("kept.sion").display());
        let mut server = None;
        let mut command = match self {
            Self::Native => Command::new("env"),
            Self::Hybrid => kakehi_run(folder, &[]),
            Self::Delegate => kakehi_run(folder, POLICIES[1].1),
            Self::Coalesced => kakehi_run(folder, &["--coalesce", &map]),
            Self::Remote => {
                let served = server.insert(Server::start(folder, Scheme::Tcp));
                fs::create_dir(served.job()).expect("a folder");
                let flags = served.flags(&place);
                kakehi_run(folder, &flags.each_ref().map(String::as_str))
            }
        };
        let output = run(command.args(words).current_dir(&place).env("TMPDIR", &place), LONG);
        if let Some(server) = server {
            server.end();
            fs::remove_dir_all(folder.join("root")).expect("the server's");
        }
        output
    }
}

/// Runs modules of tests natively and in every way. A module that this Python does not have, or
/// that fails to load, is none of ours.
fn python_tests(modules: &[String]) {
    let Some(python) = python_with(&modules[0]) else {
        return skip(&modules[0], "not installed: 'make setup'");
    };
    let python = python.to_str().expect("UTF-8");
    let folder = Folder::new();
    for module in modules {
        let native = results(Way::Native, &folder, python, module);
        if native.is_empty() {
            skip(module, "it does not load");
            continue;
        }
        for way in Way::served() {
            let found = results(way, &folder, python, module);
            let is_same = |name: &str| found.get(name) == native.get(name);
            let is_known = |name: &str| {
                way.is_mapped() && NOT_MAPPED.iter().any(|(test, _)| name.contains(test))
            };
            let (known, others): (Vec<_>, Vec<_>) =
                native.iter().partition(|(name, _)| is_known(name));
            let other: Vec<_> = others.iter().filter(|(name, _)| !is_same(name)).collect();
            assert!(other.is_empty(), "{module} {way:?}: natively {other:?}");
            // What does not differ any more is not to stay among what may.
            let is_old =
                |(name, result): &(&String, &String)| is_same(name) && *result != "skipped";
            let old: Vec<_> = known.iter().filter(|test| is_old(test)).collect();
            assert!(old.is_empty(), "{module} {way:?}: as natively {old:?}");
        }
        note(format_args!("{module}: {} tests", native.len()));
    }
}

/// The first Python that has a module.
fn python_with(module: &str) -> Option<PathBuf> {
    let package = module.rsplit_once('.').map_or(module, |(package, _)| package);
    let has = |python: &str| {
        let load = format!("import {package}");
        Command::new(python).args(["-c", &load]).output().is_ok_and(|done| done.status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(|python| has(python)).map(PathBuf::from)
}

/// The results of a module's tests, by their names.
fn results(way: Way, folder: &Folder, python: &str, module: &str) -> BTreeMap<String, String> {
    let output = way.run(folder, &[python, "-m", "unittest", "-v", module]);
    let said = text(&output.stderr);
    let (mut results, mut waiting) = (BTreeMap::new(), None);
    for line in said.lines() {
        let (name, rest) =
            line.split_once(" ... ").map_or((waiting, line), |(name, rest)| (Some(name), rest));
        let word = ["ok", "FAIL", "ERROR", "skipped"].iter().find(|word| rest.starts_with(**word));
        // A warning of Python, as that something was slow, comes between a name and its result.
        waiting = name.filter(|_| word.is_none());
        if let (Some(name), Some(word)) = (name, word) {
            results.insert(name.to_owned(), (*word).to_owned());
        }
    }
    results.retain(|name, _| !name.contains("_FailedTest"));
    results
}

fn stress<'a>(stressors: impl Iterator<Item = &'a str>) {
    if Command::new("stress-ng").arg("--version").output().is_err() {
        return skip("stress-ng's file stressors", "not installed: 'make setup'");
    }
    for name in stressors {
        let folder = Folder::new();
        let line = format!(
            "stress-ng --verify --temp-path . --timeout 60 --{name} 1 --{name}-ops 40
             --hdd-bytes 1m --fallocate-bytes 8m --readahead-bytes 8m --iomix-bytes 8m
             --seek-size 4m --sync-file-bytes 8m"
        );
        let words: Vec<_> = line.split_whitespace().collect();
        if !Way::Native.run(&folder, &words).status.success() {
            // As where the file system has no such call.
            skip(name, "it fails natively");
            continue;
        }
        for way in Way::served() {
            let found = way.run(&folder, &words);
            let is_known = way.is_mapped() && NOT_STRESSED.iter().any(|(known, _)| *known == name);
            let said = text(&found.stderr);
            assert_eq!(found.status.success(), !is_known, "{name} {way:?}: {said}");
        }
    }
}
