//! Files that a program opens and hardly uses: they cost nothing, and are like any other.

use std::{fs, path::Path, process::Command};

use crate::{
    harness::{EAGER, Folder, SOON, kakehi, kakehi_run, program, run, skip, stats, succeed, text},
    strace::Trace,
};

/// Has a file staged from its second write on: the first goes to the kernel as ever.
const SECOND: (&str, &str) = ("KAKEHI_STAGE_AFTER", "1ns");

/// System calls of a program that uses a file `count` times under Kakehi.
fn calls(folder: &Folder, what: &str, count: u32) -> usize {
    let trace = folder.join(format!("{what}-{count}"));
    let mut command = Command::new(kakehi());
    command.args(["run", "--", "strace", "-qq", "-e", "signal=none", "-o"]).arg(&trace);
    command.arg(program("once")).args([what, &count.to_string()]).arg(folder.join("file"));
    let traced = run(&mut command, SOON);
    assert!(traced.status.success(), "{}", text(&traced.stderr));
    fs::read_to_string(trace).expect("a trace").lines().count()
}

#[test]
fn files_used_once_cost_no_system_call() {
    if !Trace::is_possible() {
        return skip("system calls of files used once", "no strace");
    }
    let folder = Folder::new();
    fs::write(folder.join("file"), "file").expect("a file");
    for what in ["read", "write"] {
        let few = calls(&folder, what, 10);
        // open, read or write, close.
        assert_eq!(calls(&folder, what, 60) - few, 50 * 3, "{what}");
    }
}

#[test]
fn files_used_once_are_like_any_other() {
    let folder = Folder::new();
    let mixed = |setting: Option<(&str, &str)>, name: &str| {
        let place = folder.join(name);
        fs::create_dir(&place).expect("a folder");
        let mut command = match setting {
            None => Command::new(program("once")),
            Some(setting) => {
                let mut command = Command::new(kakehi());
                command.envs([setting]).args(["run", "--"]).arg(program("once"));
                command
            }
        };
        let ran = run(command.arg("mixed").arg(&place), SOON);
        assert!(ran.status.success(), "{name}: {}", text(&ran.stderr));
        (text(&ran.stdout), contents(&place))
    };
    let native = mixed(None, "native");
    assert_eq!(mixed(Some(SECOND), "second"), native);
    assert_eq!(mixed(Some(EAGER[0]), "first"), native);
    assert_eq!(mixed(Some(("KAKEHI_STAGE_AFTER", "30us")), "usual"), native);
}

/// 64 times the setting; before that a program's writes are the kernel's.
#[test]
fn daemon_starts_once_small_writes_have_taken_what_it_costs() {
    let folder = Folder::new();
    let told = folder.join("told");
    for (after, sessions) in [("1s", 0), ("1us", 1)] {
        let mut command = kakehi_run(&folder, &["--stats", told.to_str().expect("UTF-8")]);
        command.env("KAKEHI_STAGE_AFTER", after).arg(program("pattern")).arg(folder.path());
        succeed(command.args(["1", "300000", "100"]), SOON);
        let said = stats(&told).pop().expect("a document");
        assert_eq!(said["sessions"], sessions, "{after}: {said:#}");
    }
}

/// Names and bytes of the regular files in a folder.
fn contents(folder: &Path) -> Vec<(String, String)> {
    let files = fs::read_dir(folder).expect("a folder").flatten();
    let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut files: Vec<_> = files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read_to_string(entry.path()).expect("text"))
        })
        .collect();
    files.sort();
    files
}
