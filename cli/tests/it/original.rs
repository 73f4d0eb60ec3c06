//! SIONlib's tools by their own names: options, output, and exit codes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::{TempDir, tempdir};

use crate::{
    golden::{Golden, sha256, text},
    multifile::damaged,
    output,
};

/// `kakehi` under the names that `make install` gives it.
struct Tools(TempDir);

impl Tools {
    fn install() -> Self {
        let folder = tempdir().expect("a folder");
        for name in ["siondump", "sionsplit", "sioncat", "siondefrag", "sionversion"] {
            symlink(env!("CARGO_BIN_EXE_kakehi"), folder.path().join(name)).expect("a link");
        }
        Self(folder)
    }

    /// A tool in `folder`, given up after five minutes.
    fn tool(&self, folder: &Path, line: &str) -> Command {
        let mut words = line.split(' ');
        let mut command = Command::new("timeout");
        command.arg("300").arg(self.0.path().join(words.next().expect("a name")));
        command.args(words).current_dir(folder);
        command
    }

    #[track_caller]
    fn done(&self, folder: &Path, line: &str) -> String {
        let (code, stdout, stderr) = output(&mut self.tool(folder, line));
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        stdout
    }
}

const DUMP: &str = "\
siondump: sid:                       0
siondump: filename:                  ser_n3_kv.sion                
siondump: prefix:                    ser_n3_kv.sion                
siondump: number of tasks:           3
siondump: current endianness:        little
siondump: file endianness:           little
siondump: filesystem blocksize:      512 bytes (  0.00 MB)
siondump: file set:                  No
siondump: file number:               1
siondump: number of files:           1
siondump: flag1:                     219043332096 (51+0)
siondump: flag2:                     0
siondump: keyval:                    51 (SION_KEYVAL_INLINE)
siondump: file format version:       5
siondump: file SIONlib version:      1.7p6 (current 1.7p6)
siondump: number of blocks:           4
siondump: size of chunks:                                3584 bytes  (    0.00 MB)
siondump: datasize in file (aggr.):                      2575 bytes  (    0.00 MB)
siondump: size of full chunks:                           2048 bytes  (    0.00 MB) #      4
siondump: size of partly filled chunks:                  1024 bytes  (    0.00 MB) #      2
siondump: size of empty chunks:                          3072 bytes  (    0.00 MB) #      6
siondump: overhead compared to task-local file:          1009 bytes  (    0.00 MB)
siondump: file usage (user data/chunk size):        71.847098%
siondump: size of used fsblocks:                         3072 bytes  (    0.00 MB, 6 blocks)
siondump: size of fully used fsblocks:                   2048 bytes  (    0.00 MB, 4 blocks)
siondump: size of partly used fsblocks:                   527 bytes of         1024 bytes \
(  0.00 MB of   0.00 MB, 2 blocks)
siondump: fsblock usage (user data/used fsblocks):     83.821615%
siondump: usage of partly used fsblocks:             51.464844%
";

#[test]
fn siondump_prints_the_columns_of_the_original() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    assert_eq!(tools.done(golden.folder(), "siondump ser_n3_kv.sion"), DUMP);
    for case in golden.closed() {
        let text = tools.done(golden.folder(), &format!("siondump {}", text(&case["file"])));
        let value = |label: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("siondump: {label}:")));
            line.and_then(|line| line.get(37..)).expect("a line").trim().to_owned()
        };
        assert_eq!(
            value("number of tasks"),
            case["tasks"].as_array().expect("tasks").len().to_string()
        );
        let header = &case["files"][0]["header"];
        assert_eq!(value("file endianness"), header["data"]);
        assert_eq!(value("file format version"), header["version"].to_string());
        let flag1 = header["flag1"].as_u64().expect("a number");
        assert_eq!(value("flag1"), format!("{flag1} ({}+0)", flag1 >> 32));
    }
}

