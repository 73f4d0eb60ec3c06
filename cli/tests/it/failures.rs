//! Outputs that cannot be written, inputs that were not, and lists that are none: one line says
//! what, why, and what to do, and nothing is left or lost.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    process::Command,
};

use multifile::{
    Disk, Growing, NewFile, Options,
    catalogue::{Catalogue, Node},
};
use tempfile::tempdir;

use crate::{
    fails,
    golden::Golden,
    kakehi,
    multifile::{done, multifile, names},
    output,
};

/// Commands that create an output, where no file may be longer than 1 KiB.
const MAKERS: [&[&str]; 4] = [
    &["join", "made", "a", "b"],
    &["split", "whole", "made."],
    &["defrag", "whole", "made"],
    &["repair", "whole", "--output", "made"],
];

#[test]
fn an_output_that_cannot_be_written_is_called_what_it_was_to_be_called() {
    let folder = tempdir().expect("a folder");
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), vec![1; 20_000]).expect("a file");
    }
    done(folder.path(), &["join", "whole", "a", "b"]);
    fs::create_dir(folder.path().join("sub")).expect("a folder");
    let before = names(folder.path());
    for arguments in MAKERS {
        for parent in ["", "sub/"] {
            let mut command = Command::new("bash");
            let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" multifile \"$@\"";
            command.args(["-c", script, env!("CARGO_BIN_EXE_kakehi")]).current_dir(folder.path());
            command.args(arguments.iter().map(|argument| {
                argument
                    .strip_prefix("made")
                    .map_or((*argument).to_owned(), |rest| format!("{parent}made{rest}"))
            }));
            let line = format!("kakehi: {parent}made");
            fails(&mut command, 1, &[&line, "File too large", "; "]);
        }
    }
    assert_eq!(names(folder.path()), before);
    assert_eq!(names(&folder.path().join("sub")), [""; 0]);
}

#[test]
fn a_folder_that_takes_no_files_is_named_with_what_to_do() {
    let folder = tempdir().expect("a folder");
    fs::write(folder.path().join("a"), "data").expect("a file");
    done(folder.path(), &["join", "whole", "a"]);
    for arguments in [&["split", "whole", "/proc/x."][..], &["join", "/proc/x", "a"]] {
        let line = ["/proc", "no file can be made in it", "another folder"];
        fails(&mut multifile(folder.path(), arguments), 1, &line);
    }
}

#[test]
fn a_list_that_is_none_is_told_by_one_line_of_text() {
    let folder = tempdir().expect("a folder");
    for (content, shown) in [
        (&b"\x7fELF\x02\x01\x01\0\xff\xfe\0"[..], "'\\x7fELF\\x02\\x01\\x01'"),
        (b"\xff\xfename\n", "'\\xff\\xfename'"),
        (&[0x1b; 5000], "\\x1b'..."),
    ] {
        fs::write(folder.path().join("list"), content).expect("a list");
        let mut command = multifile(folder.path(), &["join", "made", "--from", "list"]);
        fails(&mut command, 2, &["list: name 1 in it is no file's: ", shown, "on each line"]);
    }
    fs::write(folder.path().join("list"), "not there\n").expect("a list");
    let mut command = multifile(folder.path(), &["join", "made", "--from", "list"]);
    fails(&mut command, 1, &["not there: No such file"]);
    assert_eq!(names(folder.path()), ["list"]);
}

#[test]
fn a_program_that_is_out_of_reach_is_told_with_the_cause() {
    let folder = tempdir().expect("a folder");
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).expect("a link");
    fails(kakehi(folder.path()).args(["check", "./loop"]), 1, &["./loop: Too many levels"]);
    fails(kakehi(folder.path()).args(["check", "./none"]), 1, &["./none: no such program"]);
}

#[test]
fn an_unclosed_multifile_of_a_folder_is_completed_by_another_run_too() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("kept.sion");
    let file = NewFile { task_count: 4, chunk_len: 1 << 20, fs_block_len: None };
    let options = Options::default();
    let growing = Growing::create(&Disk::new(), &path, file, &options).expect("made");
    let at = growing.place(0, 0).expect("a task").start_at;
    let names = Catalogue::new(1, Node::default()).write();
    File::options().write(true).open(&path).expect("there").write_all_at(&names, at).expect("room");
    drop(growing);
    let run = "a run with --coalesce LOCAL=kept.sion completes it";
    for words in
        [&["ls", "kept.sion"][..], &["verify", "kept.sion"], &["extract", "kept.sion", "x"]]
    {
        fails(&mut multifile(folder.path(), words), 4, &["never closed", run, "repair"]);
    }
}

/// A length of -1 is damage, not 18,446,744,073,709,551,615 bytes.
#[test]
fn listing_calls_a_task_damaged_whose_lengths_do_not_fit() {
    let golden = Golden::unpack();
    let mut bytes = fs::read(golden.path("ser_n2_exactchunk.sion")).expect("there");
    // The table of two tasks with three blocks ends the file, before the empty mapping.
    let slot = bytes.len() - 4 - 8;
    bytes[slot..slot + 8].fill(0xff);
    fs::write(golden.path("negative"), bytes).expect("a file");
    let (code, said, why) = output(&mut multifile(golden.folder(), &["ls", "negative"]));
    assert_eq!(code, 4, "{said}{why}");
    assert!(said.lines().nth(2).is_some_and(|line| line.ends_with("      damaged")), "{said}");
    assert!(why.contains("negative: task 1") && why.lines().count() == 1, "{why}");
    let (code, said, _) = output(&mut multifile(golden.folder(), &["ls", "--json", "negative"]));
    let listing: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &listing["tasks"][0]["bytes"]), (4, &4096.into()));
    assert!(listing["tasks"][1]["bytes"].is_null(), "{said}");
}
