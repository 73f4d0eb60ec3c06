//! Views of multifiles that have no names of files: those of SIONlib, and joined ones.

use std::{fs, path::Path, process::Command};

use super::{by_hand, can_mount, is_mounted};
use crate::{
    harness::{Folder, SOON, kakehi, run, succeed, text},
    multifile,
};

#[test]
fn tasks_of_a_multifile_without_names_are_files_by_number_and_rank() {
    if !can_mount("tasks by number") {
        return;
    }
    let folder = Folder::new();
    let at = folder.join("at");
    let kakehi = |words: &[&str], paths: &[&Path]| by_hand(&folder, words, paths);
    let sion = folder.join("sionlib.sion");
    succeed(Command::new(multifile::program()).arg("write").arg(&sion), SOON);
    let mut command = Command::new(self::kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    let refused = run(command.args(["mount", "--read-only"]).arg(&sion).arg(&at), SOON);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("chunks that are not full"), "{said}");

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
