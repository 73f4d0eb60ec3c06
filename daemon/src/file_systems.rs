//! Costs of the file systems of a job, for its status and its summary.

use std::{collections::BTreeMap, fs};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use shm::{CallKind, Cost, Costs};

use crate::mount_table::place_of;

/// Costs of calls on a mounted file system, as a job has learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// As in `/proc/self/mountinfo`.
    pub device: String,
    /// Where it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Time of a call, by its kind: `write_call_ns`, `create_call_ns`. Bytes a second of long
    /// transfers: `write_bytes_per_s`, `read_bytes_per_s`. About how many files were opened:
    /// `open_calls`, `create_calls`.
    #[serde(flatten)]
    pub costs: BTreeMap<String, u64>,
}

impl FileSystem {
    /// Names of the kinds of calls, in the order in which they are shown.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        CallKind::ALL.into_iter().map(CallKind::name)
    }

    /// Those of a table of which anything is known.
    pub(crate) fn all(costs: &Costs) -> Vec<Self> {
        let mut costs = costs.all().peekable();
        if costs.peek().is_none() {
            return Vec::new();
        }
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let all = costs.map(|cost| Self::new(&cost, &mounts));
        all.filter(|system| !system.costs.is_empty()).collect()
    }

    fn new(cost: &Cost, mounts: &[u8]) -> Self {
        let device = format!("{}:{}", major(cost.device), minor(cost.device));
        let mount = place_of(mounts, &device).map(|place| place.display().to_string());
        let mut costs = BTreeMap::new();
        for kind in CallKind::ALL {
            let Some(ns) = cost.of(kind) else { continue };
            costs.insert(format!("{}_call_ns", kind.name()), ns);
            if matches!(kind, CallKind::Open | CallKind::Create) {
                costs.insert(format!("{}_calls", kind.name()), cost.count(kind));
            }
        }
        for (name, kib_ns) in [("write", cost.kib_ns), ("read", cost.read_kib_ns)] {
            let per_s = kib_ns.and_then(|ns| (1024 * 1_000_000_000_u64).checked_div(ns));
            costs.extend(per_s.map(|len| (format!("{name}_bytes_per_s"), len)));
        }
        Self { device, mount, costs }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;
    use shm::Sample;

    use super::*;

    #[test]
    fn file_system_is_told_with_its_mount_and_what_is_known() {
        let costs = Costs::default();
        let device = makedev(8, 1);
        let sample = Sample { kind: CallKind::Create, len: 0, ns: 400_000, calls: 32 };
        (0..4).for_each(|_| costs.learn_call(device, sample));
        (0..4).for_each(|_| costs.learn(device, 1 << 20, 1 << 20));
        let cost = costs.of(device).expect("samples");

        let system = FileSystem::new(&cost, b"1 2 8:1 / /lustre rw - lustre x rw\n");

        let text = serde_json::to_string(&system).expect("JSON");
        let expected = "{\"device\":\"8:1\",\"mount\":\"/lustre\",\"create_call_ns\":400000,\
                        \"create_calls\":128,\"write_bytes_per_s\":1000000000}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<FileSystem>(&text).expect("as written"), system);
        assert_eq!(FileSystem::all(&costs).len(), 1);
        assert!(FileSystem::all(&Costs::default()).is_empty());
    }
}
