//! `--stats` of runs that share a job.

use crate::harness::{Folder, SOON, kakehi_run, stats, succeed};

/// As every rank's behind a launcher, whose job another rank has started.
#[test]
fn run_that_joins_a_job_has_its_statistics_too() {
    let folder = Folder::new();
    let file = |name| folder.join(name).display().to_string();
    let (first, second) = (file("first"), file("second"));
    let mut command = kakehi_run(&folder, &["--stats", &first]);
    let inner = "\"$0\" run --stats \"$1\" -- sh -c 'echo hello >\"$0\"' \"$2\"; \
        \"$0\" run --stats \"$1\" -- true; \"$0\" run --stats \"$3\" -- true";
    command.args(["sh", "-c", inner]).arg(crate::harness::kakehi());
    succeed(command.args([&second, &file("out"), &first]), SOON);
    for name in [&first, &second] {
        let documents = stats(name.as_ref());
        assert_eq!(documents.len(), 1, "{name}: {documents:?}");
        assert_eq!(documents[0]["exit_code"], 0, "{documents:?}");
    }
}
