//! Where a coalesced folder borders on what is around it.

use std::os::unix::fs::symlink;

use super::*;
use crate::{calls::Calls, limits::Disk};

/// The inner folder is a real one in the outer one meanwhile, and no stray.
#[test]
fn nested_coalesced_folders_leave_no_folder_and_warn_of_nothing() {
    let folder = Folder::new();
    fs::create_dir(folder.join("outer")).expect("a folder");
    for round in ["1", "2"] {
        let flags = ["--coalesce", "outer=outer.sion", "--coalesce", "outer/inner=inner.sion"];
        let script = "echo a >outer/a$0 && echo b >outer/inner/b$0 && ls outer outer/inner";
        let mut command = kakehi_run(&folder, &flags);
        command.args(["sh", "-c", script, round]).current_dir(folder.path());
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("WARN"), "{said}");
        assert!(!said.contains("cannot serve") && !said.contains("warning"), "{said}");
        let left = fs::read_dir(folder.join("outer")).expect("readable").count();
        assert_eq!(left, 0, "the outer folder is not empty");
    }
    let inner = extracted(&folder, &folder.join("inner.sion"), "inner-out");
    assert_eq!(fs::read_dir(inner).expect("its files").count(), 2);
}

/// A link beside the folder, one to a file in it, and one to where a file is to be.
#[test]
fn links_from_outside_lead_into_the_multifile() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let root = folder.join("root");
    for (text, name) in [("job", "l"), ("l/d/f", "file"), ("job/new", "to")] {
        symlink(text, root.join(name)).expect("link");
    }
    let mut flags = server.flags(&local(&folder));
    flags[5] = format!("{}=/", local(&folder).display());
    let mut command = kakehi_run(&folder, &flags.each_ref().map(String::as_str));
    let script = "set -e; cd \"$0\"; mkdir l/d; echo one >l/d/f; cat job/d/f file; echo two >to; \
        cat job/new; ls l/ l/d; mv l/d/f job/f; cat l/f; stat -c %F l job; \
        rm l/f; ls job; echo out >plain; cat plain; \
        ln -s job l2; echo three >l2/three; cat l/three; truncate -s 1 l2/three; wc -c <job/three; \
        cd l/d; pwd -P >/dev/null; : >here; ls ../../job/d";
    let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
    let expected = "one\none\ntwo\nl/:\nd\nnew\n\nl/d:\nf\none\nsymbolic link\ndirectory\nd\nnew\n\
        out\nthree\n1\nhere\n";
    assert_eq!(found, expected);
    server.end();
    assert_eq!(fs::read_dir(root.join("job")).expect("made").count(), 0, "the folder is used");
    let out = extracted(&folder, &folder.join("job.sion"), "out");
    assert!(out.join("d/here").exists() && out.join("new").exists());
}

#[test]
fn a_coalesced_folder_in_another_one_is_listed_there() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let flag = |at: &str, file: &str| {
        format!("{}={}", local(&folder).join(at).display(), folder.join(file).display())
    };
    let flags = [flag("", "kept.sion"), flag("b/c", "inner.sion")];
    let run = || kakehi_run(&folder, &["--coalesce", &flags[0], "--coalesce", &flags[1]]);
    let script = "set -e; cd \"$0\"; ls; ls b; echo in >b/c/f; echo out >b/f; ls b b/c; \
        if mv b d 2>err; then exit 1; fi; if rmdir b/c 2>err; then exit 1; fi; rm err; \
        ln -s b/c l; cat l/f; find . | sort";
    let found = succeed(run().args(["bash", "-c", script]).arg(local(&folder)), SOON);
    let expected = "b\nc\nb:\nc\nf\n\nb/c:\nf\nin\n.\n./b\n./b/c\n./b/c/f\n./b/f\n./l\n";
    assert_eq!(found, expected);
    is_closed(&kept(&folder));
    let out = extracted(&folder, &folder.join("inner.sion"), "out");
    assert_eq!(fs::read_to_string(out.join("f")).expect("extracted"), "in\n");
    // Files that the other one would hide.
    let mut other = kakehi_run(&folder, &["--coalesce", &flags[0], "--coalesce", &flag("b", "x")]);
    let output = crate::harness::run(other.arg("true"), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("would hide"), "{said}");
}

