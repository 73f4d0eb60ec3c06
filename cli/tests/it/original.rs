//! SIONlib's tools by their own names: options, output, and exit codes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::{TempDir, tempdir};

use crate::{
    golden::{Golden, sha256},
    multifile::damaged,
    output,
};

/// `kakehi` under the names that `make install` gives it.
pub(crate) struct Tools(TempDir);

impl Tools {
    pub(crate) fn install() -> Self {
        let folder = tempdir().expect("a folder");
        for name in ["siondump", "sionsplit", "sioncat", "siondefrag", "sionversion"] {
            symlink(env!("CARGO_BIN_EXE_kakehi"), folder.path().join(name)).expect("a link");
        }
        Self(folder)
    }

    /// A tool in `folder`, given up after five minutes.
    pub(crate) fn tool(&self, folder: &Path, line: &str) -> Command {
        let mut words = line.split(' ');
        let mut command = Command::new("timeout");
        command.arg("300").arg(self.0.path().join(words.next().expect("a name")));
        command.args(words).current_dir(folder);
        command
    }

    #[track_caller]
    pub(crate) fn done(&self, folder: &Path, line: &str) -> String {
        let (code, stdout, stderr) = output(&mut self.tool(folder, line));
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        stdout
    }
}

#[test]
fn sionsplit_names_files_by_task_rank_and_key() {
    let (golden, tools, made) = (Golden::unpack(), Tools::install(), tempdir().expect("a folder"));
    let prefix = |name: &str| made.path().join(name).display().to_string();
    let split = |line: &str| tools.done(golden.folder(), line);
    let said = split(&format!("sionsplit -d 3 ser_n4_granks.sion {}", prefix("t")));
    for (label, value) in [
        ("file name", "ser_n4_granks.sion"),
        ("file name prefix", &prefix("t")),
        ("number of tasks", "4"),
        ("number of digits", "3"),
        ("use global ranks", "0"),
        ("keyval", "50"),
        ("mask", &format!("{}%03d", prefix("t"))),
    ] {
        assert!(
            said.contains(&format!("{:37}{value}\n", format!("sionsplit: {label}:"))),
            "{said}"
        );
    }
    assert_eq!(said.matches("sionsplit: file t").count(), 4, "{said}");
    assert_eq!(said.matches(": read ").count(), said.matches(": wrote ").count());
    split(&format!("sionsplit -g ser_n4_granks.sion {}", prefix("g")));
    let said = split(&format!("sionsplit ser_n3_kv.sion {}", prefix("k")));
    assert!(said.contains("sionsplit: file k00000_000000001001\n") && said.ends_with("\n[0]\n"));
    let cases = golden.closed();
    let case = cases.iter().find(|case| case["name"] == "ser_n4_granks").expect("the case");
    for task in case["tasks"].as_array().expect("tasks") {
        let (index, rank) = (&task["task"].as_u64(), &task["globalrank"].as_i64());
        let names = [
            format!("t{:03}", index.expect("a number")),
            format!("g{:05}", rank.expect("a number")),
        ];
        for name in names {
            assert_eq!(task["sha256"], sha256(&fs::read(prefix(&name)).expect(&name)));
        }
    }
    let len = |name: &str| fs::metadata(prefix(name)).expect(name).len();
    assert_eq!(len("k00000_000000001001"), 440);
    assert_eq!(len("k00000_-81985529216486896"), 210);
    assert_eq!(len("k00002_000000001022"), 292);
}

#[test]
fn sioncat_selects_a_task_or_a_block() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    let cases = golden.closed();
    let case = cases.iter().find(|case| case["name"] == "mpi_n7_f3").expect("the case");
    for task in case["tasks"].as_array().expect("tasks") {
        let line = format!("sioncat -t {} -o out mpi_n7_f3.sion", task["task"]);
        tools.done(golden.folder(), &line);
        let bytes = fs::read(golden.path("out")).expect("written");
        assert_eq!(task["sha256"], sha256(&bytes));
    }
    tools.done(golden.folder(), "sioncat -t 2 -b 1 -o out mpi_n7_f3.sion");
    assert_eq!(fs::read(golden.path("out")).expect("written"), b"");
    for line in ["sioncat -t 7 mpi_n7_f3.sion", "sioncat -b 3 mpi_n7_f3.sion"] {
        let (code, stdout, stderr) = output(&mut tools.tool(golden.folder(), line));
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{stderr}");
    }
}

