//! Memory of this machine, and how much of it the job's control group leaves to us.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Pid;

/// Bytes of memory: what is there, and what we may use.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of the machine's.
    pub total: u64,
    /// Missing when no control group limits us.
    pub limit: Option<u64>,
}

impl Memory {
    /// Finds both.
    #[must_use]
    pub fn find() -> Self {
        let system = rustix::system::sysinfo();
        let total = system.totalram.saturating_mul(system.mem_unit.into());
        let limits = groups_of(None).into_iter().filter_map(|group| group.limit());
        // Version 1 states "no limit" as a number beyond all memory.
        let limit = limits.min().filter(|limit| *limit < total);
        Self { total, limit }
    }

    /// Bytes that this process may use.
    #[must_use]
    pub fn usable(self) -> u64 {
        self.limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

/// Bytes that this process and `client` may use now without taking anything from anybody but the
/// page cache. What they share counts for whoever touches it first.
pub(crate) fn free(client: Option<Pid>) -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = field(&machine, "MemAvailable:").unwrap_or(0).saturating_mul(1 << 10);
    let others = client.map(|client| groups_of(Some(client))).unwrap_or_default();
    let groups = groups_of(None).into_iter().chain(others);
    groups.filter_map(|group| group.free()).fold(machine, u64::min)
}

/// A control group that counts memory.
struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// Names that a version of control groups gives its files, and lines of them.
struct Files {
    /// The least of them holds.
    limits: &'static [&'static str],
    used: &'static str,
    cached: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Files = Files {
    // Beyond `high` a group's processes are held up, by seconds.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cached: ["inactive_file", "active_file"],
};

impl Group {
    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    fn limit(&self) -> Option<u64> {
        let limits = self.files.limits.iter();
        limits.filter_map(|name| self.read(name)?.trim().parse().ok()).min()
    }

    /// Bytes that its limit leaves, if it has one.
    fn free(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.read(self.files.used)?.trim().parse().ok()?);
        let counts = self.read("memory.stat").unwrap_or_default();
        let cached = self.files.cached.iter().filter_map(|name| field(&counts, name)).sum();
        Some(limit.saturating_sub(used).saturating_add(cached).min(limit))
    }
}

/// The number behind `name` on a line of its own.
fn field(lines: &str, name: &str) -> Option<u64> {
    let mut words = lines.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next() == Some(name)).then(|| words.next())?)?.parse().ok()
}

/// The control groups of a process, ours if `None`, and their parents.
fn groups_of(process: Option<Pid>) -> Vec<Group> {
    let lines = match process {
        None => fs::read_to_string("/proc/self/cgroup"),
        Some(process) => fs::read_to_string(format!("/proc/{process}/cgroup")),
    };
    named(&lines.unwrap_or_default(), Path::new("/sys/fs/cgroup"))
}

/// The groups that `lines` name, and their parents, of either version.
fn named(lines: &str, root: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in lines.lines() {
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, of)| of.split_once(':'))
        else {
            continue;
        };
        let (root, files) = match controllers {
            "" => (root.to_owned(), &VERSION_2),
            "memory" => (root.join("memory"), &VERSION_1),
            _ => continue,
        };
        let path = root.join(path.trim_start_matches('/'));
        let folders = path.ancestors().take_while(|folder| folder.starts_with(&root));
        groups.extend(folders.map(|folder| Group { folder: folder.to_owned(), files }));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_parent_limits_the_group() {
        let root = tempfile::tempdir().expect("temporary folder");
        let group = root.path().join("job/step");
        fs::create_dir_all(&group).expect("folders");
        fs::write(group.join("memory.max"), "max\n").expect("file");
        fs::write(root.path().join("job/memory.max"), "1048576\n").expect("file");

        let limit = |lines| named(lines, root.path()).iter().filter_map(Group::limit).min();
        assert_eq!(limit("0::/job/step\n"), Some(1 << 20));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit(""), None);
        fs::write(group.join("memory.high"), "4096\n").expect("file");
        assert_eq!(limit("0::/job/step\n"), Some(4096));
    }

    #[test]
    fn page_cache_of_a_group_is_free() {
        let root = tempfile::tempdir().expect("temporary folder");
        let write = |name, text: &str| fs::write(root.path().join(name), text).expect("file");
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 500\ninactive_file 30\nactive_file 20\nshmem 350\n");
        let free = |lines| named(lines, root.path()).iter().filter_map(Group::free).min();
        assert_eq!(free("0::/\n"), Some(150));
        assert_eq!(free("7:cpu:/\n"), None);
        let free = [None, rustix::process::getppid()].map(super::free);
        assert!(free.iter().all(|free| (1 << 20..u64::MAX).contains(free)), "{free:?}");
    }
}