/// libc opens a file by itself to convert what is in it, and would make one beneath the folder.
#[test]
fn a_character_set_is_refused_of_a_coalesced_file() {
    let folder = Folder::new();
    let mut calls = Calls::start(coalescing(&folder).arg(program("calls")));
    let path = local(&folder).join("file");
    assert_eq!(calls.ask(&format!("fopen {} w,ccs=UTF-8", path.display())), "EINVAL");
    assert_eq!(calls.ask(&format!("stat {}", path.display())), "ENOENT");
    let beside = folder.join("beside");
    let stream = calls.get(&format!("fopen {} w,ccs=UTF-8", beside.display()));
    calls.get(&format!("fclose {stream}"));
    assert!(beside.exists());
    calls.end();
    assert!(!path.exists());
}

/// A script whose `$0` is a folder with its files in `multifile`.
fn coalescing_into(folder: &Folder, multifile: &Path, script: &str) -> Command {
    let flag = format!("{}={}", local(folder).display(), multifile.display());
    let mut command = kakehi_run(folder, &["--coalesce", &flag]);
    command.args(["bash", "-c", script]).arg(local(folder));
    command
}

/// A multifile that was closed, and one that could not be.
#[test]
fn files_can_be_removed_where_the_disk_is_full() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let file = disk.0.join("kept.sion");
    let run = |script: &str| {
        let mut command = coalescing_into(&folder, &file, script);
        command.arg(&disk.0);
        command
    };
    let write = "for i in 1 2 3 4; do head -c 50000 /dev/zero >\"$0/$i\"; done; ";
    let fill = "cat /dev/zero >\"$1/fill\" 2>/dev/null; ";
    for is_closed_before in [true, false] {
        if is_closed_before {
            succeed(&mut run(write), SOON);
            let mut fill = Command::new("bash");
            succeed(
                fill.args(["-c", "cat /dev/zero >$0/fill 2>/dev/null; true"]).arg(&disk.0),
                SOON,
            );
        } else {
            // What is closed is in the multifile 10 ms later: the disk is full then, not before.
            let script =
                format!("{write}sleep 0.1; {fill}cat /dev/zero >\"$0/big\" 2>/dev/null; exit 0");
            let output = crate::harness::run(&mut run(&script), SOON);
            // A page that `big` left may be room enough to close it all the same.
            let is_open = file.with_extension("sion.journal").exists();
            crate::harness::note(if is_open { "it is left open" } else { "it is closed" });
            assert!(!is_open || !output.status.success(), "{}", text(&output.stderr));
        }
        let found = succeed(&mut run("set -e; cd \"$0\"; rm -f big 1 2; ls"), SOON);
        assert_eq!(found, "3\n4\n");
        // What they had is free, and is enough for another one.
        let found =
            succeed(&mut run("set -e; cd \"$0\"; head -c 50000 /dev/zero >5; ls; cmp 4 5"), SOON);
        assert_eq!(found, "3\n4\n5\n");
        is_closed(&file);
        disk.free("fill");
        disk.free("kept.sion");
        disk.free("kept.sion.000001");
    }
}

/// Each is longer than half of the room: in one chunk, and in several.
#[test]
fn removed_files_make_room_for_others_while_the_run_lasts() {
    crate::views::needs_view!();
    for (sync, before) in [("", false), ("sync -f \"$0\"; ", false), ("", true)] {
        let folder = Folder::new();
        let Some(disk) = Disk::mount(&folder, "disk") else { return };
        let file = disk.0.join("kept.sion");
        let run = |script: &str| {
            succeed(coalescing_into(&folder, &file, script).arg(folder.path()), SOON)
        };
        if before {
            run("echo there >\"$0/there\"");
        }
        let found = run(&format!(
            "set -e; for len in 200000 300000; do head -c $len /dev/urandom >\"$1/big\"; \
             for i in 1 2 3 4 5 6; do cp \"$1/big\" \"$0/$i\"; cmp \"$1/big\" \"$0/$i\"; \
             echo $i; [ $i = 6 ] || rm \"$0/$i\"; {sync}done; mv \"$0/6\" \"$0/x\"; \
             [ $len = 300000 ] || rm \"$0/x\"; done"
        ));
        assert_eq!(found, "1\n2\n3\n4\n5\n6\n".repeat(2));
        run("cmp \"$1/big\" \"$0/x\"");
        is_closed(&file);
    }
}