#[test]
fn siondefrag_keeps_records_and_replaces_its_output() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    fs::write(golden.path("out"), vec![0xee; 1 << 20]).expect("an older output");
    for name in ["ser_n3_kv.sion", "be_n2_kv.sion", "mpi_n4_kv_f2.sion"] {
        tools.done(golden.folder(), &format!("siondefrag -q 1 {name} out"));
        let records = |name: &str| {
            let text = tools.done(golden.folder(), &format!("siondump -K {name}"));
            let lines = text.lines().filter(|line| line.contains(":k=<") || line.contains("Task"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(records(name), records("out"));
        let dump = tools.done(golden.folder(), "siondump out");
        assert!(dump.contains("siondump: number of blocks:           1\n"), "{dump}");
        assert!(fs::metadata(golden.path("out")).expect("there").len() < 1 << 20);
    }
    tools.done(golden.folder(), "siondefrag -Q 1 mpi_n7_f3.sion out");
    let dump = tools.done(golden.folder(), "siondump out");
    assert!(dump.contains("siondump: filesystem blocksize:      1048576 bytes (  1.00 MB)\n"));
}

#[test]
fn version_and_usage_are_as_in_the_original() {
    let tools = Tools::install();
    let here = Path::new("/");
    let version = tools.done(here, "sionversion");
    assert!(version.starts_with("SIONlib Version 1.7.6 (git_rev "), "{version}");
    let program: PathBuf = tools.0.path().join("sionversion");
    let end = format!("), fileformat version 5 ({})\n", program.display());
    assert!(version.ends_with(&end), "{version}");
    for name in ["siondump", "sionsplit", "sioncat", "siondefrag"] {
        let (code, stdout, stderr) = output(&mut tools.tool(here, &format!("{name} -V")));
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{stderr}");
        assert!(stderr.contains(name) && stderr.contains("1.7p6") && stderr.contains('5'));
        for line in [format!("{name} -h"), name.to_owned(), format!("{name} -x in out")] {
            let (code, stdout, stderr) = output(&mut tools.tool(here, &line));
            assert_eq!((code, stdout.as_str()), (1, ""), "{line}");
            assert!(stderr.starts_with(&format!("usage: {name} ")), "{stderr}");
        }
    }
}

/// A multifile whose table promises data far beyond its end.
fn promising() -> Vec<u8> {
    let golden = Golden::unpack();
    let mut bytes = fs::read(golden.path("ser_n1_tiny.sion")).expect("there");
    let promised = (1u64 << 20).to_le_bytes();
    bytes[1084..1092].copy_from_slice(&promised);
    bytes[2056..2064].copy_from_slice(&promised);
    bytes
}

/// E25: a failure ends with code 1 and one line, also when the file ends inside its data, where
/// the original waited for ever.
#[test]
fn the_tools_fail_with_a_code_and_leave_nothing() {
    let (tools, folder) = (Tools::install(), tempdir().expect("a folder"));
    fs::write(folder.path().join("short"), promising()).expect("a file");
    fs::write(folder.path().join("text"), "no multifile").expect("a file");
    for name in ["nothing", "text", "short"] {
        for line in [
            format!("siondump {name}"),
            format!("sioncat -o out {name}"),
            format!("sionsplit {name} part"),
            format!("siondefrag {name} out"),
        ] {
            // Its tables are whole: there is something to show.
            if line == "siondump short" {
                continue;
            }
            let (code, stdout, stderr) = output(&mut tools.tool(folder.path(), &line));
            assert_eq!(
                (code, stdout.as_str(), stderr.lines().count()),
                (1, "", 1),
                "{line}: {stderr}"
            );
            assert!(stderr.starts_with(line.split(' ').next().expect("a name")), "{stderr}");
        }
    }
    let left = fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(left, 2, "only the two inputs");
}

#[test]
fn data_that_differs_from_its_checksums_is_a_failure() {
    let (tools, folder) = (Tools::install(), tempdir().expect("a folder"));
    damaged(folder.path());
    for line in [
        "sioncat joined",
        "sioncat -o out joined",
        "sionsplit joined part.",
        "siondefrag joined new",
    ] {
        let (code, _, said) = output(&mut tools.tool(folder.path(), line));
        assert_eq!(code, 1, "{line}: {said}");
        assert!(said.contains("from its checksums") && said.lines().count() == 1, "{said}");
    }
    assert!(folder.path().join("part.00001").exists() && !folder.path().join("new").exists());
}
