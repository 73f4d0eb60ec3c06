//! `kakehi multifile`: against files of SIONlib, their manifest, and files that are damaged.

use std::{fs, path::Path, process::Command};

use multifile::{Disk, NewTask, Options, Writer};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{
    fails,
    golden::{Golden, sha256, text},
    json, kakehi, output,
};

pub(crate) fn multifile(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = kakehi(folder);
    command.arg("multifile").args(arguments);
    command
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn done(folder: &Path, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = output(&mut multifile(folder, arguments));
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    stdout
}

/// The bytes of all streams of a multifile.
#[track_caller]
pub(crate) fn streams(folder: &Path, name: &str) -> Vec<u8> {
    let output = multifile(folder, &["cat", name]).output().expect("starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_golden_multifile_is_listed_as_its_manifest_says_and_whole() {
    let golden = Golden::unpack();
    for case in golden.closed() {
        let name = text(&case["file"]);
        let listing = json(&mut multifile(golden.folder(), &["ls", "--json", name]));
        let (rows, tasks) = (&listing["tasks"], case["tasks"].as_array().expect("tasks"));
        assert_eq!(rows.as_array().expect("rows").len(), tasks.len(), "{name}");
        for (row, task) in rows.as_array().expect("rows").iter().zip(tasks) {
            for (ours, theirs) in [
                ("task", "task"),
                ("physical_file", "file"),
                ("local_rank", "lrank"),
                ("global_rank", "globalrank"),
                ("chunk_bytes", "chunksize"),
                ("bytes", "raw_bytes"),
            ] {
                let is_asked_for = (ours, name) == ("chunk_bytes", "syn_v3.sion"); // Not rounded.
                assert!(is_asked_for || row[ours] == task[theirs], "{name}: {ours} of {row}");
            }
        }
        let verdict = json(&mut multifile(golden.folder(), &["verify", "--json", name]));
        assert_eq!((&verdict["ok"], &verdict["checksums"]), (&true.into(), &false.into()));
        let dump = json(&mut multifile(golden.folder(), &["dump", "--json", name]));
        for (row, task) in dump["tasks"].as_array().expect("rows").iter().zip(tasks) {
            assert_eq!(row["block_bytes"], task["blocks"], "{name}");
            assert_eq!(row["physical_file"], task["file"], "{name}");
        }
        // From 0, though a file that one process wrote says 1 of itself.
        let files = dump["physical_files"].as_array().expect("physical files");
        assert!(files.iter().zip(0..).all(|(file, number)| file["number"] == number), "{name}");
    }
}

#[test]
fn split_gives_every_stream_and_join_the_same_multifile_again() {
    let golden = Golden::unpack();
    let before = golden.contents();
    for case in golden.closed() {
        let (name, made) = (text(&case["file"]), tempdir().expect("a folder"));
        let folder = golden.folder();
        let prefix = format!("{}/part.", made.path().display());
        done(folder, &["split", name, &prefix]);
        let tasks = case["tasks"].as_array().expect("tasks");
        for (task, path) in tasks.iter().zip(names(made.path())) {
            let bytes = fs::read(made.path().join(path)).expect("a part");
            assert_eq!(task["raw_bytes"], bytes.len(), "{name}");
            if task["kv"].is_null() {
                assert_eq!(task["sha256"], sha256(&bytes), "{name}");
            }
        }
        let parts = names(made.path());
        assert_eq!(parts.len(), tasks.len());
        let mut join = vec!["join", "--checksums", "joined", "--files=2"];
        join.extend(parts.iter().map(String::as_str));
        done(made.path(), &join);
        assert!(streams(made.path(), "joined") == streams(folder, name), "{name}");
        let verdict = json(&mut multifile(made.path(), &["verify", "--json", "joined"]));
        assert_eq!((&verdict["ok"], &verdict["checksums"]), (&true.into(), &true.into()));
    }
    assert_eq!(golden.contents(), before, "inputs stay as they are");
}

#[test]
fn defrag_keeps_streams_ranks_and_keys_in_one_chunk_each() {
    let golden = Golden::unpack();
    let before = golden.contents();
    for case in golden.closed() {
        let (name, made) = (text(&case["file"]), tempdir().expect("a folder"));
        let (folder, target) = (golden.folder(), made.path().join("made"));
        let target = target.to_str().expect("UTF-8");
        done(folder, &["defrag", name, target, "--files=3", "--fs-block=1"]);
        assert!(streams(folder, target) == streams(folder, name), "{name}");
        let keys: &[&str] = if case["keyval"] == true { &["--keys"] } else { &[] };
        let dump =
            |name| json(multifile(folder, &["dump", "--json", name]).args(keys))["tasks"].take();
        let (old, new) = (dump(name), dump(target));
        for (old, new) in old.as_array().expect("tasks").iter().zip(new.as_array().expect("tasks"))
        {
            assert_eq!(new["block_bytes"], Value::from(vec![old["bytes"].clone()]), "{name}");
            assert_eq!(new["chunk_bytes"], old["bytes"], "{name}");
            assert_eq!(new["global_rank"], old["global_rank"], "{name}");
            assert_eq!(new["keys"], old["keys"], "{name}");
        }
    }
    assert_eq!(golden.contents(), before, "inputs stay as they are");
}

#[test]
fn cat_selects_tasks_blocks_and_keys() {
    let golden = Golden::unpack();
    let folder = golden.folder();
    let of = |arguments: &[&str]| multifile(folder, arguments).output().expect("starts").stdout;
    let whole = streams(folder, "mpi_n7_f3.sion");
    let (first, last) =
        (of(&["cat", "--task=0", "mpi_n7_f3.sion"]), of(&["cat", "--task=6", "mpi_n7_f3.sion"]));
    assert!(whole.starts_with(&first) && whole.ends_with(&last) && first.len() == 7401);
    assert_eq!(of(&["cat", "--task=6", "--task=0", "mpi_n7_f3.sion"]), [&*last, &*first].concat());
    let blocks: Vec<u8> = (0..3)
        .flat_map(|block| of(&["cat", "--task=0", &format!("--block={block}"), "mpi_n7_f3.sion"]))
        .collect();
    assert_eq!(blocks, first);
    fails(&mut multifile(folder, &["cat", "--block=99", "mpi_n7_f3.sion"]), 2, &["a block 99"]);
    assert_eq!(of(&["cat", "--task=0", "--key=1001", "ser_n3_kv.sion"]).len(), 440);
    done(folder, &["cat", "--task=6", "mpi_n7_f3.sion", "-o", "last"]);
    assert_eq!(fs::read(golden.path("last")).expect("written"), last);
}

#[test]
fn commands_that_write_files_say_so_in_json() {
    let golden = Golden::unpack();
    let of = |arguments: &[&str]| json(&mut multifile(golden.folder(), arguments));
    let (bytes, tasks) = (Value::from(2400), Value::from(3));
    for (arguments, files) in [
        (&["cat", "--json", "mpi_n3_f2.sion", "-o", "whole"][..], None),
        (&["split", "--json", "mpi_n3_f2.sion", "part"], Some(("files_written", 3))),
        (
            &["join", "--json", "joined", "part00000", "part00001", "part00002"],
            Some(("physical_files", 1)),
        ),
        (&["defrag", "--json", "--files=2", "mpi_n3_f2.sion", "made"], Some(("physical_files", 2))),
    ] {
        let said = of(arguments);
        assert_eq!((&said["bytes"], &said["tasks"]), (&bytes, &tasks), "{said}");
        if let Some((name, count)) = files {
            assert_eq!(said[name], count, "{said}");
        }
    }
    let (code, _, error) =
        output(&mut multifile(golden.folder(), &["cat", "--json", "be_n3.sion"]));
    assert!(code == 2 && error.contains("--output"), "{error}");
}

#[test]
fn an_unclosed_multifile_is_code_4_until_it_is_repaired() {
    let golden = Golden::unpack();
    for name in ["ser_n3_unclosed.sion", "mpi_n3_unclosed.sion"] {
        let folder = golden.folder();
        for command in ["ls", "dump", "cat", "verify"] {
            fails(&mut multifile(folder, &[command, name]), 4, &[name, "never closed", "repair"]);
        }
        let before = golden.contents();
        let found = json(&mut multifile(folder, &["repair", "--dry-run", "--json", name]));
        assert_eq!((&found["needed"], &found["done"]), (&true.into(), &false.into()));
        assert_eq!(golden.contents(), before, "a dry run writes nothing");
        let copy = format!("{name}.copy");
        done(folder, &["repair", name, "--output", &copy]);
        assert!(
            golden.contents().iter().filter(|row| before.contains(row)).count() == before.len()
        );
        done(folder, &["repair", name]);
        for name in [name, &copy] {
            done(folder, &["verify", name]);
            let listing = json(&mut multifile(folder, &["ls", "--json", name]));
            for (row, found) in listing["tasks"]
                .as_array()
                .expect("rows")
                .iter()
                .zip(found["tasks"].as_array().expect("rows"))
            {
                assert_eq!(row["bytes"], found["bytes"], "{name}");
            }
        }
        let again = done(folder, &["repair", name]);
        assert!(again.contains("nothing to repair"), "{again}");
    }
}

#[test]
fn what_repair_cannot_do_it_does_not_advise() {
    let folder = tempdir().expect("a folder");
    fs::write(folder.path().join("empty"), "").expect("a file");
    for command in ["ls", "verify", "repair"] {
        fails(
            &mut multifile(folder.path(), &[command, "empty"]),
            4,
            &["is empty", "never written"],
        );
    }
    with_checksums(folder.path());
    let whole = fs::read(folder.path().join("joined")).expect("there");
    fs::write(folder.path().join("torn"), &whole[..16]).expect("a file");
    fails(&mut multifile(folder.path(), &["ls", "torn"]), 4, &["multifile repair"]);
    let (_, _, said) = output(&mut multifile(folder.path(), &["repair", "torn"]));
    assert!(said.contains("cannot be repaired") && !said.contains("--dry-run"), "{said}");
    done(folder.path(), &["join", "single", "torn"]);
    let said = done(folder.path(), &["repair", "single"]);
    assert!(said.contains("1 task,") && !said.contains("1 tasks"), "{said}");
}

/// A multifile of two tasks with checksums, and where its data begins.
pub(crate) fn with_checksums(folder: &Path) -> u64 {
    fs::write(folder.join("a"), vec![b'a'; 5000]).expect("a file");
    fs::write(folder.join("b"), vec![b'b'; 3000]).expect("a file");
    done(folder, &["join", "--checksums", "--fs-block=512", "joined", "a", "b"]);
    let dump = json(&mut multifile(folder, &["dump", "--json", "joined"]));
    dump["physical_files"][0]["data_at"].as_u64().expect("an offset")
}

/// The same with a changed byte: number 17 of task 1.
pub(crate) fn damaged(folder: &Path) {
    let data_at = with_checksums(folder);
    let path = folder.join("joined");
    let mut bytes = fs::read(&path).expect("a multifile");
    bytes[usize::try_from(data_at).expect("small") + 5120 + 17] ^= 1;
    fs::write(&path, bytes).expect("written");
}

#[test]
fn one_changed_byte_is_found_and_its_task_named() {
    let folder = tempdir().expect("a folder");
    damaged(folder.path());
    let (code, stdout, stderr) = output(&mut multifile(folder.path(), &["verify", "joined"]));
    assert_eq!(code, 4, "{stdout}{stderr}");
    assert!(stdout.contains("task 1: ") && !stdout.contains("task 0"), "{stdout}");
    assert!(stderr.contains("damage in 1 of 2 tasks"), "{stderr}");
    let verdict = json(&mut multifile(folder.path(), &["verify", "--json", "joined"]));
    assert_eq!((&verdict["ok"], &verdict["damage"][0]["task"]), (&false.into(), &1.into()));
}

/// To read it all would take longer than any test may.
#[test]
fn verify_does_not_read_a_hole() {
    const LEN: u64 = 1 << 42;
    let folder = tempdir().expect("a folder");
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new("sparse"));
    let tasks = NewTask::in_one_file(&[LEN]);
    let mut writer = Writer::create(&disk, path, &tasks, &Options::default()).expect("created");
    let mut task = writer.task(0).expect("one");
    let end = task.fill().file_at().expect("small") + LEN;
    task.file().expect("written").set_len(end).expect("as long as a file may be");
    task.advance(LEN).expect("room");
    writer.close().expect("closed");
    let verdict = json(&mut multifile(folder.path(), &["verify", "--json", "sparse"]));
    assert_eq!((&verdict["ok"], &verdict["bytes"]), (&true.into(), &LEN.into()));
}

#[test]
fn cat_writes_changed_bytes_and_is_code_4() {
    let folder = tempdir().expect("a folder");
    let data_at = with_checksums(folder.path());
    let path = folder.path().join("joined");
    let mut bytes = fs::read(&path).expect("a multifile");
    bytes[usize::try_from(data_at).expect("small") + 17] ^= 1;
    fs::write(&path, bytes).expect("written");
    let mut changed = vec![b'a'; 5000];
    changed[17] ^= 1;
    let run = |arguments: &[&str]| {
        let output = multifile(folder.path(), arguments).output().expect("starts");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        (output.status.code().expect("no signal"), output.stdout, said)
    };
    let (code, stdout, said) = run(&["cat", "joined"]);
    assert_eq!((code, stdout), (4, [&*changed, &[b'b'; 3000]].concat()), "{said}");
    assert!(said.contains("task 0 differs") && said.lines().count() == 1, "{said}");
    assert_eq!(run(&["cat", "--task=0", "--block=0", "joined"]).0, 4);
    assert_eq!(run(&["cat", "--task=1", "joined"]), (0, vec![b'b'; 3000], String::new()));
    assert_eq!(run(&["cat", "--task=0", "-o", "out", "joined"]).0, 4);
    assert_eq!(fs::read(folder.path().join("out")).expect("written"), changed);
}

#[test]
fn repair_tells_of_changed_bytes_in_a_closed_multifile() {
    let folder = tempdir().expect("a folder");
    damaged(folder.path());
    let (code, printed, said) = output(&mut multifile(folder.path(), &["repair", "joined"]));
    assert_eq!(code, 4, "{printed}{said}");
    assert!(printed.contains("task 1 (global rank 1): 3000 bytes, which differ"), "{printed}");
    assert!(!printed.contains("whole") && !printed.contains("task 0"), "{printed}");
}

#[test]
fn split_writes_changed_bytes_and_is_code_4_and_defrag_does_not_hide_them() {
    let folder = tempdir().expect("a folder");
    damaged(folder.path());
    let mut changed = vec![b'b'; 3000];
    changed[17] ^= 1;
    let (code, _, said) = output(&mut multifile(folder.path(), &["split", "joined", "part."]));
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("task 1 differs") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read(folder.path().join("part.00000")).expect("written"), vec![b'a'; 5000]);
    assert_eq!(fs::read(folder.path().join("part.00001")).expect("written"), changed);
    fails(&mut multifile(folder.path(), &["defrag", "joined", "new"]), 4, &["task 1: its data"]);
    assert!(!folder.path().join("new").exists());
}