/// New files get their own physical file, so the others stay dense.
#[test]
fn a_defragmented_multifile_is_written_on() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let write = |from: u32, to: u32| {
        let script = "for i in $(seq $1 $2); do seq $i >\"$0/$i\"; done";
        let mut command = coalescing(&folder);
        command.args(["bash", "-c", script]).arg(local(&folder));
        succeed(command.args([from, to].map(|number| number.to_string())), SOON);
    };
    write(1, 20);
    let dense = folder.join("dense.sion");
    succeed(multifile(&["defrag"], &kept(&folder)).arg(&dense), SOON);
    fs::rename(&dense, kept(&folder)).expect("there");
    // Short tasks become free, and are left alone.
    let script = "set -e; cd \"$0\"; rm 1 2 3; head -c 3000000 /dev/urandom >long; \
        cat long >longer; seq 99 >>4; cmp long longer; wc -l <4; \
        for i in 1 2 3; do seq $i >$i; done";
    let found = succeed(coalescing(&folder).args(["bash", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(found.trim(), "103");
    write(21, 60);
    is_closed(&kept(&folder));
    let listed = succeed(&mut multifile(&["ls", "--json"], &kept(&folder)), SOON);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    // One for small ones, and one for long ones.
    assert_eq!(listed["physical_files"], 3);
    let tasks = listed["tasks"].as_array().expect("tasks");
    let long = tasks.iter().find(|task| task["name"] == "long").expect("listed");
    assert!(long["physical_file"] != 0 && long["blocks"] == 3, "{long}");
    let out = extracted(&folder, &kept(&folder), "out");
    for i in (1..=60).filter(|i| *i != 4) {
        let lines = fs::read_to_string(out.join(i.to_string())).expect("extracted");
        assert_eq!(lines.lines().count(), i);
    }
}

/// Of less than the first physical file takes else, and of less than a session does.
#[test]
fn small_files_are_coalesced_where_no_file_may_be_long() {
    crate::views::needs_view!();
    let folder = Folder::new();
    for (limit, memory) in [(60_000_000, ""), (40_000_000, ""), (10_000_000, "4MiB")] {
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={limit}:{limit}")).env("KAKEHI_MEMORY", memory);
        let mut command = crate::harness::started_by(command, &coalescing(&folder));
        let script = "set -e; cd \"$0\"; for i in $(seq 200); do seq $i >$i || exit; done; rm 7; \
            head -c 50000 /dev/zero >longer; cat 200 | wc -l; wc -c <longer";
        let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
        assert_eq!(found, "200\n50000\n", "{limit}");
        is_closed(&kept(&folder));
        let out = extracted(&folder, &kept(&folder), &limit.to_string());
        assert_eq!(fs::read_dir(out).expect("extracted").count(), 200);
        for file in fs::read_dir(folder.path()).expect("there").flatten() {
            if file.file_name().to_string_lossy().starts_with("kept.sion") {
                assert!(file.metadata().expect("there").len() <= limit, "{file:?}");
                fs::remove_file(file.path()).expect("there");
            }
        }
    }
}

#[test]
fn what_was_opened_to_be_read_is_not_cut() {
    let folder = Folder::new();
    let mut calls = Calls::start(coalescing(&folder).arg(program("calls")));
    let path = local(&folder).join("a").display().to_string();
    let made = calls.get(&format!("open {path} +c"));
    assert_eq!(calls.get(&format!("write {made} twelve_bytes")), 12);
    let fd = calls.get(&format!("open {path} r"));
    assert_eq!(calls.ask(&format!("truncate {fd} 0")), "EINVAL");
    assert_eq!(calls.ask(&format!("allocate {fd} 99")), "EBADF");
    assert_eq!(calls.get(&format!("fstat {fd}")), 12);
    assert_eq!(calls.ask(&format!("truncate {made} 3")), "0");
    assert_eq!(calls.get(&format!("open {path} rt")), fd + 1, "Linux cuts it all the same");
    assert_eq!(calls.get(&format!("fstat {fd}")), 0);
    calls.end();
}

/// Each write is a piece of its own in what the client publishes.
#[test]
fn files_written_in_turn_by_tiny_writes_are_whole() {
    let folder = Folder::new();
    succeed(coalescing(&folder).arg(program("turns")).arg(local(&folder)), SOON);
    let out = extracted(&folder, &kept(&folder), "out");
    let all: String = ('a'..='z').cycle().take(20_000).collect();
    for (first, name) in [(0, "a"), (1, "b")] {
        let expected: String = all.chars().skip(first).step_by(2).collect();
        for round in 0..8 {
            let found = fs::read_to_string(out.join(format!("{round}{name}"))).expect("a file");
            assert!(found == expected, "{round}{name}: {} bytes", found.len());
        }
    }
}

/// `cp` and `mv` open the folder only to name it: where that fails they copy to its name, not into.
#[test]
fn folders_are_copied_and_moved_into_folders_without_a_view() {
    let folder = Folder::new();
    let script = "set -e; mkdir -p d/e; echo a >d/e/a; d=$PWD/local; mkdir $d/s $d/s/e; \
        cp -r d $d; cp -r d $d/s/; mv d/e $d/s/e; cat $d/d/e/a $d/s/d/e/a $d/s/e/e/a";
    let mut command = coalescing(&folder);
    command.env("KAKEHI_VIEW", "none").current_dir(folder.path());
    assert_eq!(succeed(command.args(["sh", "-c", script]), SOON), "a\na\na\n");
    let out = extracted(&folder, &kept(&folder), "out");
    for name in ["d/e/a", "s/d/e/a", "s/e/e/a"] {
        assert_eq!(fs::read_to_string(out.join(name)).expect(name), "a\n");
    }
}

/// `mv` would copy all files, and then fail.
#[test]
fn a_folder_that_is_coalesced_is_not_moved() {
    let folder = Folder::new();
    for view in ["none", "auto"] {
        let script = "echo a >local/a; mkdir other; mv local local.old; mv -T other local; \
            rmdir other; test -e local.old; echo $?; rm local/a";
        let mut command = coalescing(&folder);
        command.env("KAKEHI_VIEW", view).current_dir(folder.path());
        let output = run(command.args(["sh", "-c", script]), SOON);
        let said = text(&output.stderr);
        assert_eq!(said.matches("Device or resource busy").count(), 2, "{view}: {said}");
        assert_eq!(text(&output.stdout), "1\n", "{view}: {said}");
    }
}

#[test]
fn walks_of_libc_find_files_or_fail_where_there_is_no_view() {
    let folder = Folder::new();
    let script = "mkdir plain; : >plain/a.c; echo a | tee local/a.c >other; \
        exec \"$0\" 'local/*' '*/a*' 'l*/a.c' local/a.c 'local/b.c' 'pl*/*' local plain";
    let mut command = coalescing(&folder);
    command.env("KAKEHI_VIEW", "none").current_dir(folder.path());
    let found = succeed(command.args(["sh", "-c", script]).arg(program("walked")), SOON);
    let expected = "glob local/* 2\nglob */a* 2\nglob l*/a.c 0 local/a.c\n\
        glob local/a.c 0 local/a.c\nglob local/b.c 3\nglob pl*/* 0 plain/a.c\n\
        nftw local -1 EOPNOTSUPP\nfts local 0 EOPNOTSUPP\nnftw plain 2 0\nfts plain 1 0\n";
    assert_eq!(found, expected);
}
