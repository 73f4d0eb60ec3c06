//! Files that another node removes while a program uses them.

use std::time::Duration;

use crate::{
    harness::{Folder, kakehi_run, python, run, text},
    rigs::Rig,
};

/// The kernel looks again where a call by name finds something stale. And a close that fails of a
/// file that was only read is told, but is no refused write.
#[test]
fn files_that_another_node_removes_are_missing_and_not_lost() {
    let Some(program) = python("files of another node", "stale") else { return };
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "--stale --keep 10s") else { return };
    let source = rig.mount().with_file_name("source");
    let mut command = kakehi_run(&folder, &["--rule", "/**=delegate"]);
    command.args(program).arg(source).current_dir(rig.mount());
    let output = run(&mut command, Duration::from_secs(60));
    rig.stop();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    let missing = "No such file or directory";
    assert_eq!(said, format!("{missing}\ntext\n{missing}\n"), "{told}");
    assert!(output.status.success() && !told.contains("FAILED"), "{output:?}");
}
