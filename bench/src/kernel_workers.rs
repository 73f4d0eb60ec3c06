//! CPU time of the kernel's workers on a core. They do a part of what a thread there asked for, and
//! it is not told of that as its own CPU time: they issue what the queue of a device had no room
//! for, and end direct writes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The workers that a core has, as files that say how long each has run.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<PathBuf>);

impl Workers {
    /// Those of `core` by now; none where they cannot be seen, as in a container with process ids
    /// of its own, and none of no core.
    pub(crate) fn of(core: Option<usize>) -> Self {
        core.map(|core| Self::below(Path::new("/proc"), core)).unwrap_or_default()
    }

    fn below(proc: &Path, core: usize) -> Self {
        let prefix = format!("kworker/{core}:");
        let processes = fs::read_dir(proc).into_iter().flatten().flatten().map(|one| one.path());
        let is_worker = |process: &PathBuf| {
            fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with(&prefix))
        };
        Self(processes.filter(is_worker).map(|process| process.join("schedstat")).collect())
    }

    /// Runs `work`, and says besides how long they have run meanwhile.
    pub(crate) fn beside<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let before = self.times();
        let result = work();
        let times = self.times().into_iter();
        let ran = times.zip(before).map(|(time, before)| Some(time?.saturating_sub(before?)));
        (result, ran.flatten().sum())
    }

    /// How long each has run since it was started, unless it has ended.
    fn times(&self) -> Vec<Option<Duration>> {
        self.0.iter().map(|file| run_time(file)).collect()
    }
}

/// How long a process or thread has been on a core, by its `schedstat`.
pub(crate) fn run_time(schedstat: &Path) -> Option<Duration> {
    let times = fs::read_to_string(schedstat).ok()?;
    Some(Duration::from_nanos(times.split(' ').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Makes a process of this name that has run for so many nanoseconds.
    fn put(proc: &Path, id: u32, name: &str, nanos: u64) {
        let folder = proc.join(id.to_string());
        fs::create_dir_all(&folder).expect("is ours");
        fs::write(folder.join("comm"), format!("{name}\n")).expect("is ours");
        fs::write(folder.join("schedstat"), format!("{nanos} 77 3\n")).expect("is ours");
    }

    #[test]
    fn workers_of_this_core_count_and_nobody_else() {
        let scratch = Scratch::create().expect("may be made");
        let proc = scratch.path();
        put(proc, 40, "kworker/1:1H-kblockd", 1000);
        put(proc, 41, "kworker/11:0", 1000);
        put(proc, 42, "kworker/u8:1-events", 1000);
        put(proc, 43, "fio", 1000);
        put(proc, 44, "kworker/1:2", 1000);
        let workers = Workers::below(proc, 1);

        let ((), time) = workers.beside(|| {
            put(proc, 40, "kworker/1:1H-dio", 1500);
            (41..44).for_each(|id| put(proc, id, "fio", 9000));
            fs::remove_dir_all(proc.join("44")).expect("is ours");
        });

        assert_eq!(time, Duration::from_nanos(500));
    }
}
