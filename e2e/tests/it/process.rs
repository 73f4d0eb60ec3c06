//! The preload library in other people's processes: beside other libraries, in sandboxes, in
//! children that share memory, under other C libraries.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    harness::{Folder, SOON, kakehi, kakehi_run, library, program, run, skip, succeed, text},
    preload::{compile, possible, same_in_every_way},
};

/// A start of a program with a gigabyte of memory: by `fork` it is some 100 ms.
const VFORK: Duration = Duration::from_millis(20);
/// Versions of distributions of ten years ago.
const GLIBC: [u32; 2] = [2, 17];

// ---- many threads

/// More than have room for a path that a rule decides about.
#[test]
fn threads_that_wait_in_open_keep_no_other_from_opening() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &["--rule", "/**=delegate"]);
    succeed(command.arg(program("waiting")).arg(folder.path()), SOON);
}

// ---- other libraries

#[test]
fn functions_looked_up_in_libc_behave_as_without_the_library() {
    same_in_every_way(&compile("lookup.c", "cc", &[]));
}

#[test]
fn interposer_finds_libcs_function_on_either_side_of_the_library() {
    let [program] = compile("hooked.c", "cc", &[]);
    let [hook] = compile("hook.c", "cc", &["-shared", "-fPIC"]);
    let library = library().display().to_string();
    let folder = Folder::new();
    let preloading = |list: &str| {
        let mut command = Command::new(&program);
        command.current_dir(folder.path()).env("LD_PRELOAD", list);
        succeed(&mut command, SOON)
    };
    let native = preloading(&hook);
    assert!(native.ends_with("opendir 3\n"), "{native}");
    assert_eq!(preloading(&format!("{hook}:{library}")), native);
    assert_eq!(preloading(&format!("{library}:{hook}")), native);
}

#[test]
fn mapping_is_seen_by_whoever_patches_libcs_mmap() {
    compile("patch.c", "cc", &["-shared", "-fPIC"]);
    let beside = ["-Wl,--no-as-needed,-rpath,$ORIGIN", "-L.", "-l:patch.c-shared-fPIC"];
    same_in_every_way(&compile("patched.c", "cc", &beside));
}

#[test]
fn library_that_keeps_handlers_calls_the_ones_that_it_was_given() {
    compile("chain.c", "cc", &["-shared", "-fPIC"]);
    let beside = ["-Wl,--no-as-needed,-rpath,$ORIGIN", "-L.", "-l:chain.c-shared-fPIC"];
    same_in_every_way(&compile("chaining.c", "cc", &beside));
}

// ---- threads, children, and memory

#[test]
fn threads_are_cancelled_in_calls_on_files_as_without_the_library() {
    same_in_every_way(&compile("points.c", "cc", &["-pthread"]));
}

#[test]
fn threads_with_descriptors_of_their_own_write_to_their_own_files() {
    same_in_every_way(&compile("tables.c", "cc", &["-pthread"]));
}

#[test]
fn children_that_share_memory_and_descriptors_write_each_record_once() {
    same_in_every_way(&compile("cloned.c", "cc", &[]));
}

#[test]
fn children_of_vfork_behave_as_without_the_library() {
    same_in_every_way(&compile("vforked.c", "cc", &["-pthread"]));
}

#[test]
fn vfork_of_a_large_process_copies_no_memory() {
    let folder = Folder::alone();
    let mut command = kakehi_run(&folder, &[]);
    let printed = succeed(command.arg(program("vforked")).arg("1024"), SOON);
    let took: u64 = printed.trim().parse().expect("microseconds");
    assert!(Duration::from_micros(took) < VFORK, "{took} us");
}

#[test]
fn streams_of_a_killed_program_leave_what_they_leave_without_the_library() {
    same_in_every_way(&compile("crashed.c", "cc", &[]));
}

