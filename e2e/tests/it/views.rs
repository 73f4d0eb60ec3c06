//! Folders as file systems: for programs that the library does not reach, beside those it does.

mod apart;
mod handed;
mod killed;
mod linked;
mod sealed;
mod speed;
mod tasks;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{
    bad_input::{as_nobody, install},
    harness::{
        Folder, SOON, kakehi, kakehi_run, note, python, random, run, skip, started_by, succeed,
        text,
    },
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

/// `kakehi run` with `local` in `kept.sion`.
fn coalescing(folder: &Folder, view: &str) -> Command {
    let flag = format!("{}={}", local(folder).display(), folder.join("kept.sion").display());
    kakehi_run(folder, &["--view", view, "--coalesce", &flag])
}

/// `kakehi run` with `local` at a server.
fn mapping(folder: &Folder, server: &Server) -> Command {
    let flags = server.flags(&local(folder));
    let flags: Vec<_> =
        ["--view", "always"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    kakehi_run(folder, &flags)
}

/// True if this machine lets this user mount; says loudly that `what` was not tested where not.
pub(crate) fn can_mount(what: &str) -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let folder = Folder::new();
        let output = run(coalescing(&folder, "always").arg("true"), SOON);
        (!output.status.success()).then(|| text(&output.stderr).trim().to_owned())
    });
    if let Some(why) = why_not {
        skip(what, why);
    }
    why_not.is_none()
}

/// Ends a test, said loudly, where this machine has no views: what its programs do needs one.
macro_rules! needs_view {
    () => {
        let name = std::any::type_name_of_val(&|| ());
        if !$crate::views::can_mount(name.trim_end_matches("::{{closure}}")) {
            return;
        }
    };
}
pub(crate) use needs_view;

/// Has the device be everybody's for a command of another user, as it is on most machines.
pub(crate) fn with_device(folder: &Folder, command: Command) -> Command {
    const SCRIPT: &str = "set -e; node=$1; shift; mount -t tmpfs none \"$node\"; \
        mknod \"$node/fuse\" c 10 229; chmod 666 \"$node/fuse\"; \
        mount --bind \"$node/fuse\" /dev/fuse; exec \"$@\"";
    let mode = fs::metadata("/dev/fuse").map_or(0, |found| found.permissions().mode());
    if mode & 0o006 == 0o006 || !rustix::process::geteuid().is_root() {
        return command;
    }
    let node = folder.join("device");
    fs::create_dir_all(&node).expect("a folder");
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", SCRIPT, "sh"]).arg(&node);
    started_by(unshare, &command)
}

/// Has a program run past the library.
fn strange(command: &mut Command) -> &mut Command {
    command.args(["env", "LD_PRELOAD="])
}

fn is_mounted(at: &Path) -> bool {
    options_of_mount(at).is_some()
}

