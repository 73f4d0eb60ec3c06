//! The wheel: built, installed into a fresh environment, and used there.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::harness::{Folder, SOON, run, skip, succeed, text};

/// Building compiles the Python module.
const LONG: Duration = Duration::from_secs(600);

/// The Python that `make setup` made, if it has what this test needs.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/venv/bin/python");
    let has = Command::new(&python).args(["-c", "import maturin, pytest, fsspec"]).output();
    let has = has.is_ok_and(|output| output.status.success());
    if !has {
        skip("wheel", "no maturin, pytest, and fsspec in target/venv: run 'make setup'");
    }
    has.then_some(python)
}

#[test]
fn wheel_runs_a_program_and_passes_its_suite_in_a_fresh_environment() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("CARGO_TARGET_DIR");
    make.current_dir(&root).args(["-s", "-o", "build", "wheel"]).env("PY", &python);
    let wheel = succeed(make.arg(format!("DIST={}", folder.path().display())), LONG);
    assert!(wheel.trim_end().ends_with(".whl") && wheel.contains("manylinux"), "{wheel}");

    succeed(Command::new(&python).args(["-m", "venv"]).arg(folder.join("venv")), LONG);
    let installed = folder.join("venv/bin/python");
    let mut pip = Command::new(&installed);
    pip.args(["-m", "pip", "install", "-q", "--no-index", wheel.trim_end()]);
    succeed(&mut pip, LONG);
    for file in ["lib/libkakehi_preload.so", "lib/libsion.so", "include/sion.h", "bin/siondump"] {
        assert!(folder.join("venv").join(file).is_file(), "{file}");
    }
    assert!(folder.join("venv/share/man/man1/kakehi.1").is_file());

    let mut wrote = Command::new(folder.join("venv/bin/kakehi"));
    wrote.args(["run", "--", "python3", "-c", "open('x', 'w').write('y')"]);
    succeed(wrote.current_dir(folder.path()), SOON);
    assert_eq!(std::fs::read(folder.join("x")).expect("written"), b"y");

    // What the suite imports is beside maturin.
    let site = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let site = succeed(Command::new(&python).args(["-c", site]), SOON);
    let mut suite = Command::new(&installed);
    suite.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("python/tests"));
    suite.current_dir(folder.path()).env("PYTHONPATH", site.trim_end());
    suite.env("PYTHONDONTWRITEBYTECODE", "1");
    let said = run(&mut suite, LONG);
    let output = text(&said.stdout);
    assert!(said.status.success() && output.contains(" passed"), "{output}");

    links_a_program(&folder);
}

/// Against the headers and the library of the wheel.
fn links_a_program(folder: &Folder) {
    let source = "#include <sion.h>\nint main(void) { int a, b, c, d;\
                  return sion_get_version(&a, &b, &c, &d) == 1 && a == 1 ? 0 : 1; }";
    std::fs::write(folder.join("a.c"), source).expect("written");
    let flags = run(
        Command::new(folder.join("venv/bin/sionconfig")).args(["--ser", "--cflags", "--libs"]),
        SOON,
    );
    let mut cc = Command::new("cc");
    cc.args(["a.c", "-o", "a"]).args(text(&flags.stdout).split_whitespace());
    succeed(cc.current_dir(folder.path()), LONG);
    succeed(&mut Command::new(folder.join("a")), SOON);
}
