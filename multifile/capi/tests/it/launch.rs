//! Compiles programs with each MPI that is installed, against the library as `install-shims.sh`
//! installs it or against its sources with AddressSanitizer, and runs them on ranks.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use crate::harness::{check, config, prefix};

/// Longest that a job may run, in seconds.
const DEADLINE: &str = "300";
const FLAGS: [&str; 3] = ["-g", "-Wall", "-Werror"];
const SANITIZE: &str = "-fsanitize=address";

/// Parts installed beside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Omp,
    Fortran,
    Mpi(Mpi),
}

/// An MPI as Debian installs it, beside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mpi {
    OpenMpi,
    Mpich,
}

impl Mpi {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// The compiler named `kind`, as `mpicc`.
    pub(crate) fn compiler(self, kind: &str) -> String {
        format!("{kind}.{}", self.name())
    }

    /// `count` ranks of `program` in `folder`, more than there are processors.
    pub(crate) fn ranks(self, count: u32, program: &Path, folder: &TempDir) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", DEADLINE]).arg(self.compiler("mpirun"));
        if self == Self::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        command.args(["-n", &count.to_string()]).arg(program).current_dir(folder.path());
        // What the launchers allocate and keep is not ours.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        command
    }
}

/// `program` alone in `folder`, with a deadline.
pub(crate) fn timed(program: &Path, folder: &TempDir) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", DEADLINE]).arg(program).current_dir(folder.path());
    command
}

/// Runs `test` with each MPI; without its compiler says so.
pub(crate) fn with_each_mpi(mut test: impl FnMut(Mpi)) {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        if there(&mpi.compiler("mpicc")) {
            test(mpi);
        }
    }
}

/// True if a compiler is installed; `packaging/setup.sh all` does.
pub(crate) fn there(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("--version").output().is_ok();
    if !found {
        skip(compiler);
    }
    found
}

/// Past the capture of a test's output.
fn skip(compiler: &str) {
    let line = format!("1 SKIPPED: tests with {compiler}: not found\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Installs `part` once beside the core.
pub(crate) fn install(part: Part) {
    static DONE: Mutex<Vec<Part>> = Mutex::new(Vec::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if done.contains(&part) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install-shims.sh");
    let mut command = Command::new("sh");
    command.arg(script).arg(prefix()).env("CFLAGS", "-Werror").env_remove("DESTDIR");
    match part {
        Part::Omp => command.arg("omp"),
        Part::Fortran => command.arg("fortran"),
        Part::Mpi(mpi) => command.arg("mpi").env("MPICC", mpi.compiler("mpicc")),
    };
    check(&mut command);
    done.push(part);
}

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Against what was installed, as `sionconfig` says.
    Installed,
    /// With the sources of the shims, all under AddressSanitizer.
    Sanitized,
}

/// A test program, its language told by its suffix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// As `sionconfig` names it: `ser`, `omp`, `mpi`, `ompi`.
    pub(crate) part: &'static str,
    /// Sources of the library that it needs.
    pub(crate) shims: &'static [&'static str],
}

/// Compiles `source` in `folder`; `mpi` when it is a program for MPI.
pub(crate) fn build(source: Source, mpi: Option<Mpi>, link: Link, folder: &TempDir) -> PathBuf {
    let target = folder.path().join("program");
    let (_, suffix) = source.file.rsplit_once('.').expect("a file name");
    let fortran = suffix.starts_with('f');
    let part = format!("--{}", source.part);
    let language = if fortran { "--f90" } else { "--c" };
    let mut compiler = Command::new(compiler(mpi, suffix));
    compiler.args(FLAGS).args(config(&[&part, language, "--cflags"])).arg("-o").arg(&target);
    if suffix == "c" {
        compiler.args(["-Wextra", "-D_DEFAULT_SOURCE"]);
    }
    if source.part.starts_with("omp") {
        compiler.arg("-fopenmp");
    }
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source.file));
    match link {
        Link::Installed => {
            if let Some(mpi) = mpi {
                // The MPI installed first is the one found by default.
                let own = prefix().join("lib").join(mpi.name());
                compiler.arg("-L").arg(&own).arg(format!("-Wl,-rpath,{}", own.display()));
            }
            compiler.args(config(&[&part, language, "--libs"]));
        }
        Link::Sanitized => {
            compiler.arg(SANITIZE).args(sanitized_shims(source.shims, mpi, folder));
            compiler.args(config(&["--ser", "--libs"]));
        }
    }
    check(&mut compiler);
    target
}

/// Objects of the library's own sources, under AddressSanitizer.
fn sanitized_shims(shims: &[&str], mpi: Option<Mpi>, folder: &TempDir) -> Vec<PathBuf> {
    let object = |shim: &&str| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shims/{shim}.c"));
        let object = folder.path().join(format!("{shim}.o"));
        let mut compiler = Command::new(compiler(mpi, "c"));
        compiler.args(FLAGS).args([SANITIZE, "-Wextra", "-fopenmp", "-c", "-I"]);
        check(compiler.arg(prefix().join("include")).arg(source).arg("-o").arg(&object));
        object
    };
    shims.iter().map(object).collect()
}

/// The compiler for a file that ends in `suffix`.
fn compiler(mpi: Option<Mpi>, suffix: &str) -> String {
    let (alone, with_mpi) = match suffix {
        "c" => ("cc", "mpicc"),
        "cpp" => ("c++", "mpicxx"),
        _ => ("gfortran", "mpif90"),
    };
    mpi.map_or_else(|| alone.to_owned(), |mpi| mpi.compiler(with_mpi))
}