/// The last mount's, which hides those before.
fn options_of_mount(at: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let last = mounts.lines().rfind(|line| line.split(' ').nth(4) == at.to_str())?;
    last.split(' ').nth(5).map(str::to_owned)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// The lines of two outputs that differ.
fn differing(found: &str, expected: &str) -> Vec<String> {
    let (mut found, mut expected) = (found.lines(), expected.lines());
    let mut differing = Vec::new();
    loop {
        match (found.next(), expected.next()) {
            (None, None) => return differing,
            (one, other) if one == other => {}
            (one, other) => differing.push(format!("{one:?} instead of {other:?}")),
        }
    }
}

#[test]
fn day_of_strangers_in_a_view_is_that_in_a_plain_folder() {
    if !can_mount("a day in a view") {
        return;
    }
    let folder = Folder::new();
    let (plain, kept) = (folder.join("plain/local"), folder.join("tmp"));
    fs::create_dir_all(&plain).expect("a folder");
    fs::create_dir(&kept).expect("a folder");
    let day = |command: &mut Command, at: &Path| {
        let command = command.arg("sh").arg(script("day.sh")).arg(at).env("TMPDIR", &kept);
        succeed(command.env("HOME", &kept), LONG)
    };
    let expected = day(Command::new("env").arg("-u").arg("LD_PRELOAD"), &plain);
    let found = day(strange(&mut coalescing(&folder, "always")), &local(&folder));
    assert_eq!(differing(&found, &expected), [""; 0], "coalesced");
    assert!(!is_mounted(&local(&folder)) && fs::read_dir(local(&folder)).unwrap().count() == 0);

    let server = Server::start(&folder, Scheme::Tcp);
    let found = day(strange(&mut mapping(&folder, &server)), &local(&folder));
    assert_eq!(differing(&found, &expected), [""; 0], "remote");
    server.end();
}

/// What a file system of the kernel's answers, and a view does not.
#[test]
fn calls_through_a_view_differ_in_what_is_documented() {
    let Some(program) = python("calls through a view", "fileset") else { return };
    if !can_mount("calls through a view") {
        return;
    }
    let folder = Folder::new();
    let [python, script] = &program;
    let native = succeed(Command::new(python).arg(script).arg(folder.join("native")), SOON);
    let mut command = coalescing(&folder, "always");
    let strange = strange(&mut command).args(&program).arg(local(&folder).join("kept"));
    let found = succeed(strange, SOON);
    // What is mapped shows what is in the file, after bytes were moved in it natively.
    let documented =
        ["fallocate", "xattr", "mkfifo", "mknod", "SEEK_", "statfs", "bind", "O_TMPFILE", "mmap"];
    let differing = differing(&found, &native);
    let is_unknown = |line: &&String| !documented.iter().any(|word| line.contains(word));
    let unknown: Vec<_> = differing.iter().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(found.lines().count() > 60);
}

const ALTERNATING: &str = "
import os, subprocess, sys
strange = lambda *words: subprocess.run(
    words, env={**os.environ, 'LD_PRELOAD': ''}, check=True, stdout=subprocess.PIPE).stdout
file = open(sys.argv[1], 'w+b', buffering=0)
for round in range(40):
    ours = b'%07d\\n' % round
    os.pwrite(file.fileno(), ours, round * 16)
    size = round * 16 + 8
    assert strange('stat', '-c', '%s', sys.argv[1]) == b'%d\\n' % size, size
    assert strange('tail', '-c', '8', sys.argv[1]) == ours, round
    strange('sh', '-c', 'printf %s%07d >>$0' % ('x', round), sys.argv[1])
    assert os.fstat(file.fileno()).st_size == size + 8
    assert os.pread(file.fileno(), 8, size) == b'x%07d' % round
    name = '%s.%d' % (sys.argv[1], round)
    strange('cp', sys.argv[1], name)
    assert os.path.getsize(name) == size + 8
    os.rename(name, name + '.renamed')
    assert strange('sh', '-c', 'ls $0.*', sys.argv[1]).decode().split() == [name + '.renamed']
    os.unlink(name + '.renamed')
os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC))
assert strange('cat', sys.argv[1]) == b''
";

#[test]
fn strangers_and_programs_of_the_library_see_each_others_writes_at_once() {
    if !can_mount("writes beside a view") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        succeed(command.args(["python3", "-c", ALTERNATING]).arg(local(&folder).join("f")), LONG);
    }
    server.end();
}

#[test]
fn reads_through_a_view_are_right_whatever_is_done() {
    if Command::new("fsx").arg("--version").output().is_err() {
        return skip("fsx through a view", "not found; 'cargo install fsx' installs it");
    }
    if !can_mount("fsx through a view") {
        return;
    }
    let folder = Folder::new();
    let config = folder.join("fsx.toml");
    let weights = "[weights]\nclose_open = 1\ninvalidate = 1\nread = 10\nwrite = 10\n\
        mapread = 5\nmapwrite = 5\ntruncate = 4\nfsync = 0.1\nfdatasync = 0.1\n\
        posix_fallocate = 1\npunch_hole = 1\nsendfile = 1\nposix_fadvise = 1\n\
        copy_file_range = 1\n[opsize]\nmin = 1\n";
    fs::write(&config, weights).expect("a file");
    let seed = random("fsx through a view").u32(..).to_string();
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        let fsx = strange(&mut command).arg("fsx").arg("-f").arg(&config);
        succeed(fsx.args(["-N", "3000", "-S", &seed]).arg(local(&folder).join("file")), LONG);
    }
    server.end();
}

