//! A server at a Unix socket, for its own user's programs.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use super::local;
use crate::harness::{Folder, Running, SOON, kakehi, kakehi_run, run, succeed, text, wait_for};

#[track_caller]
fn serve(folder: &Folder, url: &str, key: &[&str]) -> Running {
    fs::create_dir_all(folder.join("root")).expect("folder");
    let mut command = Command::new(kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    command.current_dir(folder.path()).args(["serve", "--root", "root", "--listen", url]);
    Running::start(command.args(key).stdin(Stdio::null()).stderr(Stdio::null()))
}

fn client(folder: &Folder, url: &str, key: &[&str]) -> Command {
    let map = format!("{}=/job", local(folder).display());
    let mut command = kakehi_run(folder, &[&["--remote", url, "--map", &map], key].concat());
    command.current_dir(folder.path());
    command
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

/// The second server takes over the socket of the first, which was killed. All start in the folder.
#[test]
fn a_unix_socket_is_the_users_and_needs_no_key() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let (socket, url) = (folder.join("socket"), "unix://socket".to_owned());
    for (round, signal) in [Signal::KILL, Signal::TERM].into_iter().enumerate() {
        let mut server = serve(&folder, &url, &[]);
        let script = format!("echo {round} >>\"$0\"/file");
        let mut command = client(&folder, &url, &[]);
        succeed(command.args(["sh", "-c", &script]).arg(local(&folder)), SOON);
        assert_eq!(mode(&socket), 0o600);
        server.signal(signal);
        server.wait(SOON);
    }
    assert_eq!(fs::read_to_string(folder.join("root/job/file")).expect("written"), "0\n1\n");
}

#[test]
fn a_key_on_one_side_of_a_unix_socket_is_asked_of_the_other() {
    let folder = Folder::new();
    let url = format!("unix://{}", folder.join("socket").display());
    fs::write(folder.join("key"), "1".repeat(64)).expect("key");
    fs::set_permissions(folder.join("key"), Permissions::from_mode(0o600)).expect("mode");
    let key = folder.join("key").display().to_string();
    let (none, key) = ([].as_slice(), ["--key", &key]);
    for (here, there) in [(&key[..], none), (none, &key[..])] {
        let mut server = serve(&folder, &url, there);
        assert!(wait_for(SOON, || folder.join("socket").exists()), "it does not listen");
        let output = run(client(&folder, &url, here).arg("true"), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("another key, or none") && said.lines().count() == 1, "{said}");
        succeed(client(&folder, &url, there).arg("true"), SOON);
        server.signal(Signal::TERM);
        assert!(server.wait(SOON).success());
        fs::remove_file(folder.join("socket")).expect("left behind");
    }
}

#[test]
fn a_port_is_not_served_without_a_key() {
    let folder = Folder::new();
    let url = "tcp://127.0.0.1:0";
    let serve = ["serve", "--root", "root", "--listen", url];
    let mut server = Command::new(kakehi());
    server.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path()).args(serve);
    for command in [&mut server, client(&folder, url, &[]).arg("true")] {
        let output = run(command, SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("needs --key FILE, but for unix://PATH"), "{said}");
    }
}
