//! CPU time of the kernel's workers on a core. They do a part of what a thread there asked for, and
//! it is not told of that as its own CPU time: they issue what the queue of a device had no room
//! for, and end direct writes.

use std::{collections::HashMap, fs, path::Path, time::Duration};

/// Runs `work`, and says besides how long the workers of `core` ran meanwhile; of no core, not at
/// all.
pub(crate) fn beside<T>(core: Option<usize>, work: impl FnOnce() -> T) -> (T, Duration) {
    let before = core.map(Workers::of);
    let result = work();
    let time = core.zip(before).map(|(core, before)| Workers::of(core).time_since(&before));
    (result, time.unwrap_or_default())
}

/// The workers of a core, by process id, and how long each has run since it was started.
#[derive(Debug)]
struct Workers(HashMap<u32, Duration>);

impl Workers {
    /// Those of `core` by now. None where they cannot be seen, as in a container with process ids
    /// of its own.
    fn of(core: usize) -> Self {
        Self::below(Path::new("/proc"), core)
    }

    fn below(proc: &Path, core: usize) -> Self {
        let prefix = format!("kworker/{core}:");
        let worker = |id: &str| {
            let read = |name| fs::read_to_string(proc.join(id).join(name)).ok();
            let id = id.parse().ok()?;
            read("comm")?.starts_with(&prefix).then_some(())?;
            // The first number: nanoseconds on a core.
            let nanos = read("schedstat")?.split(' ').next()?.parse().ok()?;
            Some((id, Duration::from_nanos(nanos)))
        };
        let entries = fs::read_dir(proc).into_iter().flatten().flatten();
        Self(entries.filter_map(|entry| worker(entry.file_name().to_str()?)).collect())
    }

    /// How long they have run between `earlier` and now. What one did that has ended is not known.
    fn time_since(&self, earlier: &Self) -> Duration {
        let before = |id| earlier.0.get(id).copied().unwrap_or_default();
        self.0.iter().map(|(id, time)| time.saturating_sub(before(id))).sum()
    }
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
        let before = Workers::below(proc, 1);
        put(proc, 40, "kworker/1:1H-dio", 1500);
        (41..44).for_each(|id| put(proc, id, "fio", 9000));
        put(proc, 44, "kworker/1:2", 70);
        assert_eq!(Workers::below(proc, 1).time_since(&before), Duration::from_nanos(570));
    }
}
