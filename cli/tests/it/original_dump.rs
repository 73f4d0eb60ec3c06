//! The output of `siondump`, to the letter: expected texts are made from the manifest of the golden
//! files, which an independent parser wrote.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use serde_json::Value;

use crate::{
    golden::{Golden, text},
    original::Tools,
    output,
};

const MB: f64 = 1_048_576.0;

/// One whole output, for a reader who wants to see it.
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
siondump: size of partly filled chunks:                   527 bytes  (    0.00 MB) #      2
siondump: size of empty chunks:                          3072 bytes  (    0.00 MB) #      6
siondump: overhead compared to task-local file:          1009 bytes  (    0.00 MB)
siondump: file usage (user data/chunk size):        71.847098%
siondump: size of used fsblocks:                         3072 bytes  (    0.00 MB, 6 blocks)
siondump: size of fully used fsblocks:                   2048 bytes  (    0.00 MB, 4 blocks)
siondump: size of partly used fsblocks:                   527 bytes of         1024 bytes \
(  0.00 MB of   0.00 MB, 2 blocks)
siondump: fsblock usage (user data/used fsblocks):     83.821615%
siondump: usage of partly used fsblocks:             51.464844%

-----------------------------------------------------------------------------------------------\
------------------------------------------------------------
                                                                      BLK000    BLK001    \
BLK002    BLK003    
Task 00: size=       512 B glblrnk=   0 #blks= 4 lsz=      1611 B:       512       512       512 \
\x20      75 
Task 01: size=       512 B glblrnk=   1 #blks= 1 lsz=         0 B:         0         0         0 \
\x20       0 
Task 02: size=       512 B glblrnk=   2 #blks= 2 lsz=       964 B:       512       452         0 \
\x20       0 

-----------------------------------------------------------------------------------------------\
------------------------------------------------------------
";

#[test]
fn siondump_prints_one_file_to_the_letter() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    assert_eq!(tools.done(golden.folder(), "siondump -a -l ser_n3_kv.sion"), DUMP);
}

#[test]
fn siondump_prints_every_golden_file_to_the_letter() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    for case in golden.closed() {
        let case = Case(case);
        let (name, plain) = (case.name(), case.plain());
        let said =
            |options: &str| tools.done(golden.folder(), &format!("siondump{options} {name}"));
        assert_eq!(said(""), plain, "{name}");
        assert_eq!(said(" -a"), plain.clone() + &case.blocks(false), "{name}");
        assert_eq!(said(" -l -a"), plain.clone() + &case.blocks(true), "{name}");
        let mapping = if case.is_set() { case.mapping() } else { String::new() };
        assert_eq!(said(" -m -M"), plain.clone() + &mapping, "{name}");
        if case.0["keyval"] == true {
            assert_eq!(said(" -k"), plain.clone() + &case.keys(), "{name}");
            assert_eq!(said(" -K"), plain.clone() + &case.records(), "{name}");
            // E11: together they print both; the original freed its table twice.
            assert_eq!(said(" -k -K"), plain + &case.keys() + &case.records(), "{name}");
        }
    }
}

#[test]
fn siondump_describes_a_member_of_a_set_alone() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    let member = tools.done(golden.folder(), "siondump mpi_n3_f2.sion.000001");
    assert!(member.contains("siondump: number of tasks:           2\n"), "{member}");
    assert!(member.contains("siondump: file number:               1\n"), "{member}");
    let (code, stdout, stderr) =
        output(&mut tools.tool(golden.folder(), "siondump -k mpi_n1.sion"));
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stdout}{stderr}");
}

/// A block length of -1 in a damaged table counts as nothing and is shown as it is.
#[test]
fn siondump_counts_a_negative_length_as_empty() {
    let (golden, tools) = (Golden::unpack(), Tools::install());
    let mut bytes = fs::read(golden.path("ser_n1_tiny.sion")).expect("there");
    bytes[2056..2064].fill(0xff);
    fs::write(golden.path("negative"), bytes).expect("a file");
    let said = tools.done(golden.folder(), "siondump -a -l negative");
    assert!(said.contains("datasize in file (aggr.):                         0 bytes"), "{said}");
    assert!(said.contains("size of empty chunks:                           512 bytes"), "{said}");
    assert!(said.contains(" B:        -1 \n"), "{said}");
}

/// A golden file as its manifest describes it.
struct Case<'a>(&'a Value);