#[test]
fn every_truncation_is_code_4_and_leaves_nothing_half() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    let whole = fs::read(folder.path().join("joined")).expect("a multifile");
    for len in (0..whole.len()).step_by(997) {
        fs::write(folder.path().join("cut"), &whole[..len]).expect("written");
        for arguments in [
            &["verify", "cut"][..],
            &["cat", "cut"],
            &["split", "cut", "part"],
            &["defrag", "cut", "made"],
        ] {
            fails(&mut multifile(folder.path(), arguments), 4, &["cut"]);
        }
        assert_eq!(names(folder.path()), ["a", "b", "cut", "joined"], "{len}");
    }
}

#[test]
fn join_takes_names_from_a_list() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    fs::rename(folder.path().join("b"), folder.path().join("b\n")).expect("renamed");
    fs::write(folder.path().join("list"), "a\0b\n\0").expect("a list");
    let of = |list: &'static str| ["join", "--force", "--fs-block=512", "listed", "--from", list];
    done(folder.path(), &of("list"));
    assert!(streams(folder.path(), "listed") == streams(folder.path(), "joined"));
    let list = fs::File::open(folder.path().join("list")).expect("there");
    let (code, said, _) = output(multifile(folder.path(), &of("-")).stdin(list));
    assert_eq!((code, &*said), (0, "listed: 2 tasks, 7.8KiB\n"));
    fs::rename(folder.path().join("b\n"), folder.path().join("b")).expect("renamed");
    fs::write(folder.path().join("list"), "a\n\nb").expect("a list");
    done(folder.path(), &of("list"));
    assert!(streams(folder.path(), "listed") == streams(folder.path(), "joined"));
    fs::write(folder.path().join("list"), "").expect("a list");
    fails(&mut multifile(folder.path(), &of("list")), 2, &["list: it names no file"]);
    fails(&mut multifile(folder.path(), &["join", "made", "a", "--from=list"]), 2, &["--from"]);
}

