//! Calls on remote files, one by one, compared with the same calls natively.

use std::{
    collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path, process::Command,
};

use tempfile::TempDir;

use super::local;
use crate::{
    harness::{Folder, SOON, kakehi_run, program, python, succeed},
    remote::server::{Scheme, Server},
    views::can_mount,
};

/// Expected differences, as `docs/guide/remote.md` lists them.
const DIFFERENT: [(&str, &str); 14] = [
    ("O_TMPFILE", "ENOTSUP"),
    ("__xmknod", "ENOTSUP"),
    ("aio_write", "ENOSYS"),
    ("bind", "ENOTSUP"),
    ("clone", "ENOTSUP"),
    ("fsetxattr", "ENOTSUP"),
    ("getxattr", "ENOTSUP"),
    ("listxattr", "ENOTSUP"),
    ("mkfifo", "ENOTSUP"),
    ("mknod", "ENOTSUP"),
    ("preadv2", "ENOTSUP"),
    ("pwritev2", "ENOTSUP"),
    ("removexattr", "ENOTSUP"),
    ("setxattr", "ENOTSUP"),
];

#[test]
fn calls_come_to_what_they_do_natively_but_for_what_is_documented() {
    let Some(program) = python("remote file calls", "fileset") else { return };
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let [python, script] = &program;
    let other = other_file_system(&folder);
    let other = other.as_ref().map(TempDir::path);
    let mut native = Command::new(python);
    native.arg(script).arg(folder.join("native")).args(other);
    let native = succeed(&mut native, SOON);
    // No rule is about the folder itself.
    let rule = format!("{}/**=delegate", folder.join("delegated").display());
    let mut delegated = kakehi_run(&folder, &["--rule", &rule]);
    let delegated = delegated.args(&program).arg(folder.join("delegated")).args(other);
    assert_eq!(succeed(delegated, SOON), native);
    let native = by_name(&native);
    let expected: BTreeMap<_, _> = DIFFERENT.into_iter().collect();
    if !can_mount("remote file calls beside a view") {
        return;
    }
    let mut remote = server.run(&folder);
    remote.args(&program).arg(local(&folder).join("kept")).args(other);
    let remote = succeed(&mut remote, SOON);
    let mut remote = by_name(&remote);
    assert!(native.len() > 60 && native.keys().eq(remote.keys()), "{native:?} {remote:?}");
    // The native file system may be one without some of them.
    remote.retain(|name, result| native[name] != *result);
    for (name, result) in &remote {
        assert_eq!(expected.get(name), Some(result), "{name}");
    }
    assert!(remote.contains_key("mkfifo"), "this list is looked at");
    server.end();
}

#[test]
fn what_programs_seldom_do_with_remote_files_comes_to_what_it_does_natively() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("corners");
    assert!(said.contains("still there"), "{said}");
}

#[test]
fn numbers_that_programs_choose_are_theirs_beside_remote_files() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("chosen");
    assert!(said.contains("[high+++++.]") && said.contains("child: 0"), "{said}");
}

#[test]
fn remote_files_are_ready_and_folders_listed_again_as_native_ones() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("ready");
    assert!(said.contains("interrupted: Interrupted") && said.contains("names: 4"), "{said}");
}

#[test]
fn threads_are_cancelled_in_calls_on_remote_files_as_on_native_ones() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("points");
    assert!(said.contains("fallocate: cancelled") && said.contains("flock: passed"), "{said}");
}

#[test]
fn what_is_seldom_asked_of_remote_files_is_answered_as_of_native_ones() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("asked");
    assert!(said.contains("tcgetattr: Inappropriate ioctl"), "{said}");
}

#[test]
fn open_remote_files_are_changed_by_the_names_of_their_numbers() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("own_names");
    assert!(said.contains("mode 100600") && said.contains("time 4000"), "{said}");
}

/// By the server, which finds out that the folder is gone.
#[test]
fn names_of_an_open_folder_are_made_durable_where_they_are() {
    crate::views::needs_view!();
    let Some(program) = python("durable names", "synced_folder") else { return };
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.args(&program).arg(local(&folder)).arg(folder.join("root/job"));
    assert_eq!(succeed(&mut command, SOON), "ENOENT\n");
    server.end();
}

#[test]
fn real_paths_of_remote_names_are_those_of_native_ones() {
    crate::views::needs_view!();
    let said = same_in_a_remote_folder("real");
    assert!(said.contains("back: /c") && said.contains("loop: Too many levels"), "{said}");
}

/// Runs a program in a folder of its own and in a remote one, compares what it says, and returns
/// that.
fn same_in_a_remote_folder(name: &str) -> String {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    let native = succeed(Command::new(program(name)).arg(native), SOON);
    let remote = succeed(server.run(&folder).arg(program(name)).arg(local(&folder)), SOON);
    assert_eq!(remote, native);
    server.end();
    native
}

#[test]
fn calls_by_number_on_remote_files_come_to_what_they_do_natively() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    let native = succeed(Command::new(program("numbers")).arg(native), SOON);
    let remote = succeed(server.run(&folder).arg(program("numbers")).arg(local(&folder)), SOON);
    // What servers keep none of is the end.
    let (native, _) = native.split_once("special\n").expect("printed");
    let (remote, special) = remote.split_once("special\n").expect("printed");
    // A folder's descriptor is the view's.
    let found = remote.replace("fstatfs: 0\nsame: 0\n", "fstatfs: 0\nsame: 1\n");
    assert_eq!(found, native);
    let refused = |line: &str| {
        line.ends_with(": Operation not supported") || line == "watch: No space left on device"
    };
    assert!(special.lines().count() == 23 && special.lines().all(refused), "{special}");
    server.end();
}

/// A folder that nothing can be renamed to, if there is one.
fn other_file_system(folder: &Folder) -> Option<TempDir> {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let other = tempfile::tempdir_in("/dev/shm").ok()?;
    (device(other.path()) != device(folder.path())).then_some(other)
}

fn by_name(said: &str) -> BTreeMap<&str, &str> {
    said.lines().filter_map(|line| line.split_once(": ")).collect()
}
