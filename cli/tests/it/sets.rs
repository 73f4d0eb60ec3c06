//! Sets of several physical files: what replaces one, and what repair cannot keep of it.

use std::fs;

use multifile::{Disk, NewTask, Options, Writer, codec::Order};
use tempfile::tempdir;

use crate::{
    fails,
    multifile::{done, multifile, names, streams, with_checksums},
    output,
};

#[test]
fn a_set_of_fewer_files_leaves_none_of_the_one_it_replaces() {
    let folder = tempdir().expect("a folder");
    let files = |options: &[&str]| {
        done(folder.path(), &[&["join", "--force", "set", "x", "y", "z"][..], options].concat());
    };
    for name in ["x", "y", "z"] {
        fs::write(folder.path().join(name), name).expect("a file");
    }
    files(&["--files=3"]);
    fs::write(folder.path().join("set.000002.journal"), "old").expect("a file");
    fs::write(folder.path().join("set.000003"), "of nobody").expect("a file");
    files(&["--files=2"]);
    assert_eq!(names(folder.path()), ["set", "set.000001", "set.000003", "x", "y", "z"]);
    assert_eq!(streams(folder.path(), "set"), b"xyz");

    // What stands in the place of a file of the set, but is none.
    fs::copy(folder.path().join("x"), folder.path().join("set.000001")).expect("copied");
    files(&[]);
    assert_eq!(names(folder.path()), ["set", "set.000001", "set.000003", "x", "y", "z"]);
    assert_eq!(streams(folder.path(), "set"), b"xyz");
}

#[test]
fn repair_says_that_checksums_are_lost() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    done(folder.path(), &["join", "--checksums", "--files=2", "set", "a", "b"]);
    let path = folder.path().join("set");
    let bytes = fs::read(&path).expect("a file");
    // A checksum, what stands before the first one, and half an entry of the mapping.
    fs::write(&path, &bytes[..bytes.len() - 4 - 8 - 4]).expect("written");
    let cut = fs::read(&path).expect("a file");
    let (code, said, why) = output(&mut multifile(folder.path(), &["repair", "set"]));
    assert!(code == 4 && said.contains("left alone") && why.contains("--output"), "{said}{why}");
    assert!(fs::read(&path).expect("a file") == cut, "what is in doubt is left alone");
    let arguments = ["repair", "set", "--output", "made"];
    let (code, said, _) = output(&mut multifile(folder.path(), &arguments));
    assert_eq!(code, 0);
    let lost = said.lines().filter(|line| line.contains("made: checksums are lost"));
    assert_eq!(lost.count(), 1, "{said}");
    assert!(streams(folder.path(), "made") == streams(folder.path(), "joined"));
    done(folder.path(), &["verify", "made"]);
}

/// One fault in a closed file at a time: what `verify` calls ok is left alone, and what `repair`
/// calls repaired is ok.
#[test]
fn repair_and_verify_agree_about_every_fault() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    let path = folder.path().join("joined");
    let whole = fs::read(&path).expect("there");
    let commit_at = 1076 + 16 * 2;
    // Fixed fields, task tables, commit fields, and all that is behind the data.
    let fields = (0..13).chain((1076 / 4)..(commit_at / 4 + 3));
    let table_at = u64::from_le_bytes(whole[commit_at + 4..commit_at + 12].try_into().expect("8"));
    let table_at = usize::try_from(table_at).expect("small");
    let fields = fields.chain(table_at / 4..whole.len() / 4);
    let (mut repaired, mut refused) = (0, 0);
    for field in fields {
        let mut damaged = whole.clone();
        damaged[4 * field] ^= 1 << (field % 8);
        fs::write(&path, &damaged).expect("written");
        let (before, ..) = output(&mut multifile(folder.path(), &["verify", "joined"]));
        let (code, said, why) = output(&mut multifile(folder.path(), &["repair", "joined"]));
        let (after, ..) = output(&mut multifile(folder.path(), &["verify", "joined"]));
        let is = fs::read(&path).expect("there");
        assert!(code != 0 || after == 0, "field {field}: {said}{why}");
        assert!(before != 0 || code == 0, "field {field}: {said}{why}");
        assert!(is == damaged || is == whole, "field {field}: {said}{why}");
        assert!(is == damaged || before != 0, "field {field}: {said}{why}");
        repaired += usize::from(is == whole);
        refused += usize::from(code != 0);
    }
    assert!(repaired > 4 && refused > 10, "{repaired} {refused}");
}

/// A node-local set, looked at where not all of it is.
#[test]
fn verify_names_the_file_that_it_cannot_see() {
    let folder = tempdir().expect("a folder");
    with_checksums(folder.path());
    done(folder.path(), &["join", "--files=2", "set", "a", "b"]);
    let away = folder.path().join("away");
    fs::create_dir(&away).expect("a folder");
    fs::rename(folder.path().join("set.000001"), away.join("set.000001")).expect("moved");
    fails(&mut multifile(folder.path(), &["verify", "set"]), 1, &["set.000001"]);
    let said = done(&away, &["verify", "set.000001"]);
    assert!(said.contains("1 task"), "{said}");
}

/// It may not be closed because it is still written: that is no damage.
#[test]
fn what_a_program_still_writes_is_left_to_it() {
    use std::{
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
    };
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("set");
    let tasks = NewTask::in_files(&[100; 2], 2);
    let writer = Writer::create(&Disk::new(), &path, &tasks, &Options::default());
    drop(writer.expect("made"));
    let before = ["set", "set.000001"].map(|name| fs::read(folder.path().join(name)).ok());
    for name in ["set", "set.000001"] {
        let script = "exec 9>>\"$0\"; echo; read end";
        let mut child = Command::new("sh");
        child.args(["-c", script]).arg(folder.path().join(name));
        let mut child =
            child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("open");
        let said = format!("process {} still writes it", child.id());
        fails(&mut multifile(folder.path(), &["repair", "set"]), 1, &[name, &said]);
        child.kill().expect("its own");
        child.wait().expect("ended");
    }
    let after = ["set", "set.000001"].map(|name| fs::read(folder.path().join(name)).ok());
    assert!(before == after);
    let (code, ..) = output(&mut multifile(folder.path(), &["repair", "set"]));
    assert_eq!(code, 0);
}

