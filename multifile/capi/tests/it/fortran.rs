//! Fortran programs: 77 with both flavours' names, and 2008 with the modules. They check what they
//! read; sanitized, since the compilers pass lengths of strings that nobody wrote down.

use tempfile::TempDir;

use crate::{
    harness::check,
    launch::{Link, Part, Source, build, install, there, timed, with_each_mpi},
};

const LINKS: [Link; 2] = [Link::Installed, Link::Sanitized];

fn run(source: Source) {
    if !there("gfortran") {
        return;
    }
    install(Part::Omp);
    install(Part::Fortran);
    for link in LINKS {
        let folder = TempDir::new().unwrap();
        let program = build(source, None, link, &folder);
        check(&mut timed(&program, &folder));
    }
}

fn run_with_mpi(source: Source) {
    if !there("gfortran") {
        return;
    }
    install(Part::Fortran);
    with_each_mpi(|mpi| {
        install(Part::Mpi(mpi));
        for link in LINKS {
            let folder = TempDir::new().unwrap();
            let program = build(source, Some(mpi), link, &folder);
            check(&mut mpi.ranks(3, &program, &folder));
        }
    });
}

/// E26 among others: names are trimmed, `wb,posix` writes.
#[test]
fn one_process_writes_and_reads_every_type() {
    run(Source { file: "fortran/serial.f90", part: "ser", shims: &["fortran"] });
}

#[test]
fn threads_in_fortran_open_together() {
    let shims = &["sion_omp", "fortran_omp", "fortran"];
    run(Source { file: "fortran/omp.f90", part: "omp", shims });
}

/// E26: the name of the physical file is filled in.
#[test]
fn ranks_in_fortran_77_need_no_module() {
    let shims = &["sion_mpi", "fortran_mpi", "fortran"];
    run_with_mpi(Source { file: "fortran/f77.f", part: "mpi", shims });
}

#[test]
fn ranks_in_fortran_2008_pass_communicators_of_mpi_f08() {
    let shims = &["sion_mpi", "fortran_mpi", "fortran"];
    run_with_mpi(Source { file: "fortran/mpi.f90", part: "mpi", shims });
}

#[test]
fn threads_of_ranks_in_fortran_open_together() {
    let shims = &["sion_ompi", "fortran_ompi", "fortran"];
    run_with_mpi(Source { file: "fortran/ompi.f90", part: "ompi", shims });
}