#[test]
fn core_dump_is_as_long_as_without_the_library() {
    const MORE_MAX: u64 = 256 << 10;
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") {
        return skip("core dumps", "this machine keeps them elsewhere");
    }
    let folder = Folder::new();
    let script = "ulimit -c unlimited || exit; cd \"$1\"; \"$0\"; cat core* | wc -c";
    let dumped = |command: &mut Command, name: &str| -> u64 {
        fs::create_dir(folder.join(name)).expect("a folder");
        command.args(["sh", "-c", script]).arg(program("aborted")).arg(folder.join(name));
        let len = succeed(command, SOON).trim().parse().expect("bytes");
        assert!(len > 0, "there is no dump");
        assert_eq!(fs::read(folder.join(name).join("file")).expect("written").len(), 1600);
        len
    };
    let native = dumped(&mut Command::new("env"), "native");
    let delegated = dumped(&mut kakehi_run(&folder, &[]), "delegated");
    assert!(delegated < native + MORE_MAX, "{delegated} B, natively {native} B");
}

#[test]
fn refused_numbers_and_counts_are_refused_as_without_the_library() {
    same_in_every_way(&compile("nowhere.c", "cc", &[]));
}

#[test]
fn asynchronous_requests_behave_as_without_the_library() {
    same_in_every_way(&compile("requested.c", "cc", &[]));
}

#[test]
fn asynchronous_requests_to_coalesced_files_are_served() {
    let [program] = compile("requested.c", "cc", &[]);
    let folder = Folder::new();
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    let expected = succeed(Command::new(&program).current_dir(native), SOON);
    assert_eq!(succeed(coalescing(&folder).arg(program), SOON), expected);
}

#[test]
fn calls_on_coalesced_files_need_little_stack() {
    let folder = Folder::new();
    assert_eq!(succeed(coalescing(&folder).arg(program("stacks")), SOON), "");
}

/// A command that runs in a coalesced folder.
fn coalescing(folder: &Folder) -> Command {
    let local = folder.join("local");
    fs::create_dir(&local).expect("a folder");
    let flag = format!("{}={}", local.display(), folder.join("kept.sion").display());
    let mut command = kakehi_run(folder, &["--coalesce", &flag]);
    command.current_dir(local);
    command
}

// ---- sandboxes

#[test]
fn process_that_denied_itself_files_is_denied_them() {
    let Some([program]) = possible("a process in a Landlock domain", "sandbox.c", &[]) else {
        return;
    };
    let again = "and becomes another program".to_owned();
    same_in_every_way(std::slice::from_ref(&program));
    same_in_every_way(&[program, again]);
}

#[test]
fn process_that_denied_itself_files_is_denied_coalesced_ones() {
    let Some([program]) = possible("a process in a Landlock domain", "sandbox.c", &[]) else {
        return;
    };
    for arguments in [&[][..], &["and becomes another program"]] {
        let folder = Folder::new();
        let printed = succeed(coalescing(&folder).arg(&program).args(arguments), SOON);
        let denied =
            "read: Permission denied\nmake: Permission denied\nremove: Permission denied\n";
        let tries = 1 + arguments.len();
        assert_eq!(printed.matches(denied).count(), tries, "{printed}");
        assert!(printed.starts_with("write: done\n"), "{printed}");
    }
}

#[test]
fn process_that_is_root_no_more_is_denied_what_root_may() {
    if let Some(program) = possible("a process that was root", "dropped.c", &[]) {
        same_in_every_way(&program);
    }
}

#[test]
fn names_after_chroot_are_not_those_of_coalesced_files() {
    let Some([program]) = possible("a process with a root folder", "dropped.c", &[]) else {
        return;
    };
    let folder = Folder::new();
    let jail = folder.join("jail");
    fs::create_dir(&jail).expect("a folder");
    let printed = succeed(coalescing(&folder).arg(program).arg(jail), SOON);
    assert!(printed.starts_with("read: No such file or directory\n"), "{printed}");
}

#[test]
fn process_with_a_seccomp_filter_makes_no_other_calls_than_its_own() {
    same_in_every_way(&compile("filtered.c", "cc", &[]));
}