#[test]
fn what_exists_is_replaced_only_when_told_and_an_input_never() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    let before = fs::read(folder.path().join("joined")).expect("a multifile");
    let part = folder.path().join("part00001");
    fs::write(&part, "precious").expect("a file");
    fails(&mut multifile(folder.path(), &["split", "joined", "part"]), 1, &["exists", "--force"]);
    assert_eq!(fs::read(&part).expect("there"), b"precious");
    assert!(!folder.path().join("part00000").exists());
    done(folder.path(), &["split", "--force", "joined", "part"]);
    assert_eq!(fs::read(&part).expect("there"), vec![b'b'; 3000]);
    for arguments in [
        &["defrag", "--force", "joined", "joined"][..],
        &["cat", "--force", "joined", "-o", "joined"],
        &["repair", "--force", "joined", "-o", "joined"],
    ] {
        fails(&mut multifile(folder.path(), arguments), 2, &["joined", "input"]);
    }
    fs::hard_link(&part, folder.path().join("link")).expect("a link");
    let arguments = ["join", "--force", "link", "part00001"];
    fails(&mut multifile(folder.path(), &arguments), 2, &["link", "input"]);
    assert_eq!(fs::read(folder.path().join("joined")).expect("there"), before);
}

#[test]
fn wrong_arguments_are_code_2_and_missing_files_code_1() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    for arguments in [
        &["cat", "--task=2", "joined"][..],
        &["cat", "--key=1", "joined"],
        &["dump", "--keys", "joined"],
        &["split", "--keys", "joined", "p"],
        &["defrag", "--files=0", "joined", "made"],
        &["defrag", "--fs-block=0", "joined", "made"],
        &["join", "made"],
        &["fly", "joined"],
    ] {
        fails(&mut multifile(folder.path(), arguments), 2, &[]);
    }
    for arguments in [
        &["ls", "nothing"][..],
        &["verify", "nothing"],
        &["repair", "nothing"],
        &["join", "made", "nothing"],
        &["defrag", "joined", "nowhere/made"],
    ] {
        fails(&mut multifile(folder.path(), arguments), 1, &["No such file"]);
    }
    fails(&mut multifile(folder.path(), &["ls", "a"]), 4, &["not a multifile"]);
    let nowhere = ["split", "joined", "nowhere/part"];
    let (_, _, stderr) = output(&mut multifile(folder.path(), &nowhere));
    assert!(stderr.contains("nowhere/: No such file") && !stderr.contains(".kakehi"), "{stderr}");
}

