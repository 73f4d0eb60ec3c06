//! Real programs under `kakehi run`: the same files, to the last byte, as without it.
//!
//! A run that delegated nothing would pass too, so the bytes that the workload writes are counted
//! by `strace` in the native run, and the daemon has to have got them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{
    harness::{self, Folder, note, run, skip, stats, succeed, sum, text},
    remote::server::{Scheme, Server},
    remote_network::Nodes,
    strace::Trace,
};

const TIME_MAX: Duration = Duration::from_secs(600);
/// Makes every file's every operation the daemon's.
const DELEGATE: &[&str] = &["--rule", "/**=delegate"];

struct Workload {
    name: &'static str,
    /// Ends of the names of files that differ from one native run to the next.
    varying: &'static [&'static str],
    /// Share of the bytes written that has to be delegated, per mille.
    share: u64,
}

const LAMMPS: Workload = Workload { name: "lammps", varying: &[], share: 1000 };
const OPENFOAM: Workload = Workload { name: "openfoam", varying: &[], share: 950 };
/// Its XML tells times, and the number of their digits varies: all of it, but for those.
const QE: Workload = Workload { name: "qe", varying: &[".xml"], share: 999 };
/// HDF5 locks its files.
const PYTHON: Workload = Workload { name: "python", varying: &[".nc", ".npz"], share: 50 };
const GIT: Workload = Workload { name: "git", varying: &[".git/index", ".git/config"], share: 950 };
const TAR: Workload = Workload { name: "tar", varying: &[], share: 950 };
/// It locks each file before it writes it, so all are the kernel's.
const SQLITE: Workload = Workload { name: "sqlite", varying: &[], share: 0 };

#[test]
fn lammps_writes_the_same_bytes() {
    LAMMPS.compare(&[&[], DELEGATE]);
}

#[test]
fn openfoam_writes_the_same_bytes() {
    OPENFOAM.compare(&[&[]]);
}

#[test]
fn quantum_espresso_writes_the_same_bytes() {
    QE.compare(&[&[]]);
}

#[test]
fn python_writes_the_same_bytes() {
    PYTHON.compare(&[&[]]);
}

#[test]
fn git_writes_the_same_bytes() {
    GIT.compare(&[&[]]);
}

#[test]
fn tar_writes_the_same_bytes() {
    TAR.compare(&[&[], DELEGATE]);
}

#[test]
fn sqlite_writes_the_same_bytes() {
    SQLITE.compare(&[&[]]);
}

#[test]
fn remote_programs_write_the_same_bytes_over_tcp() {
    crate::views::needs_view!();
    [LAMMPS, QE, TAR].iter().for_each(|workload| workload.compare_remote(Scheme::Tcp));
}

#[test]
fn remote_programs_write_the_same_bytes_over_ucx() {
    [LAMMPS, TAR].iter().for_each(|workload| workload.compare_remote(Scheme::Ucx));
}

#[test]
fn remote_programs_write_the_same_bytes_between_two_nodes() {
    crate::views::needs_view!();
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        [LAMMPS, TAR].iter().for_each(|workload| workload.compare_apart(scheme));
    }
}

