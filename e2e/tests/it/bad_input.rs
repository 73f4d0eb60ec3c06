//! Peers of other users and versions, and files that may not be written.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
        connect, listen, recv, send, socket_with, sockopt,
    },
};
use wire::{Greeting, MESSAGE_LEN, Refusal, Role, VERSION, Welcome};

use crate::{
    calls::Calls,
    harness::{
        Daemon, EAGER, Folder, Running, SOON, kakehi, kakehi_run, library, program, run, skip,
        stats, succeed, sum, text, variables, wait_for,
    },
};

/// An ordinary user.
pub(crate) const NOBODY: u32 = 65534;
const OTHER_VERSION: u32 = 99;

// ---- other users

/// `program` as [`NOBODY`]; `None`, loudly, when this user cannot do that.
pub(crate) fn as_nobody(program: impl AsRef<std::ffi::OsStr>) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skip("another user", "only root can become one");
        return None;
    }
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
    command.env("HOME", "/").env_remove("XDG_CONFIG_HOME").env_remove("XDG_RUNTIME_DIR");
    Some(command)
}

/// A copy of the command and its library that everybody may run, as if installed in `folder`.
pub(crate) fn install(folder: &Folder) -> PathBuf {
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
    };
    open(folder.path());
    for (from, to) in [
        (kakehi(), "bin/kakehi"),
        (library(), "lib/libkakehi_preload.so"),
        (program("calls"), "bin/calls"),
    ] {
        let to = folder.join(to);
        let parent = to.parent().expect("a folder");
        fs::create_dir_all(parent).expect("a folder");
        open(parent);
        // Not by this process: a file open for writing in a child that another test forks at this
        // moment cannot be run (ETXTBSY).
        let copied = Command::new("install").args(["-m", "755"]).arg(from).arg(&to).status();
        assert!(copied.expect("install starts").success());
    }
    folder.join("bin")
}

#[test]
fn the_daemon_of_another_user_is_refused() {
    let folder = Folder::new();
    let bin = install(&folder);
    let daemon = Daemon::start(&folder, "job", &[]);
    let Some(mut command) = as_nobody(bin.join("kakehi")) else { return };
    command.args(["run", "--socket"]).arg(&daemon.socket).args(["--", "true"]);
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("belongs to user 0") && said.lines().count() == 1, "{said}");

    // Even where the folder lets everybody in, neither side talks to the other.
    fs::set_permissions(&daemon.socket, fs::Permissions::from_mode(0o777)).expect("mode");
    let socket = daemon.socket.join("socket");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("mode");
    let files = folder.join("theirs");
    fs::create_dir(&files).expect("a folder");
    chown(&files, Some(NOBODY), Some(NOBODY)).expect("owner");
    let path = files.join("file").display().to_string();
    let mut command = as_nobody(bin.join("calls")).expect("root");
    let library = folder.join("lib/libkakehi_preload.so");
    command.env("LD_PRELOAD", library).env("KAKEHI_SOCKET", &daemon.socket);
    let mut calls = Calls::start(&mut command);
    let fd = calls.get(&format!("open {path} wc"));
    calls.get(&format!("write {fd} hello"));
    calls.get(&format!("close {fd}"));
    calls.end();
    assert_eq!(fs::read(&path).expect("the file"), b"hello");
    fs::set_permissions(&daemon.socket, fs::Permissions::from_mode(0o1700)).expect("mode");
    let status = daemon.status();
    assert_eq!(status["summary"]["sessions"], 0, "{status:#}");
    daemon.end();
}