#[test]
fn a_file_that_a_set_lacks_is_named() {
    let golden = Golden::unpack();
    fs::remove_file(golden.path("mpi_n3_f2.sion.000001")).expect("there");
    let mut command = multifile(golden.folder(), &["ls", "mpi_n3_f2.sion"]);
    fails(&mut command, 1, &["mpi_n3_f2.sion.000001: No such file"]);
}

#[test]
fn files_that_are_no_records_are_not_joined_as_records() {
    let folder = tempdir().expect("a folder");
    fs::write(folder.path().join("a"), "no record").expect("a file");
    let arguments = ["join", "--key-value", "made", "a"];
    fails(&mut multifile(folder.path(), &arguments), 4, &["a: ", "--key-value"]);
    assert_eq!(names(folder.path()), ["a"]);
}

/// A reader that has seen enough is no failure.
#[test]
fn a_closed_pipe_ends_cat_quietly() {
    let folder = tempdir().expect("a folder");
    sparse(&folder, "big");
    done(folder.path(), &["join", "joined", "small"]);
    let script = "\"$0\" multifile cat joined | head -c 10 | wc -c; echo ${PIPESTATUS[0]}";
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_kakehi")]).current_dir(folder.path());
    let (_, stdout, stderr) = output(&mut command);
    assert_eq!((stdout.as_str(), stderr.as_str()), ("10\n0\n", ""));
}