#[test]
fn locks_of_strangers_and_of_the_library_exclude_each_other() {
    if !can_mount("locks beside a view") {
        return;
    }
    let folder = Folder::new();
    let counter = "import fcntl, os, sys\n\
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n\
        for _ in range(50):\n \
        (fcntl.lockf if sys.argv[2] == 'record' else fcntl.flock)(fd, fcntl.LOCK_EX)\n \
        count = int(os.pread(fd, 20, 0) or 0)\n \
        os.pwrite(fd, b'%d' % (count + 1), 0)\n \
        (fcntl.lockf if sys.argv[2] == 'record' else fcntl.flock)(fd, fcntl.LOCK_UN)\n";
    let script = "for kind in record whole; do \
        python3 -c \"$1\" \"$0\" $kind & LD_PRELOAD= python3 -c \"$1\" \"$0\" $kind & \
        LD_PRELOAD= python3 -c \"$1\" \"$0\" $kind & wait; done; cat \"$0\"";
    let mut command = coalescing(&folder, "always");
    command.args(["sh", "-c", script]).arg(local(&folder).join("count")).arg(counter);
    assert_eq!(succeed(&mut command, LONG), "300");
}

#[test]
fn folder_is_mounted_unless_that_is_not_wanted() {
    if !can_mount("a view by default") {
        return;
    }
    let folder = Folder::new();
    let script = "echo 1 | tee \"$0/f\" >/dev/null; cat \"$0/f\"; \
        grep -c \" $0 .* - fuse.kakehi\" /proc/self/mountinfo; true";
    let flag = format!("{}={}", local(&folder).display(), folder.join("kept.sion").display());
    let mut default = kakehi_run(&folder, &["--coalesce", &flag]);
    for (command, mounts) in [(&mut default, 1), (&mut coalescing(&folder, "none"), 0)] {
        let said = succeed(command.args(["sh", "-c", script]).arg(local(&folder)), SOON);
        assert_eq!(said, format!("1\n{mounts}\n"));
    }
}

/// By the requests that the daemon reads off its device.
#[test]
fn programs_of_the_library_ask_nothing_of_a_view() {
    if !can_mount("requests of a view") || Command::new("strace").arg("-V").output().is_err() {
        return skip("requests of a view", "strace not found");
    }
    let folder = Folder::new();
    let script = "
import os, sys
for number in range(100):
    name = '%s/f%d' % (sys.argv[1], number)
    with open(name, 'w') as file:
        file.write('x' * number)
    assert os.stat(name).st_size == number and open(name).read() == 'x' * number
    os.rename(name, name + 'r')
    os.unlink(name + 'r')
";
    let requests = |library: &str| {
        let run = coalescing(&folder, "always");
        let log = folder.join(format!("trace{}", library.len()));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-qq", "-s", "0", "-e", "trace=readv", "-o"]).arg(&log);
        let mut traced = started_by(strace, &run);
        traced.arg("env").args((!library.is_empty()).then_some(library));
        succeed(traced.args(["python3", "-c", script]).arg(local(&folder)), LONG);
        let trace = fs::read_to_string(&log).expect("a trace");
        let is_request = |line: &&str| {
            line.contains("</dev/fuse>") && !line.contains(" = -1 ") && line.contains(" = ")
        };
        trace.lines().filter(is_request).count()
    };
    let (served, strange) = (requests(""), requests("LD_PRELOAD="));
    note(format!("requests of a view: {served} by a program of the library, {strange} by another"));
    // The kernel introduces itself, and `kakehi run` looks whether somebody is there.
    assert!(served <= 4 && strange > 500, "{served} and {strange}");
}

