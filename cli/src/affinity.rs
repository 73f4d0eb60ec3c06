//! Dividing the machine: the daemon's cores, and the program's.

use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{failure::Failure, settings::Cores};

/// Checks that the daemon's cores are some that this job may use, by taking them for a moment.
///
/// # Errors
///
/// `Usage`.
pub(crate) fn check(cores: Option<&Cores>) -> Result<(), Failure> {
    // Whatever else keeps the daemon from its cores, it says.
    let (Some(Cores(cores)), Ok(before)) = (cores, sched_getaffinity(None)) else { return Ok(()) };
    let may_have = |core: &u32| {
        let core = usize::try_from(*core).ok().filter(|core| *core < CpuSet::MAX_CPU);
        let mut one = CpuSet::new();
        core.inspect(|core| one.set(*core)).is_some()
            && sched_setaffinity(None, &one) != Err(Errno::INVAL)
    };
    let missing = cores.iter().find(|core| !may_have(core));
    let restored = sched_setaffinity(None, &before);
    restored.map_err(|why| Failure::usage("--cores", why, "name fewer cores"))?;
    missing.map_or(Ok(()), |core| {
        let advice = "name cores that this job may use";
        Err(Failure::usage(format_args!("core {core} (--cores)"), "not there", advice))
    })
}

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
