//! Memory of this machine, and how much of it the job's control group leaves to us.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes of memory: what is there, and what we may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// Missing when no control group limits us.
    pub(crate) limit: Option<u64>,
}

impl Memory {
    pub(crate) fn usable(self) -> u64 {
        self.limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

pub(crate) fn memory() -> Memory {
    let system = rustix::system::sysinfo();
    let total = system.totalram.saturating_mul(system.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Version 1 states "no limit" as a number beyond all memory.
    let limit = group_limit(&groups, Path::new("/sys/fs/cgroup")).filter(|limit| *limit < total);
    Memory { total, limit }
}

/// The smallest memory limit of our control group and its parents, of either version.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let path: PathBuf = root.join(path.trim_start_matches('/'));
        path.ancestors()
            .take_while(|folder| folder.starts_with(&root))
            .filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok())
            .min()
    });
    limits.min()
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

        assert_eq!(group_limit("0::/job/step\n", root.path()), Some(1 << 20));
        assert_eq!(group_limit("0::/\n", root.path()), None);
        assert_eq!(group_limit("", root.path()), None);
    }
}