// ---- other C libraries, and valgrind

#[test]
fn library_needs_nothing_of_a_young_glibc() {
    let mut command = Command::new("nm");
    let symbols = succeed(command.args(["--dynamic", "--undefined-only"]).arg(library()), SOON);
    for symbol in symbols.lines() {
        let Some((_, version)) = symbol.split_once("@GLIBC_") else { continue };
        let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        assert!(numbers[..] <= GLIBC[..], "{symbol}");
    }
}

#[test]
fn program_of_musl_runs_undelegated_and_unharmed() {
    const SOURCE: &str = r#"
        #include <stdio.h>
        int main(void) { FILE *f = fopen("out", "w"); fputs("text", f); return fclose(f); }"#;
    let folder = Folder::new();
    fs::write(folder.join("a.c"), SOURCE).expect("source");
    let mut compiler = Command::new("musl-gcc");
    if compiler.arg("--version").output().is_err() {
        return skip("a program of musl", "no musl-gcc");
    }
    let mut compiler = Command::new("musl-gcc");
    succeed(compiler.args(["-o", "a", "a.c"]).current_dir(folder.path()), SOON);
    for rule in ["/**=hybrid", "/**=delegate"] {
        let mut command = kakehi_run(&folder, &["--rule", rule]);
        succeed(command.arg(folder.join("a")).current_dir(folder.path()), SOON);
        assert_eq!(fs::read_to_string(folder.join("out")).expect("made"), "text");
    }
    let checked = run(Command::new(kakehi()).arg("check").arg(folder.join("a")), SOON);
    assert!(text(&checked.stdout).contains("another C library"), "{}", text(&checked.stdout));
    assert!(text(&checked.stderr).contains("undelegated"), "{}", text(&checked.stderr));
}

#[test]
fn program_under_valgrind_is_delegated() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("a program under valgrind", "no valgrind");
    }
    let folder = Folder::new();
    let stats = folder.join("stats");
    let mut command = kakehi_run(&folder, &["--stats", stats.to_str().expect("UTF-8")]);
    command.args(["valgrind", "-q", "--error-exitcode=9", "dd", "if=/dev/zero", "of=out"]);
    command.args(["bs=100", "count=20", "conv=notrunc"]).current_dir(folder.path());
    succeed(&mut command, 4 * SOON);
    assert_eq!(fs::metadata(folder.join("out")).expect("made").len(), 2000);
}

/// OMPIO, Open MPI's own, asks for these with `aio_write` and waits until `aio_error` says so.
#[test]
fn iwrite_of_ompio_to_a_coalesced_file_ends() {
    const SOURCE: &str = r#"
        #include <mpi.h>
        int main(int argc, char **argv) {
            MPI_File f; MPI_Request q; MPI_Status s; int v[100] = {7}, w[100] = {0};
            MPI_Init(&argc, &argv);
            if (MPI_File_open(MPI_COMM_WORLD, "iwrite", MPI_MODE_CREATE | MPI_MODE_RDWR,
                              MPI_INFO_NULL, &f)) return 3;
            MPI_File_iwrite_at(f, 0, v, 100, MPI_INT, &q);
            MPI_Wait(&q, &s);
            MPI_File_read_at(f, 0, w, 100, MPI_INT, &s);
            MPI_File_close(&f);
            MPI_Finalize();
            return w[0] != 7;
        }"#;
    let folder = Folder::new();
    let found = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !found("mpicc.openmpi") || !found("mpirun.openmpi") {
        return skip("OMPIO's iwrite", "no Open MPI");
    }
    let (source, made): (PathBuf, PathBuf) = (folder.join("a.c"), folder.join("a"));
    fs::write(&source, SOURCE).expect("source");
    succeed(Command::new("mpicc.openmpi").arg("-o").args([&made, &source]), 4 * SOON);
    let mut command = coalescing(&folder);
    command.args(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "io"]);
    succeed(command.args(["ompio", "-n", "1"]).arg(Path::new(&made)), 2 * SOON);
}