/// Those who only look are in nobody's way; who writes it, or repairs it, is alone.
#[test]
fn what_another_looks_at_can_be_looked_at_and_not_repaired() {
    use rustix::fs::{FlockOperation, flock};
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("set");
    let tasks = NewTask::in_one_file(&[100]);
    drop(Writer::create(&Disk::new(), &path, &tasks, &Options::default()).expect("made"));
    let other = fs::File::open(&path).expect("a file");
    let dry = ["repair", "--dry-run", "set"];
    flock(&other, FlockOperation::NonBlockingLockShared).expect("locked");
    fails(&mut multifile(folder.path(), &["ls", "set"]), 4, &["never closed"]);
    assert_eq!(output(&mut multifile(folder.path(), &dry)).0, 0);
    fails(&mut multifile(folder.path(), &["repair", "set"]), 1, &["in use by a daemon or server"]);
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("locked");
    for command in [&["ls", "set"][..], &dry] {
        fails(&mut multifile(folder.path(), command), 1, &["in use by a daemon or server"]);
    }
    drop(other);
    assert_eq!(output(&mut multifile(folder.path(), &["repair", "set"])).0, 0);
}

/// The mapping of a set names no such task: it would be lost.
#[test]
fn a_task_of_a_negative_rank_stays_in_one_file() {
    let folder = tempdir().expect("a folder");
    let mut tasks = NewTask::in_one_file(&[100; 3]);
    tasks[1].global_rank = -1;
    let path = folder.path().join("one");
    let writer = Writer::create(&Disk::new(), &path, &tasks, &Options::default());
    writer.expect("made").close().expect("closed");
    let spread = ["defrag", "--files=2", "one", "two"];
    fails(&mut multifile(folder.path(), &spread), 2, &["one", "negative"]);
    assert_eq!(names(folder.path()), ["one"]);
    done(folder.path(), &["defrag", "one", "two"]);
}

/// A file that claims much and has little.
#[test]
fn what_is_a_hole_stays_one_and_blocks_that_nobody_has_are_not_shown() {
    use std::{
        os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
        process::Command,
    };
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("long");
    let len = 64 << 20;
    let tasks = NewTask::in_one_file(&[len]);
    let mut writer = Writer::create(&Disk::new(), &path, &tasks, &Options::default());
    let task = writer.as_mut().expect("made").task(0);
    task.expect("a task").advance(len).expect("counted");
    writer.expect("made").close().expect("closed");
    done(folder.path(), &["split", "long", "out"]);
    done(folder.path(), &["defrag", "long", "short"]);
    let made = names(folder.path());
    assert_eq!(made.len(), 3, "{made:?}");
    for name in made.iter().filter(|name| *name != "long") {
        let found = fs::metadata(folder.path().join(name)).expect("a file");
        assert!(found.len() >= len && found.blocks() < 4096, "{name}: {found:?}");
    }

    let path = folder.path().join("many");
    let options = Options { order: Order::Little, ..Options::default() };
    let writer = Writer::create(&Disk::new(), &path, &NewTask::in_one_file(&[0]), &options);
    writer.expect("made").close().expect("closed");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("a file");
    file.write_all_at(&3_000_000u32.to_le_bytes(), 1076 + 16).expect("written");
    file.set_len(1 << 25).expect("longer");
    let tool = folder.path().join("siondump");
    symlink(env!("CARGO_BIN_EXE_kakehi"), &tool).expect("a link");
    let shown = output(Command::new(tool).arg("-a").arg(&path)).1;
    assert!(shown.contains("BLK000") && !shown.contains("BLK001"), "{}", shown.len());
}

/// A negative length is told as damage, never as the number that its bytes are without a sign.
#[test]
fn negative_block_length_is_shown_as_damage() {
    let folder = tempdir().expect("a folder");
    for name in ["x", "y"] {
        fs::write(folder.path().join(name), name).expect("a file");
    }
    done(folder.path(), &["join", "set", "x", "y"]);
    let path = folder.path().join("set");
    let mut bytes = fs::read(&path).expect("a file");
    // Rule 4.1: behind the two block counts stand the lengths of the first block.
    let table = bytes[1080 + 32..1088 + 32].try_into().expect("a number");
    let at = usize::try_from(u64::from_le_bytes(table)).expect("a place") + 2 * 8;
    bytes[at..at + 8].copy_from_slice(&(-1i64).to_le_bytes());
    fs::write(&path, bytes).expect("written");
    for words in [&["ls", "set"][..], &["dump", "set"], &["ls", "--json", "set"]] {
        let (code, said, why) = output(&mut multifile(folder.path(), words));
        assert_eq!(code, 4, "{words:?}: {said}{why}");
        assert!(!said.contains("18446744073709551615") && why.contains("task 0"), "{said}{why}");
        assert_eq!(said.matches("damaged").count() > 0, words.len() == 2, "{said}");
    }
    let (code, said, _) = output(&mut multifile(folder.path(), &["dump", "--json", "set"]));
    let dump: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let task = &dump["tasks"][0];
    assert_eq!((code, &task["bytes"], &task["block_bytes"][0]), (4, &().into(), &().into()));
    assert_eq!(dump["tasks"][1]["bytes"], 1);
}
