//! Which cores a rank's daemon that was given none runs on: those of all it serves.
//!
//! Launchers bind each rank to cores of its own, and the daemon is started by the first rank: it
//! would have that one's cores, and compete with it for them.

use std::{fs, io};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Lets all threads of this process run on the cores of `process`, too. What the kernel refuses, as
/// cores of another control group, stays as it is.
pub(crate) fn share_those_of(process: Pid) {
    let (Ok(ours), Ok(theirs)) = (sched_getaffinity(None), sched_getaffinity(Some(process))) else {
        return;
    };
    let Some(all) = union(&ours, &theirs) else { return };
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return };
    let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // One that has just ended is missed by nobody; one that starts has its parent's cores.
    for thread in ids.filter_map(Pid::from_raw) {
        sched_setaffinity(Some(thread), &all).ok();
    }
}

/// Runs the calling thread on one core only.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The cores of both; `None` when the first has all of them.
fn union(ours: &CpuSet, theirs: &CpuSet) -> Option<CpuSet> {
    let mut all = *ours;
    (0..CpuSet::MAX_CPU).filter(|core| theirs.is_set(*core)).for_each(|core| all.set(core));
    (all.count() > ours.count()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        set
    }

    #[test]
    fn cores_are_gained_and_never_lost() {
        let both = union(&set(&[0, 3]), &set(&[3, 64])).expect("one more");
        assert!(both == set(&[0, 3, 64]));
        assert!(union(&set(&[0, 3]), &set(&[3])).is_none());
    }
}
