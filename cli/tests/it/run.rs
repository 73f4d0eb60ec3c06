//! `kakehi run` with the kill switch, and the command line itself.

use std::{fs, os::unix::fs::symlink, process::Command};

use tempfile::tempdir;

use crate::{fails, kakehi, output};

#[test]
fn the_kill_switch_runs_the_program_untouched() {
    let folder = tempdir().expect("temporary folder");
    let mut command = kakehi(folder.path());
    command.env("KAKEHI_DISABLE", "1");
    command.args(["run", "--", "sh", "-c", "echo \"[$1][$LD_PRELOAD]\"; exit 9", "sh", "a b"]);
    assert_eq!(output(&mut command), (9, "[a b][]\n".to_owned(), String::new()));
}

#[test]
fn a_program_that_cannot_start_ends_as_in_a_shell() {
    let folder = tempdir().expect("temporary folder");
    fs::write(folder.path().join("data"), "no program").expect("file");
    for (program, code) in [("nosuchprogram", 127), ("./data", 126)] {
        let mut command = kakehi(folder.path());
        command.env("KAKEHI_DISABLE", "1").args(["run", "--", program]);
        fails(&mut command, code, &[program]);
    }
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    let folder = tempdir().expect("temporary folder");
    let arguments: [&[&str]; 7] = [
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "--nosuch", "--", "true"],
        &["run", "--map", "a=b", "--", "true"],
        &["serve", "--listen", "tcp://:1"],
        &["drain", "--timeout", "30"],
    ];
    for arguments in arguments {
        fails(kakehi(folder.path()).args(arguments), 2, &["usage", "--help"]);
    }
}

#[test]
fn help_of_every_command_goes_to_standard_output() {
    let folder = tempdir().expect("temporary folder");
    for name in ["run", "serve", "status", "drain", "doctor", "env", "config"] {
        let (code, help, errors) = output(kakehi(folder.path()).args([name, "--help"]));
        assert_eq!((code, errors.as_str()), (0, ""));
        assert!(help.contains(&format!("Usage: kakehi {name}")), "{help}");
        assert!(help.contains("Exit status:"), "{name} does not tell its exit status");
    }
    let (code, version, _) = output(kakehi(folder.path()).arg("--version"));
    assert_eq!((code, version), (0, format!("kakehi {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn bench_starts_the_program_beside_this_one() {
    let folder = tempdir().expect("temporary folder");
    let kakehi_there = folder.path().join("kakehi");
    // By `cp`: a file that this process writes cannot be run while a child, forked for another
    // test at that moment, still holds it open (ETXTBSY).
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_kakehi")).arg(&kakehi_there).status();
    assert!(copied.expect("cp starts").success());
    let start = || {
        let mut command = Command::new(&kakehi_there);
        command.args(["bench", "delegate", "--quick"]);
        command
    };
    fails(&mut start(), 1, &["kakehi-bench", "make install"]);
    symlink("/bin/echo", folder.path().join("kakehi-bench")).expect("link");
    assert_eq!(output(&mut start()), (0, "delegate --quick\n".to_owned(), String::new()));
}
