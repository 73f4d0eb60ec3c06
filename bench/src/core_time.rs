//! How long a core was idle. What it was busy with is then more than a process is told as its CPU
//! time: also the interrupts that found the core idle, and the kernel's own threads.

use std::{fs, time::Duration};

use rustix::thread::{CpuSet, sched_getaffinity};

/// Resolution of `/proc/stat`: a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// The core that this thread is kept on, if it is one.
pub(crate) fn own_core() -> Option<usize> {
    let set = sched_getaffinity(None).ok()?;
    let first = (0..CpuSet::MAX_CPU).find(|core| set.is_set(*core));
    first.filter(|_| set.count() == 1)
}

/// How long `core` has been idle since the machine was started, interrupts left out. To the
/// nanosecond where `/proc/timer_list` may be read, which takes root.
pub(crate) fn idle_time(core: usize) -> Option<Duration> {
    let read = |path, parse: fn(&str, usize) -> Option<Duration>| {
        fs::read_to_string(path).ok().and_then(|text| parse(&text, core))
    };
    read("/proc/timer_list", of_timer_list).or_else(|| read("/proc/stat", of_stat))
}

fn of_timer_list(text: &str, core: usize) -> Option<Duration> {
    let name = format!("{core}\n");
    let lines = text.split("\ncpu: ").find_map(|part| part.strip_prefix(&name))?;
    let nanos = |field: &str| {
        let line = lines.lines().find_map(|line| line.trim().strip_prefix(field))?;
        line.trim_start_matches([' ', ':']).strip_suffix(" nsecs")?.parse::<u64>().ok()
    };
    Some(Duration::from_nanos(nanos(".idle_sleeptime")? + nanos(".iowait_sleeptime")?))
}

fn of_stat(text: &str, core: usize) -> Option<Duration> {
    let name = format!("cpu{core} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
    let mut idle_and_waiting = line.split_whitespace().skip(3).map(str::parse::<u32>);
    let mut ticks = || idle_and_waiting.next()?.ok();
    Some(TICK * (ticks()? + ticks()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_what_the_kernel_says_of_this_core() {
        let list = "Timer List\n\ncpu: 0\n  .idle_sleeptime : 7 nsecs\n\
            \x20 .iowait_sleeptime: 9 nsecs\n\ncpu: 1\n clock 0:\n\
            \x20 .idle_sleeptime : 4000000000 nsecs\n\
            \x20 .iowait_sleeptime: 2 nsecs\n\ncpu: 10\n  .idle_sleeptime : 5 nsecs\n";
        assert_eq!(of_timer_list(list, 1), Some(Duration::new(4, 2)));
        assert_eq!(of_timer_list(list, 0), Some(Duration::from_nanos(16)));
        assert_eq!((of_timer_list(list, 2), of_timer_list(list, 10)), (None, None));
    }

    #[test]
    fn idle_is_counted_in_ticks_for_everybody() {
        let stat = "cpu  9 9 9 9 9\ncpu0 1 2 3 40 5 6\ncpu1 1 2 3 400 50 6\nintr 7\n";
        assert_eq!(of_stat(stat, 1), Some(Duration::from_millis(4500)));
        assert_eq!(of_stat(stat, 2), None);
        assert!(fs::read_to_string("/proc/stat").is_ok_and(|stat| of_stat(&stat, 0).is_some()));
    }
}
