//! Names that mean another file to the daemon than to the program, under policy `delegate`.

use std::{fs, os::unix::fs::symlink};

use crate::{
    calls::Calls,
    harness::{Folder, SOON, kakehi_run, program, run, skip, succeed},
};

const DELEGATE: [&str; 2] = ["--rule", "/**=delegate"];

/// The kernel goes up from where the link leads.
#[test]
fn what_is_above_a_links_folder_is_above_where_the_link_leads() {
    let folder = Folder::new();
    fs::create_dir_all(folder.join("x/y")).expect("folders");
    symlink("x/y", folder.join("link")).expect("link");
    fs::write(folder.join("f"), "right").expect("file");
    let mut command = kakehi_run(&folder, &DELEGATE);
    let mut calls = Calls::start(command.current_dir(folder.path()).arg(program("calls")));
    assert_eq!(calls.ask("stat link/../f"), "ENOENT");
    let fd = calls.get("open link/../f +ct");
    assert_eq!(calls.get(&format!("write {fd} new")), 3);
    assert_eq!(calls.ask("rename link/../f link/../g"), "0");
    assert_eq!(calls.ask("link link/../g h"), "0");
    assert_eq!(calls.ask("mkdir link/../d"), "0");
    assert_eq!(calls.ask("stat x/../f"), "5", "a folder's");
    calls.end();
    assert_eq!(fs::read_to_string(folder.join("f")).expect("as it was"), "right");
    for name in ["x/g", "h"] {
        assert_eq!(fs::read_to_string(folder.join(name)).expect("made"), "new");
    }
    assert!(folder.join("x/d").is_dir() && !folder.join("d").exists());
}

#[test]
fn files_of_mounts_that_only_the_program_has_are_its_own() {
    let folder = Folder::new();
    let mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];
    let script = "mount -t tmpfs none \"$0\"; echo inside >\"$0/f\"; cat \"$0/f\"";
    let mut probe = std::process::Command::new(mounted[0]);
    let probe = run(probe.args(&mounted[1..]).args([script, "/mnt"]), SOON);
    if !probe.status.success() {
        return skip("other mounts", "they are not allowed");
    }
    fs::create_dir(folder.join("out")).expect("folder");
    fs::write(folder.join("out/f"), "outside").expect("file");
    let mut command = kakehi_run(&folder, &DELEGATE);
    let found = succeed(command.args(mounted).arg(script).arg(folder.join("out")), SOON);
    assert_eq!(found, "inside\n");
    assert_eq!(fs::read_to_string(folder.join("out/f")).expect("as it was"), "outside");
}
