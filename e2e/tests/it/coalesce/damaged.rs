//! Names of files that are damaged, or incomplete because their writer died.

use std::os::unix::fs::FileExt as _;

use super::*;

const FILES: usize = 9;

/// A closed multifile with files from `file1` on, each in a record of its own.
fn made(folder: &Folder) {
    let script = "for i in $(seq $1); do echo data$i >\"$0/file$i\"; ls \"$0\" >/dev/null; done";
    let mut command = coalescing(folder);
    command.args(["sh", "-c", script]).arg(local(folder)).arg(FILES.to_string());
    succeed(&mut command, SOON);
}

/// Writes over the first place with these bytes.
fn overwrite(file: &Path, at: &[u8], with: &[u8]) {
    let bytes = fs::read(file).expect("readable");
    let found = bytes.windows(at.len()).position(|part| part == at).expect("it is there");
    let open = fs::File::options().write(true).open(file).expect("writable");
    open.write_all_at(with, found as u64).expect("written");
}

/// Fails with this status, and a line with these parts; returns the standard output.
fn fails(command: &mut Command, status: i32, parts: &[&str]) -> String {
    let output = run(command, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{command:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
    text(&output.stdout)
}

/// Format rule 11.3.
#[test]
fn a_changed_bit_in_the_names_is_told_and_costs_no_other_name() {
    let folder = Folder::new();
    made(&folder);
    let kept = kept(&folder);
    overwrite(&kept, b"file3", b"fild3");
    let before = fs::read(&kept).expect("readable");
    let lost = &["names are damaged"][..];
    let told = fails(&mut multifile(&["verify"], &kept), 4, &["damage in 1 of"]);
    assert!(told.contains("task 0: the names of files in it are damaged"), "{told}");
    let listed = fails(&mut multifile(&["ls"], &kept), 4, lost);
    let (out, copy) = (folder.join("out"), folder.join("copy.sion"));
    fails(multifile(&["extract"], &kept).arg(&out), 4, lost);
    for index in (1..=FILES).filter(|index| *index != 3) {
        assert!(listed.contains(&format!("  file{index}\n")), "{listed}");
        let data = fs::read_to_string(out.join(format!("file{index}"))).expect("extracted");
        assert_eq!(data, format!("data{index}\n"));
    }
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), FILES - 1);
    fails(multifile(&["defrag"], &kept).arg(&copy), 4, lost);
    assert!(!copy.exists());
    let mut writing = coalescing(&folder);
    writing.args(["touch"]).arg(local(&folder).join("new"));
    fails(&mut writing, 125, &["names are damaged", "`kakehi multifile repair --output`"]);
    for command in [&["repair", "--dry-run"][..], &["repair"]] {
        fails(&mut multifile(command, &kept), 4, &["names are damaged", "--output"]);
    }
    assert!(fs::read(&kept).expect("readable") == before, "it is left as it is");

    let mut repair = multifile(&["repair", "--json", "--output"], &kept);
    let told = fails(repair.arg(&copy), 4, &["names are damaged"]);
    assert!(told.contains("\"tasks_without_name\": ["), "{told}");
    is_closed(&copy);
    fs::rename(&copy, &kept).expect("renamed");
    let mut reading = coalescing(&folder);
    reading.args(["sh", "-c", "cd \"$0\" && echo *; cat file9"]).arg(local(&folder));
    let left = "file1 file2 file4 file5 file6 file7 file8 file9\ndata9\n";
    assert_eq!(succeed(&mut reading, SOON), left);
    assert_eq!(fs::read_dir(extracted(&folder, &kept, "left")).expect("them").count(), FILES - 1);
}

/// Format rule 11.3.
#[test]
fn the_last_record_of_a_closed_multifile_is_not_taken_for_one_that_was_begun() {
    let folder = Folder::new();
    made(&folder);
    let bytes = fs::read(kept(&folder)).expect("readable");
    let at = bytes.windows(5).rposition(|part| part == b"file9").expect("it is there");
    // Whatever is behind it ends there.
    overwrite(&kept(&folder), &bytes[at - 40..at + 5], &[&bytes[at - 40..at + 4], b"8"].concat());
    fails(&mut multifile(&["verify"], &kept(&folder)), 4, &["damage in 1 of"]);
    let mut writing = coalescing(&folder);
    fails(writing.arg("true"), 125, &["names are damaged"]);
}

/// Format rule 11.3.
#[test]
fn a_record_that_a_dead_writer_began_is_cut_off_without_a_word() {
    for has_journal in [true, false] {
        let folder = Folder::new();
        let script = "for i in $(seq $1); do echo data$i >\"$0/file$i\"; ls \"$0\" >/dev/null; \
            done; echo begun; exec sleep 100";
        let mut command = coalescing(&folder);
        command.args(["sh", "-c", script]).arg(local(&folder)).arg(FILES.to_string());
        let mut first = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let output = first.child.stdout.take().expect("piped");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("said");
        kill_all(&folder);
        drop(first);
        let kept = kept(&folder);
        let bytes = fs::read(&kept).expect("readable");
        let at = bytes.windows(5).position(|part| part == b"file9").expect("it is there") + 3;
        let end = at.next_multiple_of(4096);
        let open = fs::File::options().write(true).open(&kept).expect("writable");
        open.write_all_at(&vec![0; end - at], at as u64).expect("written");
        drop(open);
        if !has_journal {
            fs::remove_file(folder.join("kept.sion.journal")).expect("there");
            succeed(&mut multifile(&["repair"], &kept), SOON);
            is_closed(&kept);
        }
        let mut reading = coalescing(&folder);
        reading.args(["sh", "-c", "cd \"$0\" && ls | wc -l"]).arg(local(&folder));
        let output = run(&mut reading, SOON);
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout).trim(), "8", "{said}");
        assert!(!said.contains("names"), "{said}");
        is_closed(&kept);
    }
}
