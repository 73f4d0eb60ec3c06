//! The installed files: names, versions, and what tools report of them.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::harness::{Build, check, compile, config, prefix, program};

fn exported() -> BTreeSet<String> {
    exported_by(&prefix().join("lib/libsion.so.1"))
}

pub(crate) fn exported_by(library: &Path) -> BTreeSet<String> {
    let listed = check(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect()
}

/// Both flavours, versioned, and nothing else.
#[test]
fn every_function_is_exported_under_both_names() {
    let exported = exported();
    let mut functions = 0;
    for symbol in exported.iter().filter(|symbol| symbol.contains('@')) {
        let (name, version) = symbol.split_once("@@").unwrap();
        assert_eq!(version, "SION_1.7", "{symbol}");
        let other = if name.contains("lsion_") {
            symbol.replacen("lsion_", "sion_", 1)
        } else {
            symbol.replacen("sion_", "lsion_", 1)
        };
        assert!(exported.contains(&other), "{symbol} without {other}");
        functions += 1;
    }
    assert!(functions > 180);
    assert_eq!(exported.len(), functions + 1, "{exported:?}");
}

/// Every function of the headers that is not of MPI or OpenMP exists.
#[test]
fn headers_declare_what_the_library_has() {
    let exported = exported();
    let mut declared = 0;
    for header in ["common", "serial", "generic", "group", "error", "debug"] {
        let text = fs::read_to_string(prefix().join(format!("include/sion_{header}.h"))).unwrap();
        let text = without_comments(&text);
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let function = (word.starts_with("sion_") || word.starts_with("_sion_"))
                && text.contains(&format!("{word}("))
                && word != "_sion_stat_file";
            if function {
                assert!(exported.contains(&format!("{word}@@SION_1.7")), "{word} in {header}");
                declared += 1;
            }
        }
    }
    assert!(declared > 90);
}

fn without_comments(text: &str) -> String {
    let parts = text.split("/*").enumerate();
    parts
        .map(|(index, part)| if index == 0 { part } else { part.split_once("*/").unwrap().1 })
        .collect()
}

#[test]
fn sionconfig_and_pkg_config_agree() {
    let include = format!("-I{}", prefix().join("include").display());
    assert!(config(&["--mpi", "--cflags", "--c", "--64"]).contains(&include));
    assert!(config(&["-mpi", "-cflags"]).contains(&"-DSION_MPI".to_owned()));
    assert!(config(&["--gen", "--threadsafe", "--libs"]).contains(&"-lsion".to_owned()));
    assert!(config(&["--mpi", "--libs"]).contains(&"-lsionmpi_64".to_owned()));
    let apart = [config(&["--ser", "--cflags"]), config(&["--ser", "--libs"])].concat();
    assert_eq!(config(&["--ser", "--cflags", "--libs"]), apart);
    assert_eq!(config(&["--path"]), [prefix().display().to_string()]);
    let version = config(&["--version"]).join(" ");
    assert!(version.starts_with("SIONlib Version 1.7.6 (git_rev "), "{version}");
    assert!(version.contains("), fileformat version 5 (") && config(&["-V"]).join(" ") == version);
    let pc = fs::read_to_string(prefix().join("lib/pkgconfig/sion.pc")).unwrap();
    assert!(pc.contains("-lsion") && pc.contains("Version: 1.7.6"));
}

/// Programs are told by code and text; lines on standard error come in compatibility mode only.
#[test]
fn errors_are_printed_in_compatibility_mode_only() {
    let folder = TempDir::new().unwrap();
    for (compat, printed) in [("0", 0), ("1", 3)] {
        let mut command = program("quiet", Build::Shared, &folder);
        let run = check(command.env("LSION_COMPAT", compat));
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(said.matches("SION_ERROR_RETURN on rank -1, rc=").count(), printed, "{said}");
        assert_eq!(said.lines().count(), printed, "{said}");
    }
}

#[test]
fn what_was_installed_can_be_removed() {
    let folder = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
    let archive = prefix().join("lib/libsion.a");
    check(Command::new("sh").arg(&script).arg(archive).arg(folder.path()));
    check(Command::new("sh").arg(&script).arg("--remove").arg(folder.path()));
    let left = check(Command::new("find").arg(folder.path()).args(["!", "-type", "d"]));
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

/// Link lines written for SIONlib: each of its libraries, in both flavours, shared and static.
#[test]
fn every_name_of_the_originals_libraries_can_be_linked() {
    let folder = TempDir::new().unwrap();
    let lib = prefix().join("lib");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/quiet.c");
    for name in
        ["com_64", "ser_64", "gen_64", "com_64_lock_none", "com_64_lock_pthreads", "ser_cxx_64"]
    {
        for (flavour, suffix) in [("sion", "so"), ("sion", "a"), ("lsion", "so"), ("lsion", "a")] {
            let (target, library) =
                (folder.path().join("program"), format!("lib{flavour}{name}.{suffix}"));
            let mut cc = Command::new("cc");
            cc.arg(&source).arg("-o").arg(&target).args(config(&["--gen", "--cflags"]));
            cc.arg("-L").arg(&lib).arg(format!("-l:{library}"));
            check(cc.args(["-lpthread", "-lm", "-ldl"]));
            let mut run = Command::new(&target);
            check(run.env("LD_LIBRARY_PATH", &lib).current_dir(folder.path()));
        }
    }
}

#[test]
fn a_program_finds_the_library_by_its_version() {
    let program = compile("serial", Build::Shared);
    let needed = check(Command::new("readelf").arg("-d").arg(program));
    assert!(String::from_utf8_lossy(&needed.stdout).contains("[libsion.so.1]"));
}