/// A file whose copy takes longer than any test, and one of a few megabytes.
fn sparse(folder: &TempDir, name: &str) {
    let file = fs::File::create(folder.path().join(name)).expect("a file");
    file.set_len(1 << 40).expect("a file system with holes");
    fs::write(folder.path().join("small"), vec![1; 4 << 20]).expect("a file");
}

/// Starts a join of hours, sends `signal` when output has begun, returns exit code and folder.
fn stopped(signal: &str) -> (Option<i32>, Vec<String>) {
    let folder = tempdir().expect("a folder");
    sparse(&folder, "big");
    let mut child = multifile(folder.path(), &["join", "made", "big"]).spawn().expect("starts");
    let begun = || {
        let hidden = names(folder.path()).into_iter().find(|name| name.starts_with(".kakehi-"));
        hidden.is_some_and(|name| {
            let made = folder.path().join(name).join("made");
            made.metadata().is_ok_and(|found| found.len() > 1 << 20)
        })
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !begun() {
        assert!(std::time::Instant::now() < deadline, "it does not begin");
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let status = child.wait().expect("ends");
    (status.code(), names(folder.path()))
}

#[test]
fn a_killed_join_leaves_no_half_output() {
    let (code, names) = stopped("-KILL");
    assert_eq!(code, None);
    let seen: Vec<_> = names.iter().filter(|name| !name.starts_with(".kakehi-")).collect();
    assert_eq!(seen, ["big", "small"]);
}

#[test]
fn an_interrupted_join_leaves_nothing() {
    let (code, names) = stopped("-TERM");
    assert_eq!((code, names), (Some(1), vec!["big".to_owned(), "small".to_owned()]));
}
