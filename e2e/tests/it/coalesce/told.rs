//! Messages about multifiles.

use std::{fs, path::Path, process::Command};

use super::{coalescing, kept, local, multifile};
use crate::{
    harness::{Folder, SOON, kakehi, kakehi_run, run, stats, succeed, text},
    limits::Disk,
    remote::server::{Scheme, Server},
};

#[test]
fn status_names_the_multifiles_of_a_run_and_of_a_server() {
    let folder = Folder::new();
    let line = |folder: &Path, file: &Path| {
        format!("keeps     {} in the multifile {}\n", folder.display(), file.display())
    };
    let status = format!("env -u LD_PRELOAD {} status", kakehi().display());
    let said = succeed(coalescing(&folder).args(["sh", "-c", &status]), SOON);
    assert!(said.contains(&line(&local(&folder), &kept(&folder))), "{said}");

    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let socket = folder.join("kakehi").join(server.running.child.id().to_string());
    let mut command = Command::new(kakehi());
    let said = succeed(command.args(["status", "--socket"]).arg(socket), SOON);
    let [root, file] = ["root/job", "job.sion"].map(|name| folder.join(name));
    assert!(said.contains(&line(&root, &file)), "{said}");
    server.end();
}

#[test]
fn a_multifile_that_cannot_be_closed_is_told_as_what_it_is() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let file = disk.0.join("kept.sion");
    let script = "for i in 1 2 3 4 5 6; do echo $i >\"$0/$i\"; done; cat /dev/zero >\"$1\"; true";
    let flag = format!("{}={}", local(&folder).display(), file.display());
    let stats_file = folder.join("stats");
    let told = stats_file.display().to_string();
    let mut command = kakehi_run(&folder, &["--coalesce", &flag, "--stats", &told]);
    command.args(["sh", "-c", script]).arg(local(&folder)).arg(disk.0.join("fill"));
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let line = format!("kakehi: multifile {}: it could not be closed: ", file.display());
    let told: Vec<_> = said.lines().filter(|said| said.starts_with(&line)).collect();
    assert!(told.len() == 1 && told[0].contains("No space left"), "{said}");
    assert!(!said.contains("staged write"), "{said}");
    let summary = &stats(&stats_file)[0];
    assert_eq!((&summary["drain_errors"], summary["unclosed"].is_object()), (&0.into(), true));
    disk.free("fill");
    succeed(&mut multifile(&["repair"], &file), SOON);
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let folder = Folder::new();
    let fails = |flags: &[&str], program: &str| {
        let mut command = kakehi_run(&folder, flags);
        command.env("KAKEHI_REMOTE_TIMEOUT", "2s");
        let output = run(command.arg(program).current_dir(folder.path()), SOON);
        let said = text(&output.stderr);
        // That a server is waited for is told before.
        let lines = said.lines().filter(|line| !line.contains("waiting up to")).count();
        assert!(!output.status.success() && lines == 1, "{flags:?}: {said}");
        let left = fs::read_dir(folder.path()).expect("there").count();
        assert_eq!(left, 0, "{flags:?} leave something");
    };
    fails(&["--coalesce", "a/b=x.sion"], "/nowhere");
    fails(&["--coalesce", "a/b=x.sion"], "no-such-program");
    fails(&["--coalesce", "a/b=none/x.sion"], "true");
    fails(&["--coalesce", "a=x.sion", "--coalesce", "b=none/y.sion"], "true");
    fails(&["--remote", "unix://none", "--map", "a/b=/c"], "true");

    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    fs::write(disk.0.join("fill"), vec![0; 1 << 20]).expect_err("it is full");
    let mut command = kakehi_run(&folder, &["--coalesce", "a=disk/x.sion"]);
    let output = run(command.arg("true").current_dir(folder.path()), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("make room"), "{said}");
    assert_eq!(fs::read_dir(&disk.0).expect("there").count(), 1, "a multifile is left");
}

#[test]
fn a_run_that_changes_nothing_leaves_a_multifile_closed() {
    crate::views::needs_view!();
    let folder = Folder::new();
    succeed(coalescing(&folder).args(["sh", "-c", "echo a >\"$0/f\""]).arg(local(&folder)), SOON);
    let list = format!("ls -l --full-time {}*", kept(&folder).display());
    let before = succeed(Command::new("sh").args(["-c", &list]), SOON);
    let script = format!("cat \"$0/f\"; mkdir \"$0\" 2>/dev/null; {list}");
    let said = succeed(coalescing(&folder).args(["sh", "-c", &script]).arg(local(&folder)), SOON);
    assert_eq!(said, format!("a\n{before}"));
}