#[test]
fn a_program_that_is_out_of_reach_is_not_taken_for_missing() {
    let folder = Folder::new();
    let bin = install(&folder);
    fs::create_dir(folder.join("locked")).expect("a folder");
    fs::set_permissions(folder.join("locked"), fs::Permissions::from_mode(0o700)).expect("mode");
    for (name, code, why) in [
        ("locked/program", 126, "Permission denied"),
        ("bin/program", 127, "No such file"),
        ("bin/calls/program", 127, "No such file"),
    ] {
        let Some(mut command) = as_nobody(bin.join("kakehi")) else { return };
        let output = run(command.args(["run", "--"]).arg(folder.join(name)), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{name}: {said}");
    }
}

#[test]
fn a_user_whose_umask_withholds_everything_is_served() {
    let folder = Folder::new();
    let bin = install(&folder);
    let Some(mut command) = as_nobody("sh") else { return };
    let theirs = folder.join("theirs");
    fs::create_dir(&theirs).expect("a folder");
    chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("owner");
    let script = "umask 777; cd \"$1\" && exec \"$0\" run --stats stats -- \
        sh -c 'echo written | tee file >/dev/null; umask'";
    command.args(["-c", script]).arg(bin.join("kakehi")).arg(&theirs);
    command.env("XDG_RUNTIME_DIR", &theirs).env_remove("KAKEHI_JOB").envs(EAGER);
    let said = succeed(&mut command, SOON);
    assert_eq!(said.trim(), "0777");
    assert_eq!(fs::read_to_string(theirs.join("file")).expect("a file"), "written\n");
    let mode = fs::metadata(theirs.join("file")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0);
    assert_eq!(sum(&stats(&theirs.join("stats")), "/sessions"), 1);

    fs::create_dir(theirs.join("root")).expect("a folder");
    chown(theirs.join("root"), Some(NOBODY), Some(NOBODY)).expect("owner");
    let script = "umask 777; cd \"$1\" && exec \"$0\" serve \
        --listen tcp://127.0.0.1:0 --root root --key key --address-file .";
    let mut command = as_nobody("sh").expect("root");
    command.args(["-c", script]).arg(bin.join("kakehi")).arg(&theirs);
    command.env("XDG_RUNTIME_DIR", &theirs).stdin(Stdio::null());
    let server = Running::start(&mut command);
    let address = || {
        let names = fs::read_dir(&theirs).expect("a folder").flatten();
        let suffix = format!(".{}", server.child.id());
        names.map(|name| name.path()).find(|path| path.to_string_lossy().ends_with(&suffix))
    };
    assert!(wait_for(SOON, || address().is_some()), "the server did not start");
    for made in [address().expect("it is there"), theirs.join("key"), theirs.join("root/.kakehi")] {
        let mode = fs::metadata(&made).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o677, 0o600, "{}", made.display());
    }
}

#[test]
fn forbidden_files_stay_forbidden() {
    for settings in [&[][..], &["--rule", "/**=delegate"]] {
        let folder = Folder::new();
        let bin = install(&folder);
        let mine = folder.join("mine");
        fs::write(&mine, "root's").expect("a file");
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o644)).expect("mode");
        let closed = folder.join("closed");
        fs::write(&closed, "root's").expect("a file");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).expect("mode");
        let theirs = folder.join("theirs");
        fs::create_dir(&theirs).expect("a folder");
        chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("owner");

        let Some(mut command) = as_nobody(bin.join("kakehi")) else { return };
        command.args(["run", "--socket"]).arg(theirs.join("job")).args(settings);
        let mut calls = Calls::start(command.arg("--").arg(bin.join("calls")));
        let mine = mine.display();
        assert_eq!(calls.ask(&format!("open {mine} w")), "EACCES", "{settings:?}");
        assert_eq!(calls.ask(&format!("open {mine} +")), "EACCES", "{settings:?}");
        assert_eq!(calls.ask(&format!("open {mine} wct")), "EACCES", "{settings:?}");
        assert_eq!(calls.ask(&format!("open {} r", closed.display())), "EACCES", "{settings:?}");
        let new = folder.join("new");
        assert_eq!(calls.ask(&format!("open {} wc", new.display())), "EACCES", "{settings:?}");
        let fd = calls.get(&format!("open {mine} r"));
        assert_eq!(calls.ask(&format!("write {fd} evil")), "EBADF", "{settings:?}");
        assert_eq!(calls.ask(&format!("pread {fd} 0 99")), "[root's]", "{settings:?}");
        let own = theirs.join("own").display().to_string();
        let fd = calls.get(&format!("open {own} wc"));
        assert_eq!(calls.ask(&format!("read {fd} 9")), "EBADF", "{settings:?}");
        calls.get(&format!("write {fd} mine"));
        calls.get(&format!("close {fd}"));
        assert_eq!(calls.ask(&format!("open {own} wcx")), "EEXIST", "{settings:?}");
        assert_eq!(calls.ask(&format!("open {own}/x r")), "ENOTDIR", "{settings:?}");
        assert_eq!(calls.ask(&format!("open {own}x r")), "ENOENT", "{settings:?}");
        calls.end();
        assert_eq!(fs::read(own).expect("the file"), b"mine");
    }
}