#[test]
fn coalesced_programs_write_the_same_bytes() {
    crate::views::needs_view!();
    [LAMMPS, TAR].iter().for_each(Workload::compare_coalesced);
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn more_coalesced_programs_write_the_same_bytes() {
    crate::views::needs_view!();
    [OPENFOAM, QE, PYTHON, GIT].iter().for_each(Workload::compare_coalesced);
}

/// It computes for long.
#[test]
#[ignore = "minutes: for `make soak`"]
fn quantum_espresso_writes_the_same_bytes_everywhere() {
    crate::views::needs_view!();
    QE.compare(&[DELEGATE]);
    QE.compare_remote(Scheme::Ucx);
    [Scheme::Tcp, Scheme::Ucx].into_iter().for_each(|scheme| QE.compare_apart(scheme));
}

/// With the engines and idle policies that are not the default.
#[test]
#[ignore = "minutes: for `make soak`"]
fn every_workload_writes_the_same_bytes_however_the_daemon_is_set() {
    for flags in [
        &["--idle", "spin"][..],
        &["--idle", "park"],
        &["--idle", "interrupt", "--engine", "threads"],
        &["--engine", "uring"],
        &["--cores", "0"],
    ] {
        for workload in [LAMMPS, OPENFOAM, QE, PYTHON, GIT, TAR, SQLITE] {
            workload.compare(&[flags]);
        }
    }
}

/// Runs a workload natively, then with its files in `place` under each list of flags, and compares.
pub(crate) fn compare_in(folder: &Folder, place: &Path, name: &str, flags: &[&[&str]]) {
    let all = [LAMMPS, OPENFOAM, QE, PYTHON, GIT, TAR, SQLITE];
    let workload = all.into_iter().find(|workload| workload.name == name).expect("a workload");
    let native = folder.join(format!("native-{name}"));
    let Some(written) = workload.run_natively(folder, &native) else { return };
    for (index, flags) in flags.iter().enumerate() {
        let wrapped = place.join(format!("{name}{index}"));
        let documents = workload.run_wrapped(folder, &wrapped, flags, Command::new("bash"));
        workload.assert_equal(&native, &wrapped);
        workload.assert_delegated(flags, &written, &documents);
        fs::remove_dir_all(&wrapped).expect("a folder");
    }
    fs::remove_dir_all(&native).expect("a folder");
    fs::remove_dir_all(folder.join("trace")).expect("a folder");
}

impl Workload {
    /// Runs natively, then once with each list of flags for `kakehi run`, and compares.
    fn compare(&self, flags: &[&[&str]]) {
        let folder = Folder::new();
        let native = folder.join("native");
        let Some(written) = self.run_natively(&folder, &native) else { return };
        for (index, flags) in flags.iter().enumerate() {
            let wrapped = folder.join(format!("wrapped{index}"));
            let documents = self.run_wrapped(&folder, &wrapped, flags, Command::new("bash"));
            self.assert_equal(&native, &wrapped);
            self.assert_delegated(flags, &written, &documents);
            fs::remove_dir_all(&wrapped).expect("a folder");
        }
    }

    /// Runs natively, then with its folder on a server, and compares what is there.
    fn compare_remote(&self, scheme: Scheme) {
        let folder = Folder::new();
        let native = folder.join("native");
        if !scheme.is_here(self.name) || self.run_natively(&folder, &native).is_none() {
            return;
        }
        let server = Server::start(&folder, scheme);
        let wrapped = folder.join("wrapped");
        let flags = server.flags(&wrapped);
        let flags = flags.each_ref().map(String::as_str);
        self.run_wrapped(&folder, &wrapped, &flags, Command::new("bash"));
        self.assert_equal(&native, &server.job());
        assert_eq!(self.files(&wrapped).len(), 0, "{} wrote past the server", self.name);
        server.end();
    }

    /// Runs natively, then with its folder in a multifile, and compares what is unpacked.
    fn compare_coalesced(&self) {
        let folder = Folder::new();
        let native = folder.join("native");
        if self.run_natively(&folder, &native).is_none() {
            return;
        }
        let (wrapped, kept) = (folder.join("wrapped"), folder.join("kept.sion"));
        let unpacked = folder.join("unpacked");
        let coalesced = format!("{}={}", wrapped.display(), kept.display());
        self.run_wrapped(&folder, &wrapped, &["--coalesce", &coalesced], Command::new("bash"));
        assert_eq!(self.files(&wrapped).len(), 0, "{} wrote past the multifile", self.name);
        let mut unpack = Command::new(harness::kakehi());
        succeed(unpack.args(["multifile", "extract"]).args([&kept, &unpacked]), TIME_MAX);
        self.assert_equal(&native, &unpacked);
    }

    /// The same with the server on another node.
    fn compare_apart(&self, scheme: Scheme) {
        let folder = Folder::new();
        let native = folder.join("native");
        if !scheme.is_here(self.name) || self.run_natively(&folder, &native).is_none() {
            return;
        }
        let nodes = match Nodes::start(&folder, scheme) {
            Ok(nodes) => nodes,
            Err(why) => return skip("programs between two nodes", why),
        };
        let wrapped = folder.join("wrapped");
        let flags = nodes.flags(&wrapped);
        let (flags, mut command) = (flags.each_ref().map(String::as_str), nodes.on_client());
        command.arg("bash");
        self.run_wrapped(&folder, &wrapped, &flags, command);
        self.assert_equal(&native, &nodes.job());
        assert_eq!(self.files(&wrapped).len(), 0, "{} wrote past the server", self.name);
        nodes.end();
    }

    /// Runs without kakehi; bytes written by each system call. `None`: it cannot be run here.
    fn run_natively(&self, folder: &Folder, native: &Path) -> Option<BTreeMap<String, u64>> {
        let needs = [script(), "needs".into(), self.name.into()];
        let missing = succeed(Command::new("bash").args(needs), TIME_MAX);
        if !missing.is_empty() {
            skip(self.name, format!("not found: {}", missing.replace('\n', ", ")));
            return None;
        }
        if !Trace::is_possible() {
            skip(self.name, "no strace to count what it writes");
            return None;
        }
        let trace = Trace::new(folder.join("trace"));
        succeed(trace.command().arg("bash").args(self.arguments(native)), TIME_MAX);
        let written = trace.written(native);
        assert!(written.values().sum::<u64>() > 0, "{} writes nothing", self.name);
        Some(written)
    }

    /// Runs under `kakehi run`, by this shell, and returns what that says of each job.
    fn run_wrapped(
        &self,
        folder: &Folder,
        wrapped: &Path,
        flags: &[&str],
        mut command: Command,
    ) -> Vec<Value> {
        let stats_file = wrapped.with_extension("stats");
        let (kakehi, flags) = (harness::kakehi(), flags.join(" "));
        let wrap = format!("{} run --stats {} {flags} --", kakehi.display(), stats_file.display());
        command.args(self.arguments(wrapped)).env("WRAP", wrap);
        command.env("XDG_RUNTIME_DIR", folder.path()).envs(harness::EAGER);
        let output = run(&mut command, TIME_MAX);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{} {flags}: {}: {said}", self.name, output.status);
        stats(&stats_file)
    }

    /// The same files with the same bytes, but for those that always differ.
    fn assert_equal(&self, native: &Path, wrapped: &Path) {
        let (native, wrapped) = (self.files(native), self.files(wrapped));
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&native), names(&wrapped), "{}", self.name);
        for (name, bytes) in &native {
            let found = &wrapped[name];
            let differs = bytes.iter().zip(found).position(|(one, other)| one != other);
            assert!(
                differs.is_none() && bytes.len() == found.len(),
                "{}: {} has {} bytes, natively {}; they differ from byte {differs:?}",
                self.name,
                name.display(),
                found.len(),
                bytes.len(),
            );
        }
    }

    /// Files by path from `root`, with their content.
    fn files(&self, root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                let (path, kind) = (entry.path(), entry.file_type().expect("its type"));
                let name = path.strip_prefix(root).expect("under the root").to_owned();
                let varies = |end: &str| name.to_string_lossy().ends_with(end);
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() && !self.varying.iter().any(|end| varies(end)) {
                    files.insert(name, fs::read(path).expect("a file"));
                }
            }
        }
        files
    }

    /// The daemon got what the workload wrote. What the kernel copied from file to file, and what a
    /// shell had opened for a program, went past it, is known to have, and counts apart.
    fn assert_delegated(&self, flags: &[&str], native: &BTreeMap<String, u64>, stats: &[Value]) {
        let all: u64 = native.values().sum();
        let copied: u64 = ["copy_file_range", "sendfile", "splice"]
            .iter()
            .filter_map(|call| native.get(*call))
            .sum();
        let delegated = sum(stats, "/bytes_delegated");
        let inherited = sum(stats, "/bytes_undelegated/inherited");
        let kernel_copy = sum(stats, "/bytes_undelegated/kernel_copy");
        note(format_args!(
            "{} {flags:?}: {all} bytes written, {delegated} delegated, {inherited} inherited, \
             {kernel_copy} copied by the kernel",
            self.name
        ));
        let said = format!("{} {flags:?}: native {native:?}; {stats:#?}", self.name);
        let wanted = (all - copied).saturating_sub(inherited) * self.share / 1000;
        assert!(delegated >= wanted, "{delegated} of {wanted} bytes: {said}");
        let accounted = delegated + inherited + kernel_copy;
        assert!(accounted >= all * self.share / 1000, "{accounted} of {all} bytes: {said}");
        assert_eq!(sum(stats, "/drain_errors"), 0, "{said}");
        if self.share >= 999 {
            assert_eq!(delegated, sum(stats, "/bytes_written"), "{said}");
        }
    }

    fn arguments(&self, folder: &Path) -> Vec<PathBuf> {
        vec![script(), self.name.into(), folder.to_owned()]
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/run.sh")
}
