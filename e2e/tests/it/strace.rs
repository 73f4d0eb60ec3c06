//! Bytes moved by a program's own system calls, as `strace` saw them: the guard against tests that
//! pass because nothing was delegated.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Calls that write to a file, and the place of the file among their arguments.
const WRITES: [(&str, usize); 8] = [
    ("write", 0),
    ("writev", 0),
    ("pwrite64", 0),
    ("pwritev", 0),
    ("pwritev2", 0),
    ("copy_file_range", 2),
    ("sendfile", 0),
    ("splice", 2),
];

/// A trace to be taken, one file per thread.
pub(crate) struct Trace {
    prefix: PathBuf,
}

impl Trace {
    /// A trace into new files in `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir(&folder).expect("a new folder");
        Self { prefix: folder.join("thread") }
    }

    pub(crate) fn is_possible() -> bool {
        Command::new("strace").arg("-V").output().is_ok()
    }

    /// `strace`, to which the traced program is added.
    pub(crate) fn command(&self) -> Command {
        let calls: Vec<_> = WRITES.iter().map(|(name, _)| *name).collect();
        let mut command = Command::new("strace");
        // One file per thread: no call is then broken in two.
        command.args(["-ff", "-y", "-qq", "-s", "0", "--seccomp-bpf", "-e", "signal=none"]);
        command.arg("-e").arg(format!("trace={}", calls.join(","))).arg("-o").arg(&self.prefix);
        command
    }

    /// Bytes written to regular files under `folder`, or to the file `folder`, by call.
    pub(crate) fn written(&self, folder: &Path) -> BTreeMap<String, u64> {
        let mut bytes = BTreeMap::new();
        let traces = self.prefix.parent().expect("a folder");
        for entry in fs::read_dir(traces).expect("traces").flatten() {
            assert!(entry.path().file_stem() == Some(OsStr::new("thread")), "{entry:?}");
            let trace =
                String::from_utf8_lossy(&fs::read(entry.path()).expect("a trace")).into_owned();
            for (call, path, len) in trace.lines().filter_map(parse) {
                if path.starts_with(folder) {
                    *bytes.entry(call.to_owned()).or_default() += len;
                }
            }
        }
        bytes
    }
}

/// The call, the file's path, and the bytes of one line of a trace.
fn parse(line: &str) -> Option<(&str, &Path, u64)> {
    let (call, rest) = line.split_once('(')?;
    let place = WRITES.iter().find(|(name, _)| *name == call)?.1;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let len = result.split_whitespace().next()?.parse().ok()?;
    // A path may hold anything but is closed by `>`; the descriptors come first.
    let argument = arguments.split("<").nth(if place == 0 { 1 } else { 2 })?;
    let path = argument.split('>').next()?;
    Some((call, Path::new(path), len))
}

#[test]
fn lines_of_a_trace_are_understood() {
    let parsed = |line| parse(line).map(|(call, path, len)| (call, path.to_str().unwrap(), len));
    assert_eq!(parsed(r#"write(1</tmp/a b>, ""..., 40) = 40"#), Some(("write", "/tmp/a b", 40)));
    let copied = "copy_file_range(4</tmp/a>, NULL, 5</tmp/b>, NULL, 99, 0) = 12";
    assert_eq!(parsed(copied), Some(("copy_file_range", "/tmp/b", 12)));
    assert_eq!(parsed(r#"write(1</tmp/a>, ""..., 40) = -1 ENOSPC (No space left)"#), None);
    let vector = r#"writev(3</t/x>(deleted), [{iov_base=""..., iov_len=1}], 1) = 1"#;
    assert_eq!(parsed(vector), Some(("writev", "/t/x", 1)));
    assert_eq!(parsed("+++ exited with 0 +++"), None);
}