// ---- other versions

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.expect("a socket");
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(SOON)).expect("a deadline");
    socket
}

#[test]
fn a_client_of_another_version_is_told_so() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    for role in [Role::Client, Role::Run] {
        let socket = socket();
        let address = SocketAddrUnix::new(daemon.socket.join("socket")).expect("an address");
        connect(&socket, &address).expect("a daemon");
        let greeting = Greeting { version: OTHER_VERSION, ..Greeting::new(role) }.encode();
        send(&socket, &greeting, SendFlags::NOSIGNAL).expect("sent");
        let mut answer = [0; MESSAGE_LEN];
        let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).expect("an answer");
        let welcome = Welcome::decode(&answer[..len]).expect("a welcome");
        assert_eq!((welcome.version, welcome.session), (VERSION, Err(Refusal::Version)));
        let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).expect("closed");
        assert_eq!(len, 0);
    }
    // It serves others as before.
    let mut calls = Calls::wrapped(&daemon);
    let fd = calls.get(&format!("open {} wc", folder.join("file").display()));
    calls.get(&format!("write {fd} hello"));
    calls.end();
    assert_eq!(daemon.status()["summary"]["bytes_staged"], 5);
    daemon.end();
}

/// A daemon that answers every greeting by `welcome`, until its folder goes.
fn impostor(folder: &Path, welcome: Welcome) -> thread::JoinHandle<()> {
    fs::create_dir(folder).expect("a folder");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("mode");
    let listening = socket();
    let address = SocketAddrUnix::new(folder.join("socket")).expect("an address");
    bind(&listening, &address).expect("bound");
    listen(&listening, 8).expect("listening");
    let folder = folder.to_owned();
    thread::spawn(move || {
        let mut guests = Vec::new();
        while folder.exists() {
            let mut fds = [PollFd::new(&listening, PollFlags::IN)];
            let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            if poll(&mut fds, Some(&tick)).is_ok_and(|ready| ready > 0) {
                let guest = accept(&listening).expect("a guest");
                recv(&guest, &mut [0; MESSAGE_LEN][..], RecvFlags::empty()).expect("a greeting");
                // The guest may have gone already.
                send(&guest, &welcome.encode(), SendFlags::NOSIGNAL).ok();
                guests.push(guest);
            }
        }
    })
}