#[test]
fn program_that_starts_in_a_mapped_folder_is_in_its_view() {
    if !can_mount("the folder of a view") {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(local(&folder)).expect("a folder");
    let mut command = coalescing(&folder, "always");
    strange(command.current_dir(local(&folder))).args(["sh", "-c", "echo 1 >f; cat f"]);
    assert_eq!(succeed(&mut command, SOON), "1\n");
    assert_eq!(fs::read_dir(local(&folder)).expect("there").count(), 0);
    let mut again = coalescing(&folder, "none");
    assert_eq!(succeed(again.arg("cat").arg(local(&folder).join("f")), SOON), "1\n");
}

#[test]
fn ordinary_user_has_a_view_by_the_helper() {
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skip("a user's view", "no fusermount3: install fuse3");
    }
    needs_view!();
    let folder = Folder::new();
    let bin = install(&folder);
    let home = folder.join("home");
    fs::create_dir(&home).expect("a folder");
    let Some(mut command) = as_nobody(bin.join("kakehi")) else { return };
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root");
    let flag = format!("{}={}", home.join("local").display(), home.join("kept.sion").display());
    let script = "cd \"$0\"; echo by a stranger >f; mkdir -m 700 d; cat f; stat -c '%U %a' f d; \
        grep -c \" $0 fuse\\| $0 .*fuse.kakehi\" /proc/self/mountinfo";
    command.env("XDG_RUNTIME_DIR", &home).current_dir("/");
    command.args(["run", "--view", "always", "--coalesce", &flag, "--", "env", "LD_PRELOAD="]);
    command.args(["sh", "-c", script]).arg(home.join("local"));
    let said = succeed(&mut with_device(&folder, command), SOON);
    assert_eq!(said, "by a stranger\nnobody 644\nnobody 700\n1\n");
    assert!(!is_mounted(&home.join("local")));
}

#[test]
fn other_users_are_held_to_modes() {
    if !rustix::process::geteuid().is_root() || !can_mount("modes in a view") {
        return skip("modes in a view", "only root lets others in");
    }
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let script = "cd \"$0\"; echo secret >s; chmod 600 s; mkdir -m 1777 all; \
        setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \
        'cat s; echo x >new; echo mine >all/f; stat -c \"%u %g\" all/f; rm s; cat all/f' 2>&1";
    let mut command = coalescing(&folder, "always");
    strange(&mut command).args(["bash", "-c", script]).arg(local(&folder));
    let said = run(&mut command, SOON);
    let said = text(&said.stdout);
    let refusals = said.lines().filter(|line| line.contains("denied")).count();
    assert!(refusals == 3 && said.contains("65534 65534\n") && said.ends_with("mine\n"), "{said}");
}

