//! `kakehi run` with the kill switch, and the command line itself.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    process::Command,
};

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
fn the_kill_switch_asks_for_no_correct_setting() {
    let folder = tempdir().expect("temporary folder");
    let mut command = kakehi(folder.path());
    command.env("KAKEHI_DISABLE", "yes").env("KAKEHI_CONFIG", "/nowhere").env("KAKEHI_IDLE", "?");
    command.args(["run", "--", "echo", "ran"]);
    assert_eq!(output(&mut command), (0, "ran\n".to_owned(), String::new()));
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
    // A folder of this name in the current one is not what was looked for in PATH.
    fs::create_dir(folder.path().join("nosuchprogram")).expect("a folder");
    let mut command = kakehi(folder.path());
    command.env("KAKEHI_DISABLE", "1").args(["run", "--", "nosuchprogram"]);
    fails(&mut command, 127, &["check its path"]);
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    let folder = tempdir().expect("temporary folder");
    let arguments: [&[&str]; 8] = [
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "--nosuch", "--", "true"],
        &["run", "--map", "a=b", "--", "true"],
        &["serve", "--listen", "tcp://:1"],
        &["drain", "--timeout", "30"],
        &["multifile"],
    ];
    for arguments in arguments {
        fails(kakehi(folder.path()).args(arguments), 2, &["usage", "--help"]);
    }
}

#[test]
fn what_is_not_utf_8_is_refused_with_the_name_of_its_flag() {
    let folder = tempdir().expect("temporary folder");
    let value = OsStr::from_bytes(b"/tmp/\xff");
    for (name, flag) in
        [("status", "--socket"), ("drain", "--socket"), ("serve", "--socket"), ("run", "--key")]
    {
        let mut command = kakehi(folder.path());
        command.args([name, flag]).arg(value);
        if name == "run" {
            command.arg("true");
        }
        fails(&mut command, 2, &[flag, "not UTF-8"]);
    }
}

#[test]
fn a_program_needs_no_dashes_before_it_and_keeps_its_own() {
    let folder = tempdir().expect("temporary folder");
    for words in [&["run", "echo", "-n", "--json"][..], &["run", "--", "echo", "-n", "--json"]] {
        let mut command = kakehi(folder.path());
        command.env("KAKEHI_DISABLE", "1").args(words);
        assert_eq!(output(&mut command), (0, "--json".to_owned(), String::new()));
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
fn manual_pages_and_completions_know_the_commands() {
    let folder = tempdir().expect("temporary folder");
    let done = output(kakehi(folder.path()).args(["manual", "share"]));
    assert_eq!(done, (0, String::new(), String::new()));
    let share = folder.path().join("share");
    for (file, part) in [
        ("man/man1/kakehi-run.1", "KAKEHI_DISABLE"),
        ("man/man1/kakehi-run.1", "\\fBkakehi run\\fR [OPTIONS] <CMD>...\n"),
        (
            "man/man1/kakehi-run.1",
            concat!("-run 1 \" \" \"Kakehi ", env!("CARGO_PKG_VERSION"), "\" \"Kakehi manual\""),
        ),
        ("man/man1/kakehi-multifile-join.1", "ckpt.sion"),
        ("bash-completion/completions/kakehi.bash", "--remote"),
        ("zsh/site-functions/_kakehi", "--remote"),
        ("fish/vendor_completions.d/kakehi.fish", "remote"),
    ] {
        let text = fs::read_to_string(share.join(file)).expect("written");
        assert!(text.contains(part), "{file}");
    }
    let pages = fs::read_dir(share.join("man/man1")).expect("pages");
    let names = pages.map(|page| page.expect("a page").file_name().into_string().expect("UTF-8"));
    for name in names {
        assert!(!name.contains("help") && !name.contains("manual"), "{name}");
    }
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
