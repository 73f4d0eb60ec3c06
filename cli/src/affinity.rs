//! Dividing the machine: the daemon's cores, and the program's.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{failure::Failure, settings::Cores};

/// Keeps this process, and what it starts, off the daemon's cores.
///
/// # Errors
///
/// `Usage` when nothing is left for the program.
pub(crate) fn leave(cores: Option<&Cores>) -> Result<(), Failure> {
    let Some(Cores(cores)) = cores else { return Ok(()) };
    let failed = |why: &dyn std::fmt::Display| {
        Failure::usage("--cores", why, "leave at least one core to the program")
    };
    let mut set: CpuSet = sched_getaffinity(None).map_err(|why| failed(&why))?;
    for core in cores {
        if let Some(core) = usize::try_from(*core).ok().filter(|core| *core < CpuSet::MAX_CPU) {
            set.unset(core);
        }
    }
    if set.count() == 0 {
        return Err(failed(&"the daemon would have every core this process may use"));
    }
    sched_setaffinity(None, &set).map_err(|why| failed(&why))
}
