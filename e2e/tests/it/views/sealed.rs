//! Folders whose files are elsewhere, where there is no view: nobody writes into them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use super::{coalescing, is_mounted, options_of_mount, strange};
use crate::{
    bad_input::{as_nobody, install},
    coalesce::kill_all,
    harness::{Folder, Running, SOON, run, skip, succeed, text, wait_for},
    remote::{
        local,
        server::{Scheme, Server},
    },
};

/// Writes past the library, then by it.
const BOTH: &str = "LD_PRELOAD= sh -c 'echo lost >\"$0/lost\"' \"$0\" 2>/dev/null; echo $?; \
    echo kept | tee \"$0/kept\" >/dev/null; cat \"$0/kept\"";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect()
}

/// True if this process may mount; says loudly that `what` was not tested where not.
fn can_cover(what: &str) -> bool {
    let can =
        Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|done| done.success());
    if !can || !rustix::process::geteuid().is_root() {
        skip(what, "only root mounts");
    }
    can
}

#[test]
fn strangers_write_fails_where_a_folder_has_no_view() {
    if !can_cover("writes of root into hidden folders") {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(local(&folder)).expect("a folder");
    fs::set_permissions(local(&folder), fs::Permissions::from_mode(0o2775)).expect("ours");
    let server = Server::start(&folder, Scheme::Tcp);
    let mut remote = server.run(&folder);
    remote.env("KAKEHI_VIEW", "none");
    for command in [&mut coalescing(&folder, "none"), &mut remote] {
        let output = run(command.args(["sh", "-c", BOTH]).arg(local(&folder)), SOON);
        let said = (text(&output.stdout), text(&output.stderr));
        assert!(said.0 == "2\nkept\n" && !said.1.contains("written past"), "{said:?}");
        assert!(!is_mounted(&local(&folder)) && mode(&local(&folder)) == 0o2775);
        assert_eq!(names(&local(&folder)), [""; 0]);
    }
    server.end();
}

#[test]
fn strangers_of_an_ordinary_user_are_held_to_the_mode() {
    let folder = Folder::new();
    let bin = install(&folder);
    let home = folder.join("home");
    let place = home.join("local");
    fs::create_dir_all(&place).expect("folders");
    let flag = format!("{}={}", place.display(), home.join("kept.sion").display());
    for before in [0o755, 0o2770, 0o700, 0o777] {
        let Some(mut command) = as_nobody(bin.join("kakehi")) else { return };
        for path in [&home, &place] {
            chown(path, Some(65534), Some(65534)).expect("root");
        }
        fs::set_permissions(&place, fs::Permissions::from_mode(before)).expect("root");
        command.env("XDG_RUNTIME_DIR", &home).current_dir("/");
        command.args(["run", "--view", "none", "--coalesce", &flag, "--", "sh", "-c", BOTH]);
        let output = run(command.arg(&place), SOON);
        let said = (text(&output.stdout), text(&output.stderr));
        assert_eq!(mode(&place), before, "{said:?}");
        if before == 0o777 {
            // What everybody writes into is left so, and told of.
            assert!(said.0.starts_with("0\n") && said.1.contains("written past"), "{said:?}");
        } else {
            assert!(said.0 == "2\nkept\n" && names(&place).is_empty(), "{before:o}: {said:?}");
        }
    }
}

/// dash closes its own number first, and runs the program whatever the redirection says.
#[test]
fn standard_output_that_cannot_lead_to_a_folder_without_a_view_is_nobody_elses_number() {
    let folder = Folder::new();
    fs::create_dir(local(&folder)).expect("a folder");
    let mut command = coalescing(&folder, "none");
    let script = "/usr/bin/test -e /proc/self/fd/1 >\"$0/log\"; echo $?";
    let output = run(command.args(["dash", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(text(&output.stdout), "0\n", "{output:?}");
}

#[test]
fn folder_that_a_killed_job_left_read_only_is_mended_by_the_next_run() {
    if !can_cover("a folder that was left read-only") {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(local(&folder)).expect("a folder");
    let before = mode(&local(&folder));
    for rounds in 1..3 {
        let mut command = coalescing(&folder, "none");
        let mut running = Running::start(command.args(["sleep", "60"]));
        // It is mounted first, and then made read-only.
        let is_covered =
            || options_of_mount(&local(&folder)).is_some_and(|it| it.starts_with("ro"));
        assert!(wait_for(SOON, is_covered));
        kill_all(&folder);
        running.wait(SOON);
        fs::write(local(&folder).join("f"), "").expect_err("it is read-only yet");
        let mut next = coalescing(&folder, "none");
        succeed(strange(&mut next).arg("true"), SOON);
        assert!(!is_mounted(&local(&folder)) && mode(&local(&folder)) == before, "{rounds}");
    }
    fs::write(local(&folder).join("f"), "").expect("as it was");
}
