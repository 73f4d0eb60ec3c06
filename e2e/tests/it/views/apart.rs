//! Views in mounts of a job's own: another job's view is at the folder, or its user may not mount
//! where others see it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::chown,
    path::Path,
    process::{Command, Stdio},
};

use super::{can_mount, coalescing, is_mounted};
use crate::{
    bad_input::install,
    harness::{Folder, Running, SOON, collect, kakehi_run, run, skip, started_by, succeed, text},
    jobs::ready,
    remote::local,
};

#[test]
fn second_job_of_a_folder_has_a_view_that_the_first_one_does_not_see() {
    if !can_mount("two views of a folder") {
        return;
    }
    let folder = Folder::new();
    let script = "cd \"$0\"; echo first >f; echo ready; read line; LD_PRELOAD= cat f; ls";
    let mut first = coalescing(&folder, "auto");
    first.args(["sh", "-c", script]).arg(local(&folder));
    let mut first = ready(first.stdin(Stdio::piped()));
    let flag = format!("{}={}", local(&folder).display(), folder.join("other.sion").display());
    let flags = ["--view", "always", "--coalesce", &flag];
    let mut second = kakehi_run(&folder, &flags);
    let script = "cd \"$0\"; LD_PRELOAD= sh -c 'echo second >s'; cat s; ls";
    second.env("KAKEHI_JOB", "second").args(["sh", "-c", script]).arg(local(&folder));
    assert_eq!(succeed(&mut second, SOON), "second\ns\n");
    assert!(is_mounted(&local(&folder)), "the first one's");
    drop(first.child.stdin.take());
    assert!(first.wait(SOON).success());
    assert!(!is_mounted(&local(&folder)));
}

/// As a job array on a node: each job coalesces one folder into a multifile of its own.
#[test]
fn jobs_that_start_together_write_into_their_own_folders() {
    if !can_mount("views of jobs that start together") {
        return;
    }
    let folder = Folder::new();
    let local = local(&folder);
    let script = "cd \"$0\" && LD_PRELOAD= sh -c 'echo >\"$0\"' \"$1\"; sleep 0.2; ls";
    for round in 0..10 {
        let jobs = (0..3).map(|number| {
            let job = format!("{round}.{number}");
            let multifile = folder.join(format!("{job}.sion"));
            let flag = format!("{}={}", local.display(), multifile.display());
            let mut command = kakehi_run(&folder, &["--view", "always", "--coalesce", &flag]);
            command.env("KAKEHI_JOB", &job).args(["sh", "-c", script]).arg(&local).arg(&job);
            let mut gate = Command::new("sh");
            gate.args(["-c", "read line; exec \"$@\"", "sh"]);
            let mut gated = started_by(gate, &command);
            (Running::start(gated.stdin(Stdio::piped()).stdout(Stdio::piped())), job)
        });
        let mut jobs: Vec<_> = jobs.collect();
        jobs.iter_mut().for_each(|(running, _)| drop(running.child.stdin.take()));
        for (mut running, job) in jobs {
            let seen = collect(running.child.stdout.take().expect("piped"));
            assert!(running.wait(SOON).success(), "job {job}");
            assert_eq!(text(&seen.join().expect("read")), format!("{job}\n"));
        }
    }
}

/// Runs `kakehi run ARGUMENTS` as nobody, without fusermount3; `None`, said loudly, where that
/// cannot be tried.
fn without_helper(folder: &Folder, arguments: &[&str]) -> Option<Command> {
    const WHAT: &str = "a view in a user namespace";
    const SCRIPT: &str = "set -e; node=$1; shift; mount -t tmpfs none \"$node\"; \
        mknod \"$node/fuse\" c 10 229; chmod 666 \"$node/fuse\"; \
        mount --bind \"$node/fuse\" /dev/fuse; \
        helper=$(command -v fusermount3) && mount --bind /dev/null \"$helper\"; \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skip(WHAT, "only root can hide a program, and there has to be /dev/fuse");
        return None;
    }
    let (bin, node) = (install(folder), folder.join("node"));
    fs::create_dir_all(&node).expect("a folder");
    let prepared = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", SCRIPT, "sh"]).arg(&node).args(words);
        command.env("HOME", "/").env("XDG_RUNTIME_DIR", folder.join("home"));
        command.env_remove("KAKEHI_JOB").current_dir("/");
        command
    };
    let home = folder.join("home");
    fs::create_dir_all(home.join("local")).expect("folders");
    for path in [&home, &home.join("local")] {
        chown(path, Some(65534), Some(65534)).expect("root");
    }
    let probe = run(&mut prepared(&["unshare", "-Urm", "true"]), SOON);
    if !probe.status.success() {
        skip(WHAT, text(&probe.stderr).trim());
        return None;
    }
    let kakehi = bin.join("kakehi");
    let words = [&[kakehi.to_str().expect("UTF-8"), "run"], arguments].concat();
    Some(prepared(&words))
}

#[test]
fn user_who_cannot_mount_has_a_view_in_a_user_namespace() {
    let folder = Folder::new();
    let at = folder.join("home/local");
    let flag = format!("{}={}", at.display(), folder.join("home/kept.sion").display());
    // As by a static program; the user is the same one, and may not mount there.
    let script = "cd \"$0\"; echo ours >a; LD_PRELOAD= sh -c 'cat a; echo theirs >b; ls'; cat b; \
        id -u; stat -c %u b; LD_PRELOAD= unshare -m true 2>/dev/null || echo refused";
    let at = at.to_str().expect("UTF-8");
    let flags = ["--view", "always", "--coalesce", &flag, "--", "sh", "-c", script, at];
    let Some(mut command) = without_helper(&folder, &flags) else { return };
    let found = succeed(&mut command, SOON);
    assert_eq!(found, "ours\na\nb\ntheirs\n65534\n65534\nrefused\n");
    assert!(!is_mounted(Path::new(at)) && fs::read_dir(at).expect("empty").count() == 0);
}

#[test]
fn runs_that_join_a_job_enter_the_mounts_that_it_has_of_its_own() {
    let folder = Folder::new();
    let at = folder.join("home/local");
    let flag = format!("{}={}", at.display(), folder.join("home/kept.sion").display());
    let script = "echo ready; read line; LD_PRELOAD= cat \"$0/b\"";
    let at = at.to_str().expect("UTF-8");
    let flags = |script, job| {
        ["--view", "always", "--socket", job, "--coalesce", &flag, "--", "sh", "-c", script, at]
    };
    let job = folder.join("home/job");
    let job = job.to_str().expect("UTF-8");
    let Some(mut first) = without_helper(&folder, &flags(script, job)) else { return };
    let mut first = Running::start(first.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut output = BufReader::new(first.child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let script = "cd \"$0\" && LD_PRELOAD= sh -c 'echo joined >b; pwd'";
    let mut second = without_helper(&folder, &flags(script, job)).expect("as before");
    assert_eq!(succeed(&mut second, SOON), format!("{at}\n"));
    drop(first.child.stdin.take());
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\njoined\n");
    assert!(first.wait(SOON).success());
}