impl Case<'_> {
    fn name(&self) -> &str {
        text(&self.0["file"])
    }

    fn is_set(&self) -> bool {
        number(&self.0["nfiles"]) > 1
    }

    fn tasks(&self) -> Vec<&Value> {
        self.0["tasks"].as_array().expect("tasks").iter().collect()
    }

    /// Block lengths of every task, and the largest number of blocks.
    fn block_count(&self) -> usize {
        self.tasks().iter().map(|task| lens(task).len()).max().unwrap_or(0)
    }

    fn plain(&self) -> String {
        let header = &self.0["files"][0]["header"];
        let of = |name: &str| number(&header[name]);
        let (name, prefix, len) = (self.name(), text(&header["prefix"]), of("fsblksize"));
        let mut out = String::new();
        let mut line = |label: &str, value: String| {
            writeln!(out, "{:37}{value}", format!("siondump: {label}:")).expect("a string");
        };
        line("sid", i32::from(self.is_set()).to_string());
        line("filename", format!("{name:<30}"));
        line("prefix", format!("{prefix:<30}"));
        line("number of tasks", self.tasks().len().to_string());
        let native = if cfg!(target_endian = "big") { "big" } else { "little" };
        line("current endianness", native.to_owned());
        line("file endianness", text(&header["data"]).to_owned());
        line("filesystem blocksize", format!("{len} bytes ({:6.2} MB)", len as f64 / MB));
        line("file set", if self.is_set() { "Yes" } else { "No" }.to_owned());
        line("file number", of("filenumber").to_string());
        line("number of files", of("nfiles").to_string());
        if of("version") == 5 {
            line("flag1", format!("{} ({}+0)", of("flag1"), of("flag1") >> 32));
        }
        line("flag2", of("flag2").to_string());
        let keyval = self.0["keyval"] == true;
        let mode = if keyval { "51 (SION_KEYVAL_INLINE)" } else { "50 (SION_KEYVAL_NONE)" };
        line("keyval", mode.to_owned());
        line("file format version", of("version").to_string());
        let (library, patch) = (of("lib"), of("patch"));
        let library = format!("{}.{}p{patch}", library / 1000, library % 1000);
        line("file SIONlib version", format!("{library} (current 1.7p6)"));
        line("number of blocks", format!(" {}", self.block_count()));
        out + &self.usage(len) + &self.files(prefix)
    }

    /// How well chunks and blocks of the file system are used.
    fn usage(&self, fs_len: i64) -> String {
        let (mut chunks, mut data) = (0, 0);
        let (mut full, mut partly, mut empty) = ((0, 0), (0, 0), (0, 0));
        let (mut used, mut whole, mut rest) = (0, 0, (0, 0));
        let add = |sum: &mut (i64, i64), bytes| *sum = (sum.0 + bytes, sum.1 + 1);
        for task in self.tasks() {
            let (chunk, lens) = (number(&task["chunksize"]), lens(task));
            for block in 0..self.block_count() {
                let len = lens.get(block).copied().unwrap_or(0);
                data += len;
                chunks += if block < lens.len() { chunk } else { 0 };
                match len {
                    _ if len == chunk => add(&mut full, chunk),
                    0 => add(&mut empty, chunk),
                    _ => add(&mut partly, len),
                }
                used += (len + fs_len - 1) / fs_len;
                whole += len / fs_len;
                if len % fs_len > 0 {
                    add(&mut rest, len % fs_len);
                }
            }
        }
        let mut out = String::new();
        let mut line = |width: usize, label: &str, value: String| {
            let label = format!("siondump: {label}:");
            writeln!(out, "{label:width$}{value}").expect("a string");
        };
        let bytes = |bytes: i64| format!("{bytes:12} bytes  ({:8.2} MB)", bytes as f64 / MB);
        let count = |(sum, n): (i64, i64)| format!("{} # {n:6}", bytes(sum));
        let percent = |part: i64, of: i64| format!("{:14.6}%", 100.0 * part as f64 / of as f64);
        line(49, "size of chunks", bytes(chunks));
        line(49, "datasize in file (aggr.)", bytes(data));
        line(49, "size of full chunks", count(full));
        line(49, "size of partly filled chunks", count(partly));
        line(49, "size of empty chunks", count(empty));
        line(49, "overhead compared to task-local file", bytes(chunks - data));
        if chunks > 0 {
            line(47, "file usage (user data/chunk size)", percent(data, chunks));
        }
        for (label, blocks) in [("used", used), ("fully used", whole)] {
            let value = bytes(blocks * fs_len).replace(')', &format!(", {blocks} blocks)"));
            line(49, &format!("size of {label} fsblocks"), value);
        }
        let (part, of) = (rest.0, rest.1 * fs_len);
        let (mb, of_mb) = (part as f64 / MB, of as f64 / MB);
        let blocks = format!("({mb:6.2} MB of {of_mb:6.2} MB, {} blocks)", rest.1);
        let value = format!("{part:12} bytes of {of:12} bytes {blocks}");
        line(49, "size of partly used fsblocks", value);
        if used > 0 {
            line(48, "fsblock usage (user data/used fsblocks)", percent(data, used * fs_len));
        }
        if of > 0 {
            line(48, "usage of partly used fsblocks", percent(part, of));
        }
        out
    }

    /// The members of a set.
    fn files(&self, prefix: &str) -> String {
        if !self.is_set() {
            return String::new();
        }
        let (rule, count) = ("-".repeat(60), number(&self.0["nfiles"]));
        let mut out = format!("{rule}\nsiondump: number of files:           {count}\n");
        for file in 0..count {
            let number = if file == 0 { String::new() } else { format!(".{file:06}") };
            let label = format!("siondump: file {:3}:", file + 1);
            writeln!(out, "{label:37}{prefix}{number}").expect("a string");
        }
        out + &rule + "\n"
    }

    /// The lines that `-m` and `-M` add.
    fn mapping(&self) -> String {
        let place = |task: &&Value| (number(&task["file"]), number(&task["lrank"]));
        let places: Vec<_> = self.tasks().iter().map(place).collect();
        let mut out = String::new();
        for (line, part) in places.chunks(16).enumerate() {
            out += "  mapping: ";
            for (index, (file, local)) in part.iter().enumerate() {
                let task = line * 16 + index;
                write!(out, "[{task:05} -> (f{file:03},t{local:03})] ").expect("a string");
            }
            out += "\n";
        }
        for number in 0..number(&self.0["nfiles"]) {
            write!(out, "  file[{number:03}]: ").expect("a string");
            for (task, (_, local)) in
                places.iter().enumerate().filter(|(_, (file, _))| *file == number)
            {
                write!(out, "{local:2}:{task:05} ").expect("a string");
            }
            out += "\n";
        }
        out
    }

    /// Returns the additional lines of `-a`.
    fn blocks(&self, long: bool) -> String {
        let rule = "-".repeat(155);
        let mut out = format!("\n{rule}\n");
        let missing = if self.is_set() { -1 } else { 0 };
        for first in (0..self.block_count()).step_by(10) {
            let blocks = first..self.block_count().min(first + 10);
            out += &" ".repeat(70);
            for block in blocks.clone() {
                write!(out, "BLK{block:03}    ").expect("a string");
            }
            out += "\n";
            for task in self.tasks() {
                let (index, rank) = (number(&task["task"]), number(&task["globalrank"]));
                let (size, lens) = (number(&task["chunksize"]), lens(task));
                let (count, sum) = (lens.len(), lens.iter().sum::<i64>());
                let line = if long {
                    format!("size={size:10} B glblrnk={rank:4} #blks={count:2} lsz={sum:10} B: ")
                } else {
                    let (size, sum) = (size as f64 / MB, sum as f64 / MB);
                    format!(
                        "size={size:8.2} MB glblrnk={rank:4} #blks={count:2} lsz={sum:8.2} MB:  "
                    )
                };
                write!(out, "Task {index:02}: {line}").expect("a string");
                for block in blocks.clone() {
                    let len = lens.get(block).copied().unwrap_or(missing);
                    let megabytes = len as f64 / MB;
                    let slot =
                        if long { format!("{len:9} ") } else { format!(" {megabytes:6.2} MB ") };
                    out += &slot;
                }
                out += "\n";
            }
            out += "\n";
        }
        out + &rule + "\n"
    }

    /// Returns the additional lines of `-k`; keys are signed.
    fn keys(&self) -> String {
        let rule = "-".repeat(155);
        let mut out = format!("{rule}\n");
        for task in self.tasks() {
            let (mut order, mut sums) = (Vec::new(), BTreeMap::new());
            for (key, len) in records(task) {
                let sum = sums.entry(key).or_insert_with(|| {
                    order.push(key);
                    (0, 0)
                });
                *sum = (sum.0 + 1, sum.1 + len);
            }
            for (index, key) in order.iter().enumerate() {
                let ((count, len), task) = (sums[key], number(&task["task"]));
                let line = format!("key[{index:02}]={key:8}: #blocks={count:6} totalsize={len:10}");
                writeln!(out, "Task {task:02}: {line}").expect("a string");
            }
        }
        out + &rule + "\n"
    }

    /// Returns the additional lines of `-K`: five records in a line.
    fn records(&self) -> String {
        let mut out = String::new();
        for task in self.tasks() {
            write!(out, "Task {:02}:", number(&task["task"])).expect("a string");
            for (index, (key, len)) in records(task).into_iter().enumerate() {
                if index > 0 && index % 5 == 0 {
                    out += "\n       :";
                }
                write!(out, " [{index:02}:k=<{key}>,size={len}]").expect("a string");
            }
            out += "\n";
        }
        out
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// Used bytes of a task's blocks.
fn lens(task: &Value) -> Vec<i64> {
    task["blocks"].as_array().expect("blocks").iter().map(number).collect()
}

/// Keys, as signed numbers, and lengths of a task's records.
fn records(task: &Value) -> Vec<(i64, i64)> {
    let records = task["kv"].as_array().expect("records").iter();
    let key = |record: &Value| {
        record["key"].as_i64().or(record["key"].as_u64().map(multifile::codec::signed))
    };
    records.map(|record| (key(record).expect("a key"), number(&record["len"]))).collect()
}
