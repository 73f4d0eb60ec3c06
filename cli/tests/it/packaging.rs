//! The module file and the unit for systemd: they name what there is.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::tempdir;

use crate::{kakehi, output};

const UNIT: &str = "kakehi-serve@.service";

/// A file of `packaging/` as it is installed in `prefix`.
fn installed(name: &str, prefix: &Path) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let text = fs::read_to_string(packaging.join(name)).expect("readable");
    text.replace("@PREFIX@", prefix.to_str().expect("UTF-8"))
}

/// A program of this machine.
fn program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name)).find(|it| it.exists())
}

#[test]
fn the_unit_starts_a_command_with_flags_that_exist() {
    let folder = tempdir().expect("temporary folder");
    let unit = installed(UNIT, folder.path());
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<_> = command.expect("a command").split(' ').collect();
    assert_eq!(Path::new(words[0]), folder.path().join("bin/kakehi"));
    let (code, help, errors) = output(kakehi(folder.path()).args([words[1], "--help"]));
    assert_eq!((code, errors.as_str()), (0, ""));
    let flags: Vec<_> = words.iter().filter(|word| word.starts_with("--")).collect();
    assert_eq!(flags.len(), 4);
    for flag in flags {
        assert!(help.contains(&format!("{flag} <")), "{flag}");
    }
    // It makes openat2 fail, without which no path is kept below the root.
    assert!(!unit.lines().any(|line| line.starts_with("RestrictSUIDSGID")));
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(analyze) = program("systemd-analyze") else {
        return println!("1 SKIPPED: no systemd-analyze");
    };
    let folder = tempdir().expect("temporary folder");
    fs::create_dir(folder.path().join("bin")).expect("folder");
    symlink(env!("CARGO_BIN_EXE_kakehi"), folder.path().join("bin/kakehi")).expect("link");
    let unit = folder.path().join(UNIT.replace('@', "@alice"));
    let text = installed(UNIT, folder.path());
    fs::write(&unit, &text).expect("written");
    let said = Command::new(&analyze).args(["verify", "--man=no"]).arg(&unit).output();
    let said = String::from_utf8(said.expect("starts").stderr).expect("UTF-8");
    // It tells of this machine's own units, too.
    assert!(!said.contains("kakehi"), "{said}");

    let denied = text.lines().find_map(|line| line.strip_prefix("SystemCallFilter=~"));
    for set in denied.expect("a list").split(' ') {
        let (code, calls, _) = output(Command::new(&analyze).args(["syscall-filter", set]));
        assert_eq!(code, 0, "{set}");
        assert!(calls.contains(set), "{calls}");
        assert!(!calls.contains("openat2") && !calls.contains("io_uring"), "{set}");
    }
}

#[test]
fn the_module_file_sets_paths_and_names_commands_that_exist() {
    let folder = tempdir().expect("temporary folder");
    let prefix = folder.path().join("opt");
    let module = installed("modulefile", &prefix);
    assert!(module.starts_with("#%Module"), "both kinds of modules look for it");
    let (_, help, _) = output(kakehi(folder.path()).arg("--help"));
    let named = module.split("'kakehi ").skip(1);
    let named: Vec<_> = named.filter_map(|rest| rest.split([' ', '\'']).next()).collect();
    assert_eq!(named, ["run", "doctor"]);
    for command in named {
        assert!(help.contains(&format!("  {command} ")), "{command}");
    }
    let Some(tclsh) = program("tclsh") else { return println!("1 SKIPPED: no tclsh") };
    let stubs = "proc module-whatis {text} {}\nproc conflict {name} {}\n\
                 proc prepend-path {name path} {puts \"$name=$path\"}\n";
    let script = folder.path().join("script");
    fs::write(&script, format!("{stubs}{module}ModulesHelp\n")).expect("written");
    let (code, paths, errors) = output(Command::new(tclsh).arg(script));
    assert_eq!(code, 0, "{errors}");
    assert!(paths.starts_with(&format!("PATH={}/bin\n", prefix.display())), "{paths}");
    assert_eq!(paths.matches(&*prefix.to_string_lossy()).count(), 6);
}