#[test]
fn each_multifile_that_cannot_be_used_is_told_by_its_name_and_with_what_to_do() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "echo >\"$0/a\"";
    succeed(coalescing(&folder).args(["sh", "-c", script]).arg(local(&folder)), SOON);
    let member = folder.join("kept.sion.000001");
    fs::rename(&member, folder.join("away")).expect("a set of two");
    fs::write(folder.join("text"), "something else").expect("a file");
    for (file, names, advice) in [
        ("kept.sion", "kept.sion.000001", "bring it back"),
        ("text", "text", "is left as it is"),
        (".", "multifile", "it is a folder"),
        ("none/x.sion", "none/x.sion", "make the folder"),
        ("/dev/full", "/dev/full", "an ordinary file"),
    ] {
        let flag = format!("{}={}", local(&folder).display(), folder.join(file).display());
        let output = run(kakehi_run(&folder, &["--coalesce", &flag]).arg("true"), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{file}: {said}");
        assert!(said.contains(names) && said.contains(advice), "{file}: {said}");
        assert!(said.lines().count() == 1 && !said.contains("DISABLE"), "{file}: {said}");
    }
    for command in ["verify", "repair"] {
        let output = run(&mut multifile(&[command], &kept(&folder)), SOON);
        let said = text(&output.stderr);
        let name = format!("kakehi: {}: No such file", member.display());
        assert!(said.starts_with(&name) && said.contains("bring it back"), "{said}");
    }
}

#[test]
fn a_folder_is_extracted_with_all_below_it() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "cd \"$0\"; mkdir -p d/e f; echo a >d/a; echo b >d/e/b; ln -s a d/l; echo c >dc; \
        echo g >f/g";
    succeed(coalescing(&folder).args(["sh", "-c", script]).arg(local(&folder)), SOON);
    let extract = |names: &[&str], to: &str| {
        let mut command = multifile(&["extract"], &kept(&folder));
        command.args(names.iter().flat_map(|name| ["--name", name]));
        run(command.arg(folder.join(to)), SOON)
    };
    let found = |below: &str| {
        let mut find = Command::new("find");
        let printed =
            succeed(find.args([".", "-printf", "%y %P\n"]).current_dir(folder.join(below)), SOON);
        let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(", ")
    };
    for (name, to) in [("d", "one"), ("d/", "two")] {
        let output = extract(&[name], to);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(found(to), "d , d e, f a, f e/b, l l");
        assert_eq!(fs::read_to_string(folder.join(to).join("e/b")).expect("extracted"), "b\n");
    }
    assert!(extract(&["d/e", "f/g"], "three").status.success());
    assert_eq!(found("three"), "d , d d, d d/e, d f, f d/e/b, f f/g");
    let output = extract(&["d/x"], "four");
    assert!(text(&output.stderr).contains("d/x: there is no such name"));
    assert_eq!(output.status.code(), Some(2));
}

/// Completed, it would look as if it had never held more.
#[test]
fn a_multifile_that_was_closed_and_is_cut_short_is_left_as_it_is() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "for i in $(seq 40); do seq 500 >\"$0/$i\"; done";
    succeed(coalescing(&folder).args(["sh", "-c", script]).arg(local(&folder)), SOON);
    let member = folder.join("kept.sion.000001");
    let whole = fs::metadata(&member).expect("made").len();
    let cut = fs::File::options().write(true).open(&member).expect("made");
    cut.set_len(whole - whole / 4).expect("shorter");
    drop(cut);
    let before = [&kept(&folder), &member].map(|file| fs::read(file).expect("readable"));

    let output = run(coalescing(&folder).arg("true"), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("kept.sion"), "{said}");
    let output = run(&mut multifile(&["repair"], &kept(&folder)), SOON);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(4) && said.contains("cut short"), "{said}");
    let after = [&kept(&folder), &member].map(|file| fs::read(file).expect("readable"));
    assert!(after == before, "it is as it was");

    let left = folder.join("left.sion");
    let to = left.display().to_string();
    let output = run(&mut multifile(&["repair", "--output", &to], &kept(&folder)), SOON);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(" cut off"), "{}", text(&output.stdout));
    succeed(&mut multifile(&["verify"], &left), SOON);
}

#[test]
fn multifile_that_is_removed_under_a_run_is_told_of() {
    let folder = Folder::new();
    let script = "echo 1 >\"$0/f\"; env -u LD_PRELOAD rm \"$1\"; echo 2 >>\"$0/f\"; true";
    let mut command = coalescing(&folder);
    let output =
        run(command.args(["sh", "-c", script]).arg(local(&folder)).arg(kept(&folder)), SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let line = format!("kakehi: multifile {}: it was removed", kept(&folder).display());
    assert!(said.contains(&line), "{said}");
}
