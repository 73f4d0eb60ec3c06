//! `kakehi run` where it must not make a difference: signals of any kind, closed descriptors, a
//! node or a limit that withholds what it needs, and programs that outlive the first one of their
//! job.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use crate::{
    harness::{
        Folder, SOON, kakehi, kakehi_run, pause, python, run, skip, succeed, text, wait_for,
    },
    jobs::ready,
    limits::Disk,
};

/// Schedulers warn of an end by any signal, and send it to one process or to all of a group.
#[test]
fn signal_of_any_kind_reaches_the_program_and_does_not_end_the_run() {
    let folder = Folder::new();
    for signal in ["XCPU", "ALRM", "IO", "PWR", "VTALRM", "RTMIN", "RTMAX"] {
        for whom in ["", "-"] {
            let script = format!(
                "trap 'n=$((n + 1))' {signal}; echo ready; \
                 while [ -z \"$n\" ]; do sleep 0.05; done; sleep 0.3; exit $((n + 8))"
            );
            let mut running = ready(kakehi_run(&folder, &[]).args(["bash", "-c", &script]));
            pause(Duration::from_millis(300)); // Until real-time signals are caught.
            let kill = format!("kill -{signal} -- {whom}{}", running.child.id());
            succeed(Command::new("bash").args(["-c", &kill]), SOON);
            assert_eq!(running.wait(SOON).code(), Some(9), "{signal} to {whom}");
        }
    }
}

#[test]
fn closed_standard_descriptors_are_closed_in_the_program() {
    let folder = Folder::new();
    let is_open = "for n in 0 1 2; do [ -e /proc/self/fd/$n ] && echo $n; done >\"$0\"";
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        // Started anew, as where something is preloaded, they are no other.
        for preloaded in ["", "/nowhere/library.so"] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exec \"$@\" {closed}"), "sh"]).arg(kakehi());
            command.args(["run", "--", "bash", "-c", is_open]).arg(folder.join("open"));
            command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
            run(command.env("LD_PRELOAD", preloaded), SOON);
            let open = fs::read_to_string(folder.join("open")).expect("told");
            // Of a redirection, bash itself has 1 open.
            for (number, written) in [("0", "<"), ("2", "2>")] {
                let is_closed = closed.split(' ').any(|word| word == format!("{written}&-"));
                assert_eq!(open.contains(number), !is_closed, "{closed}: {open}");
            }
        }
    }
    let script = "\"$0\" -q run -- cat /proc/self/stat >&-";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(kakehi()).env("XDG_RUNTIME_DIR", folder.path());
    assert_eq!(run(&mut command, SOON).status.code(), Some(1), "written, and nowhere");
}

/// Runs a program that exits with 7.
fn exits(folder: &Path, script: &str, flags: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script}; exec \"$@\""), "sh"]).arg(kakehi()).arg("run");
    command.args(flags).args(["--", "sh", "-c", "exit 7"]).env("XDG_RUNTIME_DIR", folder);
    run(command.env_remove("KAKEHI_JOB").env_remove("KAKEHI_SOCKET"), SOON)
}

#[test]
fn runtime_folder_that_is_of_no_use_is_replaced_by_the_next() {
    let folder = Folder::new();
    let long = folder.join("x".repeat(100));
    fs::create_dir(&long).expect("a folder");
    let delegated = |folder: &Path, what: &str| {
        let output = exits(folder, "true", &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{what}: {said}");
        assert!(!said.contains("without delegation"), "{what}: {said}");
    };
    delegated(&long, "too long");
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    for options in ["remount,nr_inodes=1", "remount,ro"] {
        let mut mount = Command::new("mount");
        succeed(mount.args(["-o", options]).arg(&disk.0), SOON);
        delegated(&disk.0, options);
    }
}

#[test]
fn program_runs_undelegated_where_no_folder_is_of_use() {
    let folder = Folder::new();
    let mounts = Command::new("unshare").args(["-m", "true"]).output();
    if kakehi().starts_with("/tmp") || !mounts.is_ok_and(|output| output.status.success()) {
        return skip("no folder for sockets", "this user cannot mount, or /tmp has the command");
    }
    let script = "mount -t tmpfs -o ro none /tmp; exec \"$0\" run $1 -- sh -c 'exit 7'";
    for (flags, code) in [("", 7), ("--coalesce a=a.sion", 125)] {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(kakehi()).arg(flags);
        command.env("XDG_RUNTIME_DIR", "/nowhere").env_remove("KAKEHI_JOB");
        let output = run(command.current_dir("/dev/shm"), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("without delegation"), code == 7, "{said}");
        assert!(said.contains("socket folder") && said.lines().count() == 1, "{said}");
    }
    drop(folder);
}

#[test]
fn program_runs_undelegated_where_descriptors_are_few() {
    let folder = Folder::new();
    for count in [4, 5, 6, 8] {
        let output = exits(folder.path(), &format!("ulimit -n {count}"), &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{count}: {said}");
        assert!(said.contains("ulimit -n") && said.contains("without delegation"), "{said}");
    }
    let flag = format!("{0}/local={0}/kept.sion", folder.path().display());
    let output = exits(folder.path(), "ulimit -n 6", &["--coalesce", &flag]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("ulimit -n"), "{said}");
}

/// A shell does not wait for what a script leaves behind, and that works on.
#[test]
fn daemon_of_coalesced_files_stays_for_programs_that_the_first_has_left_behind() {
    let folder = Folder::new();
    let (local, kept) = (folder.join("local"), folder.join("kept.sion"));
    let flag = format!("{}={}", local.display(), kept.display());
    let script =
        "(sleep 4; echo late | cat >\"$0/late\"; echo $? >\"$1\") >/dev/null 2>&1 & exit 3";
    let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
    command.args(["sh", "-c", script]).arg(&local).arg(folder.join("code"));
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("still run"), "{said}");
    assert!(!folder.join("code").exists(), "it was waited for");
    assert!(wait_for(SOON, || !folder.join("kakehi").exists()), "the daemon stays");
    assert_eq!(fs::read_to_string(folder.join("code")).expect("told"), "0\n");
    let (mut extract, files) = (Command::new(kakehi()), folder.join("files"));
    succeed(extract.args(["multifile", "extract"]).arg(&kept).arg(&files), SOON);
    assert_eq!(fs::read_to_string(files.join("late")).expect("a file"), "late\n");
}

/// The kernel takes a name whose full path it would not.
#[test]
fn relative_name_is_opened_whose_full_path_is_as_long_as_the_kernel_does_not_take() {
    let folder = Folder::new();
    let Some([python, _]) = python("long paths", "signals") else { return };
    let script = "import os, sys\n\
        os.chdir(sys.argv[1])\n\
        while len(os.getcwd()) < 3980:\n\
        \x20   part = 'x' * min(200, 3979 - len(os.getcwd()))\n\
        \x20   os.mkdir(part); os.chdir(part)\n\
        for full in 4094, 4095, 4096, 4097:\n\
        \x20   name = 'y' * (full - 3981)\n\
        \x20   with open(name, 'w') as file: file.write('z' * 100000)\n\
        \x20   assert os.stat(name).st_size == 100000\n";
    let mut command = kakehi_run(&folder, &["--rule", "/**=delegate"]);
    succeed(command.arg(python).args(["-c", script]).arg(folder.path()), SOON);
}
