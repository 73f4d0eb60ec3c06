//! Views of multifiles that have no names of files: those of SIONlib, and joined ones.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::{by_hand, can_mount, is_mounted};
use crate::harness::{Folder, SOON, succeed};

#[test]
fn tasks_of_a_multifile_without_names_are_files_by_number_and_rank() {
    if !can_mount("tasks by number") {
        return;
    }
    let folder = Folder::new();
    let at = folder.join("at");
    let kakehi = |words: &[&str], paths: &[&Path]| by_hand(&folder, words, paths);
    let parts = ["a", "b", "c"].map(|name| folder.join(name));
    for (index, part) in parts.iter().enumerate() {
        fs::write(part, "part ".repeat(index * 30_000)).expect("a file");
    }
    let joined = folder.join("joined.sion");
    let paths: Vec<&Path> = [&joined].into_iter().chain(&parts).map(AsRef::as_ref).collect();
    kakehi(&["multifile", "join"], &paths);
    kakehi(&["mount", "--read-only"], &[&joined, &at]);
    for (index, part) in parts.iter().enumerate() {
        for name in [index.to_string(), format!("by-rank/{index}")] {
            let found = fs::read(at.join(&name)).expect("there");
            assert!(found == fs::read(part).expect("there"), "{name}: {} bytes", found.len());
        }
    }
    assert_eq!(fs::read_dir(&at).expect("mounted").count(), parts.len() + 1);
    let refused = fs::write(at.join("0"), "").expect_err("it is only read");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    kakehi(&["umount"], &[&at]);
    assert!(!is_mounted(&at));
}

/// Of SIONlib's own: tasks of no block and of hundreds, which are not full, in several files.
#[test]
fn tasks_of_sionlibs_multifiles_have_the_bytes_that_were_written() {
    if !can_mount("SIONlib's tasks") {
        return;
    }
    let folder = Folder::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../multifile/rust/tests/golden");
    let manifest = fs::read(golden.join("manifest.json")).expect("golden files");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let (at, kakehi) = (folder.join("at"), |words: &[&str], paths: &[&Path]| {
        by_hand(&folder, words, paths);
    });
    let (mut case_count, mut block_count_max) = (0, 0);
    for case in manifest["cases"].as_array().expect("cases") {
        let stored: Vec<_> = case["files"].as_array().expect("files").iter().collect();
        let is_packed = |file: &&Value| text(file, "stored_as").ends_with(".zst");
        // Records with keys are not bytes of a file, and a large one takes long.
        if case["closed"] != true || case["keyval"] == true || stored.iter().any(is_packed) {
            continue;
        }
        for file in &stored {
            let to = folder.join(text(file, "name"));
            fs::copy(golden.join(text(file, "stored_as")), to).expect("copied");
        }
        kakehi(&["mount", "--read-only"], &[&folder.join(text(stored[0], "name")), &at]);
        for task in case["tasks"].as_array().expect("tasks") {
            let rank = at.join("by-rank").join(task["globalrank"].to_string());
            let bytes = fs::read(&rank).expect("a task");
            assert_eq!(task["bytes"], bytes.len(), "{}: {}", case["name"], rank.display());
            let sum = succeed(Command::new("sha256sum").arg(&rank), SOON);
            let expected = text(task, "sha256");
            assert!(sum.starts_with(expected), "{}: {}", case["name"], rank.display());
            block_count_max = block_count_max.max(task["blocks"].as_array().expect("blocks").len());
        }
        kakehi(&["umount"], &[&at]);
        case_count += 1;
    }
    assert!(case_count > 20 && block_count_max > 200, "{case_count}, {block_count_max}");
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect("text")
}