#[test]
fn siondump_prints_every_block_in_both_forms() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    let dump = |options: &str, name: &str| {
        let text = tools.done(golden.folder(), &format!("siondump {options} {name}"));
        let lines = text.lines().filter(|line| line.contains("Task 02"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        dump("-a -l", "mpi_n7_f3.sion"),
        ["siondump: Task 02: size=      8192 B glblrnk=   2 #blks= 1 lsz=      3801 B:\
             \x20     3801        -1        -1 "]
    );
    assert_eq!(
        dump("-a", "mpi_n7_f3.sion"),
        ["siondump: Task 02: size=    0.01 MB glblrnk=   2 #blks= 1 lsz=    0.00 MB:\
             \x20    0.00 MB   -0.00 MB   -0.00 MB "]
    );
    assert_eq!(
        dump("-al -l", "ser_n3_kv.sion").first().map(String::as_str),
        Some(
            "siondump: Task 02: size=       512 B glblrnk=   2 #blks= 2 lsz=       964 B:\
             \x20      512       452         0         0 "
        )
    );
    // 250 blocks: 25 tables of ten.
    let many = tools.done(golden.folder(), "siondump -a mpi_n3_250blocks.sion");
    assert_eq!(many.lines().filter(|line| line.contains("Task 00")).count(), 25);
    assert!(many.contains(&format!("\n\nsiondump: {}\n", "-".repeat(155))));
    assert!(many.contains(&format!("siondump: {:70}BLK240    BLK241    ", "")));
}

#[test]
fn siondump_prints_the_files_and_the_mapping_of_a_set() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    let text = tools.done(golden.folder(), "siondump -m -M mpi_n3_f2.sion");
    let dashes = "-".repeat(60);
    let expected = format!(
        "siondump: {dashes}\n\
         siondump: number of files: 2\n\
         siondump: file   1: mpi_n3_f2.sion\n\
         siondump: file   2: mpi_n3_f2.sion.000001\n\
         siondump: {dashes}\n\
         siondump:   mapping: [00000 -> (f000,t000)] [00001 -> (f001,t000)] \
         [00002 -> (f001,t001)] \n\
         siondump:   file[000]:  0:00000 \n\
         siondump:   file[001]:  0:00001  1:00002 \n"
    );
    assert!(text.ends_with(&expected), "{text}");
    assert!(text.starts_with("siondump: sid:                       1\n"));
    let member = tools.done(golden.folder(), "siondump mpi_n3_f2.sion.000001");
    assert!(member.contains("siondump: number of tasks:           2\n"), "{member}");
}

/// E11: -k and -K together print both; the original freed its table twice.
#[test]
fn siondump_prints_keys_and_records_together() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    for name in ["ser_n3_kv.sion", "be_n2_kv.sion", "mpi_n4_kv_f2.sion"] {
        let of = |options: &str| {
            let text = tools.done(golden.folder(), &format!("siondump {options} {name}"));
            let from = text.find(&"-".repeat(155)).or_else(|| text.find("siondump: Task"));
            text[from.expect("tables")..].to_owned()
        };
        assert_eq!(
            of("-k -K"),
            of("-k") + "siondump: " + of("-K").trim_start_matches("siondump: ")
        );
    }
    let text = tools.done(golden.folder(), "siondump -k ser_n3_kv.sion");
    let signed =
        "siondump: Task 00: key[03]=-81985529216486896: #blocks=     1 totalsize=       210\n";
    assert!(text.contains(signed), "{text}");
    let text = tools.done(golden.folder(), "siondump -K ser_n3_kv.sion");
    let second = "siondump:        : [05:k=<1002>,size=274]";
    assert!(text.contains("siondump: Task 00: [00:k=<1000>,size=47] [01:k=<1001>,size=128]"));
    assert!(text.contains(second), "{text}");
    let (code, stdout, stderr) =
        output(&mut tools.tool(golden.folder(), "siondump -k mpi_n1.sion"));
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stdout}{stderr}");
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
