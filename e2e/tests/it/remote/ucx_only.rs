//! Particulars of UCX: a library that may be absent, and a peer that does not use it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    local,
    server::{Scheme, Server},
};
use crate::harness::{Folder, SOON, kakehi, run, succeed, text};

/// A folder for the dynamic linker to look into first, with a libucp of ours in it.
fn linker_folder(folder: &Folder, name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let place = folder.join(name);
    fs::create_dir(&place).expect("folder");
    make(&place.join("libucp.so.0"));
    place
}

/// Says that it is UCX 1.11.2, and can do nothing else.
fn make_old_library(library: &Path) {
    let source = library.with_extension("c");
    let code = "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) \
        { *a = 1; *b = 11; *c = 2; }";
    fs::write(&source, code).expect("source");
    succeed(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source), SOON);
}

/// Server and client say why UCX cannot be had, and what to do, in one line, and fail.
#[track_caller]
fn assert_refused(folder: &Folder, libraries: &Path, why: &str) {
    let serve = ["serve", "--listen", "ucx://127.0.0.1:0", "--root", ".", "--key", "key"];
    let url = "ucx://127.0.0.1:1";
    let run_true = ["run", "--remote", url, "--key", "key", "--map", "local=/job", "--", "true"];
    for (arguments, code) in [(&serve[..], 1), (&run_true, 125)] {
        let mut command = Command::new(kakehi());
        command.args(arguments).current_dir(folder.path()).env_remove("KAKEHI_JOB");
        command.env("XDG_RUNTIME_DIR", folder.path()).env("LD_LIBRARY_PATH", libraries);
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        let line = said.lines().find(|line| line.contains("libucp.so.0")).unwrap_or_default();
        assert!(line.contains(why) && line.contains("tcp://"), "{said}");
    }
}

#[test]
fn library_that_cannot_be_opened_or_is_too_old_is_an_error_at_once() {
    let folder = Folder::new();
    fs::write(folder.join("key"), "0".repeat(64)).expect("key");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(folder.join("key"), private).expect("mode");
    let empty = linker_folder(&folder, "empty", |library| fs::write(library, "").expect("file"));
    assert_refused(&folder, &empty, "install UCX 1.12 or later");
    let old = linker_folder(&folder, "old", make_old_library);
    assert_refused(&folder, &old, "is 1.11.2, needed is 1.12");
}

#[test]
fn client_that_asks_for_the_other_transport_is_told_so() {
    let folder = Folder::new();
    if !Scheme::Ucx.is_here("clients and servers of different transports") {
        return;
    }
    for (serves, asks, why) in
        [(Scheme::Tcp, Scheme::Ucx, "use tcp://"), (Scheme::Ucx, Scheme::Tcp, "by ucx:// only")]
    {
        let server = Server::start(&folder, serves);
        let mut command = server.run_through(&folder, server.port, asks);
        let output = run(command.arg("true"), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
        server.end();
    }
}

#[test]
fn server_that_ucx_does_not_reach_is_said_to_be_that() {
    let folder = Folder::new();
    if !Scheme::Ucx.is_here("a server that UCX does not reach") {
        return;
    }
    let server = Server::start(&folder, Scheme::Ucx);
    let mut command = server.run(&folder);
    command.env("UCX_TLS", "self").env("KAKEHI_REMOTE_TIMEOUT", "1s");
    let output = run(command.arg("true"), SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    // On a busy machine it says before that it waits.
    let advises = |line: &str| line.contains("UCX_TLS") && line.contains("tcp://");
    assert!(said.lines().any(|line| line.starts_with("kakehi: ") && advises(line)), "{said}");
    server.end();
}

#[test]
fn library_is_opened_by_the_daemon_only_and_only_for_its_address() {
    crate::views::needs_view!();
    let folder = Folder::new();
    for (scheme, is_opened) in [(Scheme::Tcp, false), (Scheme::Ucx, true)] {
        if !scheme.is_here("who opens libucp") {
            return;
        }
        let server = Server::start(&folder, scheme);
        let maps = format!("/proc/{}/maps", server.running.child.id());
        let maps = fs::read_to_string(maps).expect("alive");
        assert_eq!(maps.contains("libucp"), is_opened, "server of {scheme}");
        let script = "grep -c libucp /proc/self/maps; echo x >$0/a";
        let mut command = server.run(&folder);
        command.args(["bash", "-c", script]).arg(folder.join("local"));
        assert_eq!(succeed(&mut command, SOON), "0\n");
        assert_eq!(fs::read(server.job().join("a")).expect("written"), b"x\n");
        server.end();
    }
}

/// It prints to standard output: its errors, as when a server is killed, and more where one asks.
#[test]
fn what_the_library_prints_is_not_taken_for_what_the_daemon_says() {
    let folder = Folder::new();
    if !Scheme::Ucx.is_here("what UCX prints") {
        return;
    }
    let server = Server::start(&folder, Scheme::Ucx);
    let mut command = server.run(&folder);
    command.env("UCX_LOG_LEVEL", "info").args(["bash", "-c", "echo x >\"$0\"/a; echo hello"]);
    let output = run(command.arg(local(&folder)), SOON);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(text(&output.stdout), "hello\n");
    assert!(said.contains("UCX  INFO") && said.contains("kakehi: 1 process"), "{said}");
    server.end();
}
