//! Names under `--map` and a job's daemon: the server's file, or a line that says why not.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use super::local;
use crate::{
    harness::{Folder, Running, SOON, kakehi, kakehi_run, run, succeed, text, wait_for},
    remote::server::{Scheme, Server},
};

/// Slurm's variables for every step of a batch job, also the one that serves.
const JOB: (&str, &str) = ("SLURM_JOB_ID", "7");

/// A run in `current`, as a shell has it that came there by this name.
fn run_in(server: &Server, folder: &Folder, map: &Path, current: &Path) -> Command {
    let flags = server.flags(map);
    let mut command = Command::new(kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    command.current_dir(current).env("PWD", current).arg("run").args(flags).arg("--");
    command
}

#[test]
fn servers_of_a_job_leave_its_daemon_to_the_programs() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let job = format!("{}={}", JOB.0, JOB.1);
    let wrapper = [Path::new("/usr/bin/env"), Path::new(&job)];
    let servers = [0, 1].map(|_| Server::start_under(&wrapper, &folder, Scheme::Tcp));
    for server in &servers {
        let mut command = server.run(&folder);
        let script = "echo x >>\"$0\"/file; ls \"$0\"";
        command.env(JOB.0, JOB.1).args(["sh", "-c", script]).arg(local(&folder));
        assert_eq!(succeed(&mut command, SOON), "file\n");
    }
    assert_eq!(fs::read_to_string(servers[0].job().join("file")).expect("written"), "x\nx\n");
    servers.into_iter().for_each(Server::end);
}

/// The daemon of the first run would look for the second one's files on this node.
#[test]
fn a_run_is_refused_where_the_jobs_daemon_has_other_remote_folders() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let ours = local(&folder);
    let script = "echo >\"$0\"/begun; read line";
    let mut first = server.run(&folder);
    first.env(JOB.0, JOB.1).args(["sh", "-c", script]).arg(&ours);
    let mut first = Running::start(first.stdin(Stdio::piped()));
    assert!(wait_for(SOON, || server.job().join("begun").exists()), "it does not begin");

    let again = |flags: &[String]| {
        let mut command = Command::new(kakehi());
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB").env(JOB.0, JOB.1);
        run(command.arg("run").args(flags).args(["--", "ls"]).arg(&ours), SOON)
    };
    let output = again(&server.flags(&ours));
    assert_eq!(text(&output.stdout), "begun\n", "{}", text(&output.stderr));
    let other = server.flags(&folder.join("other"));
    let output = again(&other);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    for part in [&*format!("{}=/job", ours.display()), "--map", "--socket"] {
        assert!(said.contains(part), "{said}");
    }
    drop(first.child.stdin.take());
    first.wait(SOON);
    server.end();
}

#[test]
fn a_mapped_folder_is_made_with_the_rights_that_its_user_leaves() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let flags = server.flags(&local(&folder));
    let mut command = Command::new("sh");
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    command.args(["-c", "umask 027; exec \"$0\" run \"$@\" -- true"]).arg(kakehi()).args(flags);
    succeed(&mut command, SOON);
    assert_eq!(fs::metadata(server.job()).expect("made").mode() & 0o7777, 0o750);
    server.end();
}

/// As a home folder that is a link. The folder that is mapped need not be there.
#[test]
fn a_mapped_folder_is_the_servers_by_its_name_through_a_link_and_without() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let (real, link) = (folder.join("real"), folder.join("link"));
    fs::create_dir(&real).expect("folder");
    symlink(&real, &link).expect("link");
    let script = "echo >out/a; echo >\"$0/out/b\"; echo >\"$1/out/c\"; ls out";
    for (map, current) in [(&*link.join("out"), &real), (Path::new("out"), &link)] {
        let mut command = run_in(&server, &folder, map, current);
        let found = succeed(command.args(["sh", "-c", script]).args([&real, &link]), SOON);
        assert_eq!(found, "a\nb\nc\n", "{}", map.display());
        assert_eq!(fs::read_dir(real.join("out")).expect("made").count(), 0, "{}", map.display());
        fs::remove_dir(real.join("out")).expect("empty");
        fs::remove_dir_all(server.job()).expect("the server's");
    }
    server.end();
}

#[test]
fn files_that_a_map_hides_are_told_of() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut flags = server.flags(&local(&folder));
    flags[5] += &format!(";{}=/other", local(&folder).join("mapped").display());
    let mut nested = kakehi_run(&folder, &flags.each_ref().map(String::as_str));
    let output = run(nested.arg("ls").arg(local(&folder)), SOON);
    assert!(!text(&output.stderr).contains("programs do not see"), "{}", text(&output.stderr));

    fs::write(local(&folder).join("hidden"), "").expect("file");
    let script = "echo begins >&2; ls \"$0\"";
    let output = run(server.run(&folder).args(["sh", "-c", script]).arg(local(&folder)), SOON);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b""[..]), "{said}");
    let (before, after) = said.split_once("begins\n").expect("said");
    let told = |said: &str, folder: &Path| {
        let is_it = |line: &&str| line.contains("programs do not see");
        let lines: Vec<_> = said.lines().filter(is_it).collect();
        assert!(lines.len() == 1 && lines[0].contains(&*folder.to_string_lossy()), "{said}");
    };
    told(before, &local(&folder));
    assert!(!after.contains("programs do not see"), "{said}");
    server.end();

    fs::create_dir_all(folder.join("root/job")).expect("a folder");
    fs::write(folder.join("root/job/hidden"), "").expect("file");
    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let log = || fs::read_to_string(folder.join("server.log")).expect("log");
    // Its address is there a moment before.
    assert!(wait_for(SOON, || !log().is_empty()));
    told(&log(), &folder.join("root/job"));
    server.end();
}

/// Without room for its records no client can be served.
#[test]
fn a_server_that_can_keep_no_records_says_so() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    fs::remove_dir_all(folder.join("root/.kakehi")).expect("its own");
    let mut command = server.run(&folder);
    let output = run(command.env("KAKEHI_REMOTE_TIMEOUT", "1s").arg("true"), SOON);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("what it said"), "{}", text(&output.stderr));
    server.running.signal(Signal::TERM);
    server.running.wait(SOON);
    assert!(server.said().contains("records"), "{}", server.said());
}
