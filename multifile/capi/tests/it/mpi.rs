//! Programs of MPI processes, with each MPI: `tests/c/mpi.c` checks what their names say, and the
//! Rust library reads what they wrote.

use std::{
    fs,
    io::Read,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use multifile::{Disk, Reader, Repair};
use tempfile::TempDir;

use crate::{
    golden,
    harness::{Build, check, prefix, program},
    install::exported_by,
    launch::{Link, Mpi, Part, Source, build, install, with_each_mpi},
    programs::{pattern, stream},
};

const PROGRAM: Source = Source { file: "c/mpi.c", part: "mpi", shims: &["sion_mpi"] };
const CLASSES: Source = Source { file: "c/mpi_classes.cpp", part: "mpi", shims: &["sion_mpi"] };
const BENCH: Source =
    Source { file: "../../../bench/mpi/tasks.c", part: "mpi", shims: &["sion_mpi"] };
/// Longest until the survivors of a dead rank are gone; less than a job that hangs may run.
const SOON: Duration = Duration::from_secs(240);

/// Runs what `jobs` name, on as many ranks as they say, one after the other in one folder.
fn run(mpi: Mpi, link: Link, jobs: &[(u32, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    if link == Link::Installed {
        install(Part::Mpi(mpi));
    }
    let program = build(PROGRAM, Some(mpi), link, &folder);
    for (ranks, what) in jobs {
        check(mpi.ranks(*ranks, &program, &folder).arg(what));
    }
    folder
}

#[test]
fn the_program_of_figure_3_runs_as_it_stands() {
    with_each_mpi(|mpi| {
        for link in [Link::Installed, Link::Sanitized] {
            let folder = run(mpi, link, &[(4, "figure_3")]);
            for task in 0..4 {
                assert_eq!(stream(&folder, "fig3.sion", task), pattern(task, 0, 2500));
            }
        }
    });
}

#[test]
fn a_set_of_seven_ranks_is_read_by_two_by_nine_and_serially() {
    with_each_mpi(|mpi| {
        let jobs = [(7, "write_set"), (2, "read_set"), (9, "read_set"), (1, "read_set")];
        let folder = run(mpi, Link::Installed, &jobs);
        for task in 0..7 {
            assert_eq!(stream(&folder, "set.sion", task), pattern(task, 0, 25_000));
        }
        let out = TempDir::new().unwrap();
        let mut ranks = program("unpack", Build::Shared, &out);
        check(ranks.arg(folder.path().join("set.sion")).arg("rank"));
        assert_eq!(fs::read(out.path().join("6")).unwrap(), pattern(6, 0, 25_000));
    });
}

#[test]
fn transactions_let_one_rank_after_the_other() {
    with_each_mpi(|mpi| {
        let folder = run(mpi, Link::Sanitized, &[(4, "take_turns")]);
        assert_eq!(fs::read_to_string(folder.path().join("turns")).unwrap(), "01230123");
    });
}

#[test]
fn ranks_open_in_every_way() {
    with_each_mpi(|mpi| {
        let folder = run(mpi, Link::Sanitized, &[(5, "all")]);
        for task in 0..5 {
            assert_eq!(stream(&folder, "local.sion", task), pattern(task, 0, 2500));
        }
        for task in 0..10 {
            assert_eq!(stream(&folder, "mapped.sion", task), pattern(task, 0, 2500));
        }
        let merged: usize = (0..5).map(|task| stream(&folder, "merged.sion", task).len()).sum();
        assert_eq!(merged, 5 * 1200);
    });
}

/// Issue of 0.1.0: rank 0 wrote all headers into its own folder, and all data but its was lost.
#[test]
fn each_node_has_a_whole_file_of_its_own() {
    with_each_mpi(|mpi| {
        let folder = run(mpi, Link::Sanitized, &[(5, "node_local")]);
        let node = |node: usize| folder.path().join(format!("node{node}"));
        for name in ["named", "plain", "packed", "merged"].map(|name| format!("{name}.sion")) {
            let physical = |file: usize| match file {
                0 => name.clone(),
                _ => format!("{name}.{file:06}"),
            };
            for (at, file) in (0..3).flat_map(|at| (0..3).map(move |file| (at, file))) {
                assert_eq!(
                    node(at).join(physical(file)).exists(),
                    at == file,
                    "{name} {at} {file}"
                );
            }
            for file in 1..3 {
                let own = Reader::open(&Disk::new(), &node(file).join(physical(file))).unwrap();
                own.check().unwrap();
                fs::copy(node(file).join(physical(file)), node(0).join(physical(file))).unwrap();
            }
            let reader = Reader::open(&Disk::new(), &node(0).join(&name)).unwrap();
            reader.check().unwrap();
            for task in 0..5 {
                let expected = match (name.as_str(), task % 2) {
                    ("merged.sion", 0) if task < 4 => {
                        [pattern(task, 0, 2500), pattern(task + 1, 0, 2500)].concat()
                    }
                    ("merged.sion", 1) => Vec::new(),
                    _ => pattern(task, 0, 2500),
                };
                assert_eq!(reader.stream(task).unwrap().read_rest().unwrap(), expected, "{name}");
            }
        }
    });
}

#[test]
fn ranks_write_and_read_with_the_classes_of_cxx() {
    with_each_mpi(|mpi| {
        let folder = TempDir::new().unwrap();
        let program = build(CLASSES, Some(mpi), Link::Sanitized, &folder);
        check(&mut mpi.ranks(3, &program, &folder));
        for rank in 0..3 {
            assert_eq!(stream(&folder, "classes.sion", rank), [b"abc"[rank]]);
        }
    });
}

#[test]
fn opening_takes_three_collective_calls_at_most_and_closing_two() {
    with_each_mpi(|mpi| drop(run(mpi, Link::Installed, &[(4, "count_calls")])));
}

#[test]
fn what_fails_on_one_rank_at_opening_fails_on_all_alike() {
    with_each_mpi(|mpi| {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("blocked.sion.000001")).unwrap();
        let program = build(PROGRAM, Some(mpi), Link::Sanitized, &folder);
        check(mpi.ranks(3, &program, &folder).arg("fail_to_open"));
    });
}

#[test]
fn a_full_disk_on_one_rank_fails_closing_on_all_alike() {
    with_each_mpi(|mpi| {
        for how in ["fill_the_disk", "fill_the_disk_with_stdio"] {
            let folder = run(mpi, Link::Sanitized, &[(3, how)]);
            let repair = Repair::examine(&Disk::in_folder(folder.path()), Path::new("full.sion"));
            assert!(repair.unwrap().needed());
        }
    });
}

#[test]
fn a_killed_rank_ends_the_others_and_the_file_is_repaired() {
    with_each_mpi(|mpi| {
        let folder = TempDir::new().unwrap();
        install(Part::Mpi(mpi));
        let program = build(PROGRAM, Some(mpi), Link::Installed, &folder);
        let begun = Instant::now();
        let output = mpi.ranks(4, &program, &folder).arg("be_killed").output().unwrap();
        assert!(!output.status.success() && begun.elapsed() < SOON, "{output:?}");

        let disk = Disk::in_folder(folder.path());
        let repair = Repair::examine(&disk, Path::new("killed.sion")).unwrap();
        assert!(repair.needed());
        repair.apply().unwrap();
        for task in 0..4 {
            assert_eq!(stream(&folder, "killed.sion", task), pattern(task, 0, 2500));
        }
    });
}

/// All tasks, one rank's after the other's: three ranks share them.
#[test]
fn golden_files_are_read_by_ranks() {
    let names: Vec<_> = golden::names().into_iter().filter(|name| !name.contains("un")).collect();
    assert!(names.len() > 25);
    with_each_mpi(|mpi| {
        let folder = TempDir::new().unwrap();
        install(Part::Mpi(mpi));
        let program = build(PROGRAM, Some(mpi), Link::Installed, &folder);
        let paths = names.iter().map(|name| golden::folder().join(name));
        check(mpi.ranks(3, &program, &folder).arg("unpack").args(paths));
        for (index, name) in names.iter().enumerate() {
            let part = |rank| fs::read(folder.path().join(format!("{index}.{rank}"))).unwrap();
            let found: Vec<u8> = (0..3).flat_map(part).collect();
            assert!(found == all_streams(&golden::folder().join(name)), "{name}");
        }
    });
}

fn all_streams(path: &Path) -> Vec<u8> {
    let reader = Reader::open(&Disk::new(), path).unwrap();
    let mut bytes = Vec::new();
    for task in 0..reader.task_count() {
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// The program that `kakehi-bench tasks` compiles; it checks every particle that comes back.
#[test]
fn the_program_of_the_bench_does_what_it_measures() {
    with_each_mpi(|mpi| {
        let folder = TempDir::new().unwrap();
        let program = build(BENCH, Some(mpi), Link::Sanitized, &folder);
        for (what, number, columns) in
            [("create", "0", 2), ("trace", "300000", 4), ("particles", "5000", 4)]
        {
            let mut job = mpi.ranks(3, &program, &folder);
            let said = check(job.args([what, ".", "2", number])).stdout;
            let said = String::from_utf8(said).unwrap();
            let rounds: Vec<_> = said.lines().map(|line| line.split(' ').count()).collect();
            assert_eq!(rounds, [columns, columns], "{said}");
        }
    });
}

/// Programs that were linked without naming an MPI's folder go on with theirs.
#[test]
fn a_second_mpi_leaves_the_first_where_programs_have_found_it() {
    let folder = TempDir::new().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archive = prefix().join("lib/libsion.a");
    check(Command::new("sh").arg(here.join("install.sh")).arg(archive).arg(folder.path()));
    let mut first = None;
    with_each_mpi(|mpi| {
        for _ in 0..2 {
            let mut shims = Command::new("sh");
            shims.arg(here.join("install-shims.sh")).arg(folder.path()).arg("mpi");
            check(shims.env("MPICC", mpi.compiler("mpicc")).env_remove("DESTDIR"));
        }
        let first = *first.get_or_insert(mpi.name());
        let found = fs::read_link(folder.path().join("lib/libsionmpi_64.so.1")).unwrap();
        assert!(found.starts_with(first), "{found:?} after {}", mpi.name());
        assert!(folder.path().join("lib").join(mpi.name()).join("libsionmpi_64.so.1").exists());
    });
}

/// Every function that the headers declare and the original's Fortran 77 libraries have, versioned.
#[test]
fn the_libraries_of_an_mpi_have_every_function_under_both_names() {
    with_each_mpi(|mpi| {
        install(Part::Mpi(mpi));
        let folder = prefix().join("lib").join(mpi.name());
        for (library, count) in [("mpi", 14), ("ompi", 4), ("mpi_f77", 71)] {
            let exported = exported_by(&folder.join(format!("libsion{library}_64.so.1")));
            let (own, others): (Vec<_>, Vec<_>) = exported
                .iter()
                .filter(|name| name.contains("@@SION_1.7"))
                .partition(|name| name.starts_with("sion_") || name.starts_with("fsion_"));
            assert_eq!(own.len(), count, "{library}: {own:?}");
            for name in own {
                assert!(others.contains(&&format!("l{name}")), "{name}");
            }
        }
    });
}
