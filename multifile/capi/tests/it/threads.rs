//! Threads of OpenMP, alone and of MPI processes.

use tempfile::TempDir;

use crate::{
    harness::check,
    launch::{Link, Part, Source, build, install, timed, with_each_mpi},
    programs::{pattern, stream},
};

const OMP: Source = Source { file: "c/omp.c", part: "omp", shims: &["sion_omp"] };
const HYBRID: Source = Source { file: "c/ompi.c", part: "ompi", shims: &["sion_ompi"] };

/// E23 among others: an open does not disturb what is open.
#[test]
fn a_team_of_threads_opens_together_and_fails_together() {
    install(Part::Omp);
    for link in [Link::Installed, Link::Sanitized] {
        let folder = TempDir::new().unwrap();
        let program = build(OMP, None, link, &folder);
        check(&mut timed(&program, &folder));
        for task in 0..5 {
            assert_eq!(stream(&folder, "omp.sion", task), pattern(task, 0, 2500));
            // The first thread collects for its team.
            let merged: Vec<u8> = match task {
                0 => (0..5).flat_map(|task| pattern(task, 0, 2500)).collect(),
                _ => Vec::new(),
            };
            assert_eq!(stream(&folder, "merged.sion", task), merged);
            assert_eq!(stream(&folder, "third.sion", task), b"thirdmore");
        }
    }
}

/// Compatibility mode prints which thread failed; one of them can be chosen.
#[test]
fn printed_errors_name_their_thread() {
    install(Part::Omp);
    let folder = TempDir::new().unwrap();
    let program = build(OMP, None, Link::Installed, &folder);
    let said = |name: &str| {
        let mut command = timed(&program, &folder);
        let run = check(command.env("SION_COMPAT", "1").env(name, "2"));
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        (said.lines().count(), said.matches(", thread 2, rc=").count())
    };
    let ((all, second), chosen) = (said("NO_SUCH_NAME"), said("SION_ERROR_MSG_THREAD"));
    assert!(second > 0 && all > second, "{all} {second}");
    assert_eq!(chosen, (second, second));
}

#[test]
fn threads_of_processes_open_together_and_fail_together() {
    with_each_mpi(|mpi| {
        install(Part::Mpi(mpi));
        for link in [Link::Installed, Link::Sanitized] {
            let folder = TempDir::new().unwrap();
            let program = build(HYBRID, Some(mpi), link, &folder);
            check(&mut mpi.ranks(3, &program, &folder));
            for name in ["one.sion", "two.sion", "local.sion"] {
                for task in 0..9 {
                    assert_eq!(stream(&folder, name, task), pattern(task, 0, 2500), "{name}");
                }
            }
            // Cut from all processes, or along the program's own communicators: 1 and 2 of them.
            // As NEST asks for them: the threads of each process have a collector.
            for (name, firsts) in [
                ("nest.sion", &[0, 3, 6][..]),
                ("merged1.sion", &[0]),
                ("merged2.sion", &[0, 3]),
                ("merged0.sion", &[0, 3]),
            ] {
                let ends = firsts.iter().skip(1).chain([&9]);
                for (first, end) in firsts.iter().zip(ends) {
                    let once: Vec<u8> =
                        (*first..*end).flat_map(|task| pattern(task, 0, 2500)).collect();
                    assert_eq!(stream(&folder, name, *first), once.repeat(2), "{name}");
                }
            }
        }
    });
}