#[test]
fn files_in_a_set_group_id_folder_have_its_group_whoever_makes_them() {
    if !rustix::process::geteuid().is_root() || !can_mount("groups in a view") {
        return skip("groups in a view", "only root lets others in");
    }
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; mkdir all; chgrp 7 all; chmod 2777 all; \
        setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \
        'echo x >all/f; mkdir all/d; stat -c \"%u %g\" all/f all/d' 2>&1";
    let mut command = server.run(&folder);
    let said =
        succeed(strange(&mut command).args(["bash", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(said, "65534 7\n65534 7\n");
    server.end();
}

#[test]
fn view_does_not_change_what_is_in_the_multifile() {
    if !can_mount("a multifile beside a view") {
        return;
    }
    let folder = Folder::new();
    let script = "cd \"$0\" && seq 1000 >ours && LD_PRELOAD= sh -c 'seq 1000 >theirs; ln theirs t'";
    succeed(coalescing(&folder, "always").args(["sh", "-c", script]).arg(local(&folder)), SOON);
    let out = folder.join("out");
    let kept = folder.join("kept.sion");
    succeed(Command::new(kakehi()).args(["multifile", "extract"]).arg(&kept).arg(&out), SOON);
    for name in ["ours", "theirs", "t"] {
        let lines = fs::read_to_string(out.join(name)).expect("extracted");
        assert_eq!(lines.lines().count(), 1000, "{name}");
    }
    succeed(Command::new(kakehi()).args(["multifile", "verify"]).arg(&kept), SOON);
}

/// The programs of the day are served by the library, but for those that it does not reach.
#[test]
fn day_of_served_programs_beside_a_view_is_that_in_a_plain_folder() {
    if !can_mount("a day beside a view") {
        return;
    }
    let folder = Folder::new();
    let script = "cd \"$0\"; \
        printf 'int main(void) { return 7; }' >a.c; cc a.c -o a; ./a; echo $?; \
        printf '#!/bin/sh\\necho in $(basename \"$PWD\")\\n' >s; chmod +x s; ./s; ../local/s; \
        mkdir d; cd d; LD_PRELOAD= sh -c 'echo stranger >f; ls ..; pwd' | sed 's/.*local/local/'; \
        cat f; echo more >>f; LD_PRELOAD= cat f; cd ..; find . | sort; cp -r d e; rm -r d; \
        LD_PRELOAD= diff -r e e && ls e; (cd e && LD_PRELOAD= tar cf - .) | tar tf - | sort; \
        python3 -c 'import os, shutil; os.chdir(\"e\"); print(os.listdir(\".\")); \
        os.chdir(\"..\"); shutil.rmtree(\"e\"); print(sorted(os.listdir()))'";
    let plain = folder.join("plain/local");
    fs::create_dir_all(&plain).expect("a folder");
    let expected = succeed(Command::new("bash").args(["-c", script]).arg(&plain), LONG);
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), LONG);
        assert_eq!(differing(&found, &expected), [""; 0]);
    }
    server.end();
}

/// Runs `kakehi` outside of any job, with its sockets in `folder`.
fn by_hand(folder: &Folder, words: &[&str], paths: &[&Path]) -> String {
    let mut command = Command::new(kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    succeed(command.args(words).args(paths), SOON)
}

#[test]
fn multifile_is_mounted_and_unmounted_by_hand() {
    if !can_mount("a mount by hand") {
        return;
    }
    let folder = Folder::new();
    let (kept, at) = (folder.join("kept.sion"), folder.join("at"));
    let mut refused = Command::new(kakehi());
    let kakehi = |words: &[&str], paths: &[&Path]| by_hand(&folder, words, paths);
    kakehi(&["mount"], &[&kept, &at]);
    let mut again = Command::new(super::harness::kakehi());
    again.env("XDG_RUNTIME_DIR", folder.path()).arg("mount").args([&kept, &at]);
    let output = run(&mut again, SOON);
    assert!(text(&output.stderr).contains("it is mounted already; use it"), "{output:?}");
    fs::write(at.join("file"), "by hand").expect("mounted");
    fs::create_dir(at.join("sub")).expect("mounted");
    let in_use = fs::File::open(at.join("sub")).expect("mounted");
    refused.env("XDG_RUNTIME_DIR", folder.path()).arg("umount").arg(&at);
    let output = run(&mut refused, SOON);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("busy") && is_mounted(&at), "{output:?}");
    drop(in_use);
    kakehi(&["umount"], &[&at]);
    assert!(!is_mounted(&at) && fs::read_dir(&at).expect("there").count() == 0);

    let second = folder.join("second");
    kakehi(&["mount", "--read-only"], &[&kept, &at]);
    kakehi(&["mount", "--read-only"], &[&kept, &second]);
    for at in [&at, &second] {
        assert_eq!(fs::read_to_string(at.join("file")).expect("there"), "by hand");
        let refused = fs::write(at.join("file"), "").expect_err("read-only");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        kakehi(&["umount"], &[at]);
    }

    let server = Server::start(&folder, Scheme::Tcp);
    let flags = server.flags(&at);
    kakehi(&["mount", "--remote", &flags[1], "--key", &flags[3], "--path", "/job"], &[&at]);
    fs::write(at.join("remote"), "by hand").expect("mounted");
    assert_eq!(fs::read_to_string(server.job().join("remote")).expect("there"), "by hand");
    kakehi(&["umount"], &[&at]);
    assert!(!is_mounted(&at));
    server.end();
}
