//! Probes of what this process may use: memory, descriptors, cores.

use daemon::Memory;
use rustix::{process::Resource, thread::CpuSet};

use crate::{config::Config, finding::Finding, size::Size};

/// The daemon has a descriptor for each file of all programs.
const OPEN_FILES_MIN: u64 = 4096;
/// Containers often give less, and MPI libraries then fail or fall back.
const SHARED_MEMORY_MIN: u64 = 256 << 20;

pub(super) fn memlock() -> Finding {
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    let found = limit.map_or("unlimited".to_owned(), |bytes| Size(bytes).approximate());
    Finding::ok("memlock", found, "Kakehi locks no memory; UCX over RDMA needs 'unlimited'")
}

/// The hard limit counts: the daemon raises its own limit to it.
pub(super) fn open_files() -> Finding {
    const NAME: &str = "open files";
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    let found = limit.map_or("unlimited".to_owned(), |count| count.to_string());
    if limit.is_none_or(|count| count >= OPEN_FILES_MIN) {
        return Finding::ok(NAME, found, "enough for the daemon, which opens each delegated file");
    }
    Finding::note(
        NAME,
        found,
        "the daemon opens each delegated file; more files than this stay undelegated",
    )
    .advise("ask the administrator for a higher hard limit (ulimit -Hn)")
}

pub(super) fn shared_memory() -> Finding {
    const NAME: &str = "/dev/shm";
    const MEANING: &str = "MPI libraries use it, Kakehi does not";
    match rustix::fs::statvfs(NAME) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let text = format!("{} free", Size(free).approximate());
            if free >= SHARED_MEMORY_MIN {
                return Finding::ok(NAME, text, MEANING);
            }
            Finding::note(NAME, text, MEANING).advise("give the container a larger one")
        }
        Err(why) => Finding::note(NAME, why, MEANING).advise("mount a tmpfs there"),
    }
}

pub(super) fn cores() -> Finding {
    const NAME: &str = "cores";
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return Finding::note(NAME, online, "unknown how many of them this process may use");
    };
    let numbers: Vec<_> =
        (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).filter_map(number).collect();
    let found = crate::settings::Cores(numbers);
    let text = format!("{} ({found})", found.0.len());
    if found.0.len() > 1 {
        return Finding::ok(NAME, text, "--cores reserves some for the daemon");
    }
    Finding::note(NAME, text, "daemon and program share one core")
        .advise("give the job more cores, or start it unbound (mpirun --bind-to none)")
}

fn number(core: usize) -> Option<u32> {
    u32::try_from(core).ok()
}

pub(super) fn memory(config: &Config) -> Finding {
    const NAME: &str = "memory";
    let memory = Memory::find();
    let total = Size(memory.total).approximate();
    let found = match memory.limit {
        Some(limit) => format!("{} of {total} (control group)", Size(limit).approximate()),
        None => format!("{total}, no control group limit"),
    };
    if config.memory.0 <= memory.usable() / 2 {
        return Finding::ok(NAME, found, "at least twice what staging may take");
    }
    Finding::note(NAME, found, "staging may take more than half of this")
        .advise("lower the setting 'memory' (KAKEHI_MEMORY)")
}
