//! A program linked with libsion: its multifile goes through the daemon, and is one without it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::harness::{self, Folder, SOON, kakehi, kakehi_run, run, text};

/// Bytes that `multifile.c` writes for its tasks.
const DATA_LEN: u64 = 8 * 2200 * 1000;

#[test]
fn a_program_linked_with_libsion_has_its_multifile_delegated() {
    let (folder, program) = (Folder::new(), program());
    for rule in ["/**=hybrid", "/**=delegate"] {
        let (path, stats) = (folder.join("out.sion"), folder.join("stats"));
        let told = stats.to_str().expect("UTF-8");
        let mut written = kakehi_run(&folder, &["--rule", rule, "--stats", told]);
        // Nothing is too large to be staged.
        written.env("KAKEHI_DIRECT", "1GiB");
        succeeds(written.arg(&program).arg("write").arg(&path));
        succeeds(Command::new(&program).arg("check").arg(&path));

        let allocated = fs::metadata(&path).expect("a file").blocks() * 512;
        assert!(allocated < DATA_LEN + DATA_LEN / 16, "{allocated}");

        let job = harness::stats(&stats).pop().expect("a job");
        assert!(job["bytes_delegated"].as_u64().is_some_and(|len| len >= DATA_LEN), "{job:#}");
        assert_eq!(job["bytes_undelegated"], serde_json::json!({}), "{job:#}");
    }
}

fn succeeds(command: &mut Command) {
    let output = run(command, SOON * 3);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

/// The program, linked with the static library of the build.
pub(crate) fn program() -> PathBuf {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../multifile/capi/include");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("multifile");
    let library = kakehi().with_file_name("libsion.a");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/multifile.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(headers);
    cc.arg(source).arg("-o").arg(&path).arg(library).args(["-lm", "-ldl"]);
    let made = run(&mut cc, Duration::from_secs(60));
    assert!(made.status.success(), "{}", text(&made.stderr));
    path
}
