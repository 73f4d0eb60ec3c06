//! `make install` and `make uninstall` under any umask, and the demonstration of `make demo`.

use std::{os::unix::fs::MetadataExt as _, path::Path, process::Command};

use crate::harness::{Folder, SOON, kakehi, run, skip, succeed, text};

/// `make` at the root, where everything is built already.
fn make(words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("CARGO_TARGET_DIR");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.args(["-c", "umask 077; exec make -s -o build \"$@\"", "make"]).args(words);
    command
}

#[test]
fn what_is_installed_is_everybodys_to_use_and_can_be_removed() {
    let folder = Folder::new();
    let destination = format!("DESTDIR={}", folder.path().display());
    for _ in 0..2 {
        succeed(&mut make(&["install", "PREFIX=/opt/it", &destination]), SOON);
    }
    let prefix = folder.join("opt/it");
    let find = |words: &[&str]| succeed(Command::new("find").arg(&prefix).args(words), SOON);
    assert_eq!(find(&["!", "-type", "l", "!", "-perm", "-444"]), "");
    assert_eq!(find(&["-type", "d", "!", "-perm", "-111"]), "");
    let command = std::fs::metadata(prefix.join("bin/kakehi")).expect("installed");
    assert_eq!(command.mode() & 0o777, 0o755);
    let mut named = Command::new("grep");
    named.args(["-rlI", &*folder.path().to_string_lossy()]).arg(&prefix);
    assert_eq!(text(&run(&mut named, SOON).stdout), "", "the folder of a package is in a file");

    succeed(&mut make(&["uninstall", "PREFIX=/opt/it", &destination]), SOON);
    assert_eq!(find(&["!", "-type", "d", "-o", "-name", "*kakehi*"]), "");
}

/// The loader could not be told of the library there, nor others of the folder.
#[test]
fn a_prefix_that_programs_cannot_be_told_of_is_refused() {
    let folder = Folder::new();
    for name in ["a b", "a:b", "relative"] {
        let prefix = match name {
            "relative" => name.to_owned(),
            _ => folder.join(name).display().to_string(),
        };
        let output = run(&mut make(&["install", &format!("PREFIX={prefix}")]), SOON);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("absolute"), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0, "{name}");
    }
}

#[test]
fn build_without_cargo_names_the_set_up() {
    let mut command = Command::new("make");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).env_remove("MAKEFLAGS");
    let output = run(command.args(["build", "CARGO=no-such-cargo"]), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("'make setup'"), "{said}");
}

#[test]
fn demo_finds_equal_files_and_less_time_on_a_slow_file_system() {
    for name in ["mpirun", "lmp"] {
        if Command::new("which").arg(name).output().map_or(true, |found| !found.status.success()) {
            return skip("the demonstration", format_args!("no {name}"));
        }
    }
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo.sh");
    // Its verdict on time may fail on a machine with other work.
    let mut said = String::new();
    let is_kept = (0..3).any(|_| {
        let output = run(Command::new("bash").arg(&demo).env("KAKEHI", kakehi()), 5 * SOON);
        said = text(&output.stdout) + &text(&output.stderr);
        output.status.success()
    });
    assert!(is_kept, "{said}");
    assert!(said.contains("equal to the last byte"), "{said}");
    if let Some(why) = said.split("demo: SKIPPED ").nth(1) {
        return skip("the demonstration", why.trim());
    }
    let (_, gain) = said.split_once("demo: ok: equal lines, ").expect("a verdict");
    let (_, requests) = gain.split_once("times faster: ").expect("a verdict");
    let numbers = requests
        .lines()
        .next()
        .unwrap_or_default()
        .split(' ')
        .filter_map(|word| word.trim().parse::<u64>().ok());
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.len() == 2 && numbers[0] * 10 < numbers[1], "{requests}");
}
