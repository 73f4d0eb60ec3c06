//! Name of a job: by its user, its scheduler, or its launcher.

use std::{
    fs,
    hash::{DefaultHasher, Hasher as _},
    os::unix::{fs::MetadataExt as _, process::parent_id},
};

use crate::{
    config::{Config, Environment},
    failure::Failure,
};

const NAME_LEN_MAX: usize = 64;

/// A scheduler or launcher that tells its programs which job they are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduler {
    pub(crate) name: &'static str,
    /// The variable with the job's name.
    pub(crate) variable: &'static str,
    /// The variable with the number of an element of an array, whose elements share that name.
    element: Option<&'static str>,
}

/// Those known, the first that is there counts. PMIx is last: its name is of one launch in a job.
pub(crate) const SCHEDULERS: [Scheduler; 6] = [
    Scheduler { name: "Slurm", variable: "SLURM_JOB_ID", element: None },
    Scheduler { name: "PBS", variable: "PBS_JOBID", element: None },
    Scheduler { name: "Flux", variable: "FLUX_JOB_ID", element: None },
    Scheduler { name: "LSF", variable: "LSB_JOBID", element: Some("LSB_JOBINDEX") },
    Scheduler { name: "PJM", variable: "PJM_JOBID", element: Some("PJM_BULKNUM") },
    Scheduler { name: "PMIx", variable: "PMIX_NAMESPACE", element: None },
];

impl Scheduler {
    /// The job's name, if it is one of this scheduler's.
    fn job(&self, environment: &Environment) -> Option<String> {
        let name = environment.get(self.variable)?.to_string_lossy().into_owned();
        // PBS writes `12[3].server` for an element of an array, Flux its numbers as `ƒ2Wkv1cs`.
        let name = name.replace(['[', ']'], "_").replace('\u{192}', "f");
        let element = self.element.and_then(|variable| environment.get(variable));
        let element = element.map(|element| element.to_string_lossy());
        // LSF has 0 where there is no array.
        match element.filter(|element| element != "0") {
            Some(element) => Some(format!("{name}.{element}")),
            None => Some(name),
        }
    }
}

/// Returns the user's name for the job.
pub(super) fn own_name(config: &Config) -> Result<Option<String>, Failure> {
    config.job.as_deref().map(|name| checked("KAKEHI_JOB", name)).transpose()
}

/// Returns the name that the user, the scheduler, or the launcher gave the job.
pub(super) fn given_name(
    config: &Config,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    if let Some(name) = own_name(config)? {
        return Ok(Some(name));
    }
    for scheduler in &SCHEDULERS {
        if let Some(name) = scheduler.job(environment) {
            return checked(scheduler.variable, &shortened(name)).map(Some);
        }
    }
    // MPICH's and Intel's launchers name no job, but start the ranks of a node from one process.
    Ok(environment.get("PMI_RANK").map(|_| format!("pmi-{}", numbered(parent_id()))))
}

/// A process's number as a name. Containers that share a folder have the same numbers: those name
/// theirs, too.
pub(super) fn numbered(pid: u32) -> String {
    /// Where a machine's own processes have their numbers: the kernel's `PROC_PID_INIT_INO`.
    const MACHINE: u64 = 0xEFFF_FFFC;
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() != MACHINE => format!("{pid}-{}", namespace.ino()),
        _ => pid.to_string(),
    }
}

/// A name of a scheduler, which nobody has chosen, or what stands for a long one.
fn shortened(name: String) -> String {
    if name.len() <= NAME_LEN_MAX {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    let kept: String = name.chars().take(NAME_LEN_MAX - 17).collect();
    format!("{kept}-{:016x}", hasher.finish())
}

/// A name that is one path component and prints as itself.
fn checked(variable: &str, name: &str) -> Result<String, Failure> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+:,".contains(&byte);
    let fits = (1..=NAME_LEN_MAX).contains(&name.len()) && !name.starts_with('.');
    if fits && name.bytes().all(harmless) {
        return Ok(name.to_owned());
    }
    Err(Failure::usage(
        variable,
        format_args!("'{name}' cannot name a job's folder"),
        format_args!("set KAKEHI_JOB to at most {NAME_LEN_MAX} letters, digits, and . _ - @ + : ,"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    #[test]
    fn long_name_of_a_scheduler_is_shortened() {
        let long = format!("{}.pbs-server", "1".repeat(70));
        let names = [long.clone(), format!("{long}x")].map(shortened);
        assert!(names.iter().all(|name| checked("", name).is_ok()), "{names:?}");
        assert!(names[0] != names[1] && names[0].starts_with("1111"), "{names:?}");
        assert_eq!(shortened(long), names[0]);
    }

    #[test]
    fn schedulers_name_their_jobs_and_the_elements_of_arrays() {
        for (variables, name) in [
            (&[("SLURM_JOB_ID", "42"), ("PMIX_NAMESPACE", "x")][..], "42"),
            (&[("PBS_JOBID", "123[7].pbs-server")], "123_7_.pbs-server"),
            (&[("FLUX_JOB_ID", "\u{192}2Wkv1cs")], "f2Wkv1cs"),
            (&[("LSB_JOBID", "55"), ("LSB_JOBINDEX", "0")], "55"),
            (&[("LSB_JOBID", "55"), ("LSB_JOBINDEX", "3")], "55.3"),
            (&[("PJM_JOBID", "99"), ("PJM_BULKNUM", "2")], "99.2"),
            (&[("PMIX_NAMESPACE", "prte-n1-7@1")], "prte-n1-7@1"),
            (&[("KAKEHI_JOB", "mine"), ("PBS_JOBID", "1")], "mine"),
        ] {
            let environment = Environment::of(variables);
            let Ok(config) = Config::load(&environment, &Flags::default()) else {
                panic!("usable")
            };
            let found = given_name(&config, &environment).ok().flatten();
            assert_eq!(found.as_deref(), Some(name), "{variables:?}");
        }
    }
}
