//! Calls on names answer as the kernel does, whoever serves them.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, SOON, kakehi_run, program, run, skip, succeed, text},
    remote::server::{Scheme, Server},
    views::{can_mount, with_device},
};

const DELEGATED: &[&str] = &["--rule", "/**=delegate"];

/// A way to serve a folder: flags of `run`, and the folder.
struct Way {
    flags: Vec<String>,
    folder: String,
}

/// Delegated, and in a multifile.
fn ways(folder: &Folder) -> [Way; 2] {
    let [plain, kept] = ["plain", "kept"].map(|name| folder.join(name).display().to_string());
    fs::create_dir(&plain).expect("a folder");
    let coalesce = format!("{kept}={kept}.sion");
    [
        Way { flags: DELEGATED.iter().map(|word| (*word).to_owned()).collect(), folder: plain },
        Way { flags: vec!["--coalesce".to_owned(), coalesce], folder: kept },
    ]
}

fn says(command: &mut Command, words: &[&str]) -> String {
    succeed(command.arg(program("names")).args(words), SOON)
}

#[test]
fn names_that_the_kernel_refuses_are_refused_alike() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    let expected = says(&mut Command::new("env"), &[native.to_str().expect("UTF-8")]);
    for Way { flags, folder: place } in ways(&folder) {
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let found = says(&mut kakehi_run(&folder, &flags), &[&place]);
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "{flags:?}");
        }
        assert_eq!(found.lines().count(), expected.lines().count());
    }
}

#[test]
fn open_that_creates_never_fails_beside_an_unlink() {
    crate::views::needs_view!();
    let folder = Folder::new();
    for Way { flags, folder: place } in ways(&folder) {
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        says(&mut kakehi_run(&folder, &flags), &["race", &place]);
    }
}

#[test]
fn position_beyond_the_file_system_is_refused_and_stays() {
    use std::io::{Seek as _, SeekFrom};
    const FAR: u64 = 1 << 50;
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    for rules in ["", "/**=delegate"] {
        daemon.set("KAKEHI_RULES", rules);
        let mut calls = Calls::wrapped(&daemon);
        let path = folder.join("file");
        let mut native = fs::File::create(&path).expect("a file");
        let expected = match native.seek(SeekFrom::Start(FAR)) {
            Ok(at) => (at.to_string(), at.to_string()),
            Err(_) => ("EINVAL".to_owned(), "5".to_owned()),
        };
        let fd = calls.get(&format!("open {} +", path.display()));
        calls.get(&format!("write {fd} hello"));
        let found = calls.ask(&format!("seek {fd} {}", FAR - 5));
        assert_eq!((found, calls.ask(&format!("seek {fd} 0"))), expected, "{rules:?}");
        calls.end();
    }
    daemon.end();
}

/// An ordinary user's test: to root every folder is open.
#[test]
fn folder_is_entered_with_x_and_read_with_r() {
    const USER: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let is_possible = Command::new(USER[0]).args(&USER[1..]).arg("true").output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        return skip("folders as an ordinary user", "no setpriv, or not root");
    }
    if !can_mount("folders as an ordinary user") {
        return;
    }
    let folder = Folder::new();
    let open = |path: &Path| {
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(path, mode).expect("ours");
    };
    open(folder.path());
    let names = program("names");
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    open(&native);
    let as_user = |flags: &[&str], place: &Path| {
        let mut command = Command::new(USER[0]);
        command.args(&USER[1..]).env("XDG_RUNTIME_DIR", folder.join("run"));
        if !flags.is_empty() {
            command.arg(kakehi_run(&folder, &[]).get_program());
            command.arg("run").args(flags).arg("--");
        }
        command.arg(&names).arg("enter").arg(place);
        succeed(&mut with_device(&folder, command), SOON)
    };
    fs::create_dir(folder.join("run")).expect("a folder");
    let chown = Command::new("chown").arg("65534").arg(folder.join("run")).status();
    assert!(chown.expect("chown starts").success());
    fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o700)).expect("ours");
    let kept = folder.join("kept");
    let flag = format!("{}={}.sion", kept.display(), kept.display());
    let expected = as_user(&[], &native);
    assert!(expected.contains("Permission denied"), "{expected}");
    assert_eq!(as_user(&["--coalesce", &flag], &kept), expected);
}

/// Modes of what is made in `place`, which has a default ACL.
fn made_below_an_acl(mut command: Command, place: &str) -> String {
    let script = "cd \"$0\" && umask 027 && : >file && mkdir folder && stat -c '%a %n' file folder";
    succeed(command.args(["sh", "-c", script]).arg(place), SOON)
}

#[test]
fn default_acl_of_a_folder_takes_the_place_of_the_umask() {
    crate::views::needs_view!();
    const ACL: [&str; 3] = ["-d", "-m", "u::rwx,g::rwx,o::r-x"];
    let folder = Folder::new();
    let places = ["native", "delegated", "root", "root/job"].map(|name| folder.join(name));
    for place in &places {
        fs::create_dir(place).expect("a folder");
        let set = Command::new("setfacl").args(ACL).arg(place).output();
        if !set.is_ok_and(|set| set.status.success()) {
            return skip("default ACLs", "no setfacl, or none on this file system");
        }
    }
    let [native, delegated, ..] = places.map(|place| place.display().to_string());
    let expected = made_below_an_acl(Command::new("env"), &native);
    assert!(expected.contains("664 file") && expected.contains("775 folder"), "{expected}");
    assert_eq!(made_below_an_acl(kakehi_run(&folder, DELEGATED), &delegated), expected);
    let server = Server::start_under(&[], &folder, Scheme::Tcp);
    let local = folder.join("local").display().to_string();
    assert_eq!(made_below_an_acl(server.run(&folder), &local), expected);
    server.end();
    // A multifile has none.
    let kept = folder.join("kept").display().to_string();
    let mut command = kakehi_run(&folder, &["--coalesce", &format!("{kept}={kept}.sion")]);
    let refused = run(command.env("LC_ALL", "C").arg("setfacl").args(ACL).arg(&kept), SOON);
    assert!(text(&refused.stderr).contains("Operation not supported"), "{refused:?}");
    let command = kakehi_run(&folder, &["--coalesce", &format!("{kept}={kept}.sion")]);
    let masked = made_below_an_acl(command, &kept);
    assert_eq!(masked, "640 file\n750 folder\n");
}