#[test]
fn a_daemon_of_another_version_is_not_used() {
    let refusal = Welcome { version: OTHER_VERSION, ..Welcome::refuse(Refusal::Version) };
    let promise = Welcome {
        version: OTHER_VERSION,
        session: Ok(0),
        executor: 0,
        file_credit: 9,
        arena_len: 1 << 20,
        has_view: false,
    };
    for (name, welcome) in [("refuses", refusal), ("promises", promise)] {
        let folder = Folder::new();
        let socket = folder.join("job");
        let impostor = impostor(&socket, welcome);
        // A program goes on without it.
        let path = folder.join("file");
        let mut command = Command::new(program("calls"));
        let mut calls = Calls::start(command.envs(variables(&socket)));
        let fd = calls.get(&format!("open {} wc", path.display()));
        calls.get(&format!("write {fd} hello"));
        calls.get(&format!("close {fd}"));
        calls.end();
        assert_eq!(fs::read(&path).expect("the file"), b"hello");
        // A job is not started.
        let mut command = Command::new(kakehi());
        command.args(["run", "--socket"]).arg(&socket).args(["--", "true"]);
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{name}: {said}");
        assert!(said.contains("version") && said.lines().count() == 1, "{name}: {said}");
        fs::remove_dir_all(&socket).expect("the folder");
        impostor.join().expect("no panic");
    }
}

#[test]
fn a_preload_library_that_is_none_is_told_before_the_program_runs() {
    let folder = Folder::new();
    let cut = folder.join("cut.so");
    let whole = fs::read(library()).expect("the library");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    for what in [Path::new("/etc/passwd"), Path::new("/bin/true"), &cut] {
        let mut command = kakehi_run(&folder, &[]);
        command.env("KAKEHI_PRELOAD", what).arg("touch").arg(folder.join("ran"));
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("not a library") && said.lines().count() == 1, "{said}");
        assert!(!folder.join("ran").exists(), "{said}");
    }
}

/// The line a program gets that runs undelegated for want of the right daemon.
#[test]
fn a_program_that_is_refused_says_so_once() {
    let folder = Folder::new();
    let socket = folder.join("job");
    let impostor = impostor(&socket, Welcome::refuse(Refusal::Version));
    let path = folder.join("file");
    let mut command = Command::new(program("writer"));
    command.arg("files").arg(&path).args(["64", "64"]).envs(variables(&socket));
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("version") && said.contains("undelegated"), "{said}");
    assert_eq!(fs::metadata(folder.join("file.000003")).expect("the file").len(), 16 * 64);
    fs::remove_dir_all(&socket).expect("the folder");
    impostor.join().expect("no panic");
}

#[test]
fn an_empty_variable_counts_as_unset_and_a_wrong_one_is_named() {
    let folder = Folder::new();
    let document = folder.join("stats");
    let flags = ["--stats", document.to_str().expect("UTF-8")];
    let file = folder.join("file").display().to_string();
    let script = ["sh", "-c", "echo written | tee \"$0\" >/dev/null", &file];
    let mut command = kakehi_run(&folder, &flags);
    for name in ["RULES", "SYNC", "DISABLE", "FENCE_TIMEOUT", "DIRECT", "IDLE", "MAP", "CONFIG"] {
        command.env(format!("KAKEHI_{name}"), "");
    }
    succeed(command.args(script), SOON);
    assert_eq!(sum(&stats(&document), "/bytes_staged"), 8);

    // One that a program is given behind the back of `kakehi run`, which would have refused it.
    for wrong in ["KAKEHI_DIRECT=x", "KAKEHI_DISABLE=maybe"] {
        let output = run(kakehi_run(&folder, &[]).args(["env", wrong, "true"]), SOON);
        let said = text(&output.stderr);
        let (name, _) = wrong.split_once('=').expect("NAME=VALUE");
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches(&format!("kakehi: {name}: ")).count(), 1, "{said}");
    }
}

#[test]
fn the_summary_tells_of_files_that_a_rule_leaves_to_the_kernel() {
    let folder = Folder::new();
    let file = folder.join("file").display().to_string();
    let script = format!("BEGIN {{ print \"written\" > \"{file}\" }}");
    let output = run(kakehi_run(&folder, &["--rule", "/**=pass"]).args(["awk", &script]), SOON);
    let said = text(&output.stderr);
    assert_eq!(fs::read(&file).expect("the file"), b"written\n");
    assert!(said.contains("left to the kernel: ") && said.contains("rule 1 file"), "{said}");
    assert!(!said.contains("no file I/O"), "{said}");
}
