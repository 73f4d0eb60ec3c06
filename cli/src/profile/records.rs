//! The records that processes append (`client/rust/src/watch_records.rs`): lines of fields parted
//! by tabs, by their first letter `F` of a file, `N` of a remote file's name, `P` of a process, `C`
//! of its calls of one size.
//!
//! Anything may stand there: a line that makes no sense is left out.

use std::collections::{BTreeMap, HashMap};

/// Classes of sizes; the first holds what is below 64 bytes, each other begins at 4 times the one
/// before.
pub(super) const SIZES: usize = 11;

/// The least bytes of a call in a class.
pub(super) const fn least(class: usize) -> u64 {
    if class == 0 { 0 } else { 16 << (2 * class) }
}

/// Calls of one way and size, of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) calls: u64,
    pub(super) bytes: u64,
    /// Calls that were timed, and the time they took.
    pub(super) timed: u64,
    pub(super) timed_ns: u64,
}

/// A file, by whoever it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) opens: u64,
    /// From its first opening to its last closing, by the clock of the records.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) rank: Option<u32>,
    pub(super) program: String,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) calls: u64,
    pub(super) closes: u64,
    pub(super) close_ns: u64,
}

/// All records of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) writes: [Class; SIZES],
    pub(super) reads: [Class; SIZES],
    /// The writes that the kernel executed while their time was measured.
    pub(super) measured: [Class; SIZES],
    /// Those with most bytes first.
    pub(super) files: Vec<File>,
    /// By rank, then by number.
    pub(super) processes: Vec<Process>,
}

impl Records {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut reading = Reading::default();
        for line in text.lines() {
            let fields: Vec<_> = line.split('\t').collect();
            reading.take(&fields); // `None`: it makes no sense.
        }
        reading.finish()
    }

    /// Bytes and calls of one way together.
    pub(super) fn total(classes: &[Class]) -> Class {
        classes.iter().fold(Class::default(), |sum, class| Class {
            calls: sum.calls.saturating_add(class.calls),
            bytes: sum.bytes.saturating_add(class.bytes),
            timed: sum.timed.saturating_add(class.timed),
            timed_ns: sum.timed_ns.saturating_add(class.timed_ns),
        })
    }
}

#[derive(Default)]
struct Reading {
    records: Records,
    /// Names of remote files by device and inode.
    names: HashMap<(u64, u64), String>,
    files: BTreeMap<String, File>,
    nameless: BTreeMap<(u64, u64), File>,
    processes: BTreeMap<u32, Process>,
}

/// Exactly `N` numbers.
fn numbers<const N: usize>(fields: &[&str]) -> Option<[u64; N]> {
    let fields: &[&str; N] = fields.try_into().ok()?;
    let read = fields.map(|field| field.parse().ok());
    read.iter().all(Option::is_some).then(|| read.map(Option::unwrap_or_default))
}

impl Reading {
    fn take(&mut self, fields: &[&str]) -> Option<()> {
        let number = |field: &str| field.parse::<u64>().ok();
        match *fields {
            ["N", device, inode, path] => {
                self.names.insert((number(device)?, number(inode)?), path.to_owned());
            }
            ["F", pid, ref file @ ..] => self.take_file(pid.parse().ok()?, file)?,
            ["P", pid, rank, from, to, closes, close_ns, program] => {
                let pid: u32 = pid.parse().ok()?;
                let process = self.processes.entry(pid).or_default();
                process.rank = rank.parse().ok();
                program.clone_into(&mut process.program);
                (process.from_ns, process.to_ns) = (number(from)?, number(to)?);
                process.closes = process.closes.saturating_add(number(closes)?);
                process.close_ns = process.close_ns.saturating_add(number(close_ns)?);
            }
            ["C", pid, way, size, ref calls @ ..] => {
                let of_way = match way {
                    "0" => &mut self.records.writes,
                    "1" => &mut self.records.reads,
                    "2" => &mut self.records.measured,
                    _ => return None,
                };
                let class = of_way.get_mut(size.parse::<usize>().ok()?)?;
                let [calls, bytes, timed, timed_ns] = numbers(calls)?;
                *class = Records::total(&[*class, Class { calls, bytes, timed, timed_ns }]);
                let process = self.processes.entry(pid.parse().ok()?).or_default();
                // What was measured is one of the writes, too.
                let calls = if way == "2" { 0 } else { calls };
                process.calls = process.calls.saturating_add(calls);
            }
            _ => return None,
        }
        Some(())
    }

