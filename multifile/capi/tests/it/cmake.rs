//! A project that finds the library with CMake.

use std::{path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    harness::{check, prefix},
    launch::{Mpi, Part, install, there, timed},
};

#[test]
fn cmake_project_finds_every_installed_part() {
    let mpi = Mpi::OpenMpi;
    if ![&mpi.compiler("mpicc"), "cmake", "gfortran"].into_iter().all(there) {
        return;
    }
    for part in [Part::Omp, Part::Fortran, Part::Mpi(mpi)] {
        install(part);
    }
    let folder = TempDir::new().unwrap();
    let built = folder.path().join("built");
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmake");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(project).arg("-B").arg(&built);
    cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    cmake.arg(format!("-DMPI_NAME={}", mpi.name()));
    check(cmake.arg(format!("-DMPI_C_COMPILER={}", mpi.compiler("mpicc"))));
    check(Command::new("cmake").arg("--build").arg(&built));
    for program in ["shared", "static", "fortran", "omp"] {
        check(&mut timed(&built.join(program), &folder));
    }
    check(mpi.ranks(2, &built.join("mpi"), &folder).arg("figure_3"));
}
