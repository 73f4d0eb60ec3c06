//! OTF2, the trace format of Score-P, built with this library in place of SIONlib: traces are
//! written by processes, printed by OTF2's own tool, and read by other numbers of processes.
//!
//! `packaging/setup.sh all` fetches Debian's source; without it the test is skipped.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    harness::{check, prefix},
    launch::{Mpi, there},
};

const MPI: Mpi = Mpi::OpenMpi;
const WRITERS: u32 = 4;
/// Calls that `tests/c/otf2.c` records for each location.
const CALLS: u32 = 30_000;

/// Where OTF2 is installed; `None` without its source.
fn otf2() -> Option<PathBuf> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stored = tmp.parent()?.join("otf2");
    let archive = fs::read_dir(stored).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".orig.tar.xz"))
    })?;
    let built = tmp.join("otf2");
    let installed = built.join("installed");
    // Installed last: half of a build is done again. The library is linked by its version only.
    if installed.join("done").exists() {
        return Some(installed);
    }
    fs::remove_dir_all(&built).ok();
    fs::create_dir_all(built.join("source")).unwrap();
    let source = built.join("source");
    check(
        Command::new("tar")
            .arg("xf")
            .arg(archive)
            .args(["--strip-components=1", "-C"])
            .arg(&source),
    );
    let mut configure = Command::new(source.join("configure"));
    configure.arg(format!("--prefix={}", installed.display()));
    configure.arg(format!("--with-sionlib={}", prefix().display()));
    configure.args(["--enable-shared", "--disable-static", "PYTHON=:", "SPHINX=:"]);
    configure.args(["PYTHON_FOR_GENERATOR=:", "CFLAGS=-O0 -g0", "CXXFLAGS=-O0 -g0"]);
    check(configure.current_dir(&built));
    check(Command::new("make").args(["-j2", "install"]).current_dir(&built));
    fs::write(installed.join("done"), "").unwrap();
    Some(installed)
}

fn build(otf2: &Path, locations: u32, folder: &TempDir) -> PathBuf {
    let (target, lib) = (folder.path().join("program"), otf2.join("lib"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/otf2.c");
    let mut compiler = Command::new(MPI.compiler("mpicc"));
    compiler.args(["-g", "-Wall", "-Wextra", "-Werror"]).arg(format!("-DLOCATIONS={locations}"));
    compiler.arg("-I").arg(otf2.join("include")).arg(source).arg("-o").arg(&target);
    compiler.arg("-L").arg(&lib).arg(format!("-Wl,-rpath,{}", lib.display())).arg("-lotf2");
    check(&mut compiler);
    target
}

#[test]
fn otf2_trace_is_written_printed_and_read_by_ranks() {
    prefix();
    let Some(otf2) = otf2().filter(|_| there(&MPI.compiler("mpicc"))) else {
        let line = b"1 SKIPPED: OTF2 with this library: no source of it, see packaging/setup.sh\n";
        io::stderr().write_all(line).unwrap();
        return;
    };
    for locations in [1, 2] {
        let folder = TempDir::new().unwrap();
        let program = build(&otf2, locations, &folder);
        check(MPI.ranks(WRITERS, &program, &folder).arg("write"));
        assert!(folder.path().join("trace/trace/1.evt").exists(), "two physical files");
        let mut print = Command::new(otf2.join("bin/otf2-print"));
        let printed = check(print.arg("trace/trace.otf2").current_dir(folder.path()));
        let printed = String::from_utf8(printed.stdout).unwrap();
        let entered = printed.lines().filter(|line| line.starts_with("ENTER")).count();
        assert_eq!(entered, (WRITERS * locations * CALLS) as usize);
        for readers in [1, 3, WRITERS, 2 * WRITERS] {
            check(MPI.ranks(readers, &program, &folder).arg("read"));
        }
    }
}