    fn take_file(&mut self, pid: u32, fields: &[&str]) -> Option<()> {
        let (path, fields) = fields.split_last()?;
        let [from_ns, to_ns, written, read, writes, reads, device, inode] = numbers(fields)?;
        let path = (*path).to_owned();
        let process = self.processes.entry(pid).or_default();
        process.written = process.written.saturating_add(written);
        process.read = process.read.saturating_add(read);
        let name = path.clone();
        let file = File { path, written, read, writes, reads, opens: 1, from_ns, to_ns };
        match name.as_str() {
            "" => add(self.nameless.entry((device, inode)), file),
            _ => add(self.files.entry(name), file),
        }
        Some(())
    }

    fn finish(mut self) -> Records {
        for (identity, file) in self.nameless {
            let path = self.names.get(&identity).cloned();
            let path = path.unwrap_or_else(|| format!("(inode {})", identity.1));
            add(self.files.entry(path.clone()), File { path, ..file });
        }
        let mut files: Vec<_> = self.files.into_values().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.written.saturating_add(file.read)));
        let mut processes: Vec<_> = self.processes.into_iter().collect();
        processes.iter_mut().for_each(|(pid, process)| process.pid = *pid);
        let mut processes: Vec<_> = processes.into_iter().map(|(_, process)| process).collect();
        processes.sort_by_key(|process| (process.rank.is_none(), process.rank, process.pid));
        Records { files, processes, ..self.records }
    }
}

fn add<K: Ord>(entry: std::collections::btree_map::Entry<'_, K, File>, file: File) {
    let sum = entry.or_insert_with(|| File {
        path: file.path.clone(),
        from_ns: u64::MAX,
        ..File::default()
    });
    sum.written = sum.written.saturating_add(file.written);
    sum.read = sum.read.saturating_add(file.read);
    sum.writes = sum.writes.saturating_add(file.writes);
    sum.reads = sum.reads.saturating_add(file.reads);
    sum.opens += file.opens;
    sum.from_ns = sum.from_ns.min(file.from_ns);
    sum.to_ns = sum.to_ns.max(file.to_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_several_processes_are_summed_up_and_nonsense_is_left_out() {
        let text = "F\t7\t10\t20\t100\t0\t2\t0\t1\t5\t/a\nF\t8\t15\t40\t50\t9\t1\t1\t1\t5\t/a\n\
                    N\t3\t9\t/remote/x\nF\t8\t1\t2\t1000\t0\t1\t0\t3\t9\t\n\
                    P\t8\t1\t1\t50\t3\t600\t/bin/app\nP\t7\t0\t1\t30\t1\t200\t/bin/app\n\
                    C\t7\t0\t2\t4\t1200\t1\t900\nC\t8\t0\t2\t1\t300\t1\t100\n\
                    C\t8\t9\t2\t1\t1\t1\t1\nF\tx\nhello\n\n";
        let records = Records::read(text.as_bytes());
        let class = Class { calls: 5, bytes: 1500, timed: 2, timed_ns: 1000 };
        assert_eq!(records.writes[2], class);
        let names: Vec<_> = records.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["/remote/x", "/a"]);
        let file = &records.files[1];
        assert_eq!((file.written, file.opens, file.from_ns, file.to_ns), (150, 2, 10, 40));
        let ranks: Vec<_> = records.processes.iter().map(|process| process.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1)]);
        assert_eq!(records.processes[1].written, 1050);
    }

    #[test]
    fn classes_begin_where_the_client_says() {
        assert_eq!([0, 1, 2, 3, 4, 10].map(least), [0, 64, 256, 1024, 4096, 16 << 20]);
    }
}
