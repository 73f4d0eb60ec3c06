//! Installs the library once, compiles programs against it, and runs them with a deadline.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, OnceLock},
};

use tempfile::TempDir;

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Build {
    /// C11 against the shared library.
    Shared,
    /// C11 with AddressSanitizer, against the shared library.
    Sanitized,
    /// C11 against the static library, under the names SIONlib's libraries have.
    Static,
    /// The same source as C++11.
    Cxx,
    /// A library to preload.
    Preload,
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-g"];
const STATIC: [&str; 5] =
    ["-lsiongen_64", "-lsionser_64", "-lsioncom_64", "-llsioncom_64_lock_pthreads", "-lm"];
/// Longest that a program may run.
const DEADLINE: &str = "300";

/// Where the library was installed, as a user would.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", "kakehi-sion", "--offline"]).current_dir(here);
        let profile = if cfg!(debug_assertions) {
            "debug"
        } else {
            cargo.arg("--release");
            "release"
        };
        check(&mut cargo);
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let archive = tmp.parent().unwrap().join(profile).join("libsion.a");
        let prefix = tmp.join("sion");
        fs::remove_dir_all(&prefix).ok();
        check(Command::new("sh").arg(here.join("install.sh")).arg(archive).arg(&prefix));
        prefix
    })
}

/// Returns the words of `sionconfig`'s output.
pub(crate) fn config(words: &[&str]) -> Vec<String> {
    let said = check(Command::new(prefix().join("bin/sionconfig")).args(words));
    String::from_utf8(said.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Compiles `tests/c/NAME.c`, once for each way.
pub(crate) fn compile(name: &str, build: Build) -> PathBuf {
    static DONE: Mutex<Option<HashMap<(String, Build), PathBuf>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let done = done.get_or_insert_default();
    let key = (name.to_owned(), build);
    done.entry(key).or_insert_with(|| compile_anew(name, build)).clone()
}

fn compile_anew(name: &str, build: Build) -> PathBuf {
    let target = prefix().join(format!("{name}-{build:?}"));
    let cxx = build == Build::Cxx;
    let mut compiler = Command::new(if cxx { "c++" } else { "cc" });
    compiler.args(WARNINGS).args(if cxx { ["-std=c++11", "-xc++"] } else { ["-std=c11", "-xc"] });
    compiler.arg("-D_DEFAULT_SOURCE").args(config(&["--gen", "--cflags"]));
    match build {
        Build::Sanitized => compiler.args(["-Wpedantic", "-fsanitize=address"]),
        // Function pointers come from dlsym.
        Build::Preload => compiler.args(["-shared", "-fPIC"]),
        _ => compiler.arg("-Wpedantic"),
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    compiler.arg(source).arg("-o").arg(&target).args(["-xnone", "-pthread"]);
    match build {
        Build::Preload => {}
        Build::Static => {
            let lib = prefix().join("lib");
            compiler.arg("-static-libgcc").arg("-L").arg(lib).arg("-Wl,-Bstatic").args(STATIC);
            compiler.args(["-Wl,-Bdynamic"]);
        }
        _ => {
            compiler.args(config(&["--gen", "--libs"]));
        }
    }
    check(&mut compiler);
    target
}

/// A program to run in `folder`.
pub(crate) fn program(name: &str, build: Build, folder: &TempDir) -> Command {
    let mut command = Command::new("timeout");
    command.arg(DEADLINE).arg(compile(name, build)).current_dir(folder.path());
    command
}

/// Runs `command`; anything but success fails the test with what it said.
pub(crate) fn check(command: &mut Command) -> Output {
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}
