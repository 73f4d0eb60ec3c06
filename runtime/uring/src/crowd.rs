//! Crowd detection: are more threads ready to run than there are cores? One cheap system call.
//!
//! The kernel sums it up over all cores for the load average. What other machines on the same host
//! want, it does not know; and within a container it speaks of the whole machine.

use std::{fs::File, os::unix::fs::FileExt as _, str};

/// A look at the machine's run queues.
#[derive(Debug)]
pub(crate) struct Crowd {
    load: File,
    core_count: u32,
}

impl Crowd {
    /// `None` where `/proc` is not to be had.
    pub(crate) fn new() -> Option<Self> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
        let load = File::open("/proc/loadavg").ok()?;
        Some(Self { load, core_count: count(online.trim())? })
    }

    /// True if more threads want to run than there are cores now, the caller included.
    pub(crate) fn is_there(&self) -> bool {
        let mut bytes = [0; 64];
        let len = self.load.read_at(&mut bytes, 0).unwrap_or(0);
        let text = bytes.get(..len).and_then(|bytes| str::from_utf8(bytes).ok());
        text.and_then(running).is_some_and(|running| running > self.core_count)
    }
}

/// Threads that want to run, of a line like `0.20 0.18 0.12 3/80 11206`.
fn running(load: &str) -> Option<u32> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// Cores of a list like `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let mut sum = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        sum += last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_line_is_read() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running(""), None);
        assert_eq!(running("0.20 0.18 0.12 -"), None);
    }

    #[test]
    fn cores_are_counted() {
        assert_eq!(
            [count("0"), count("0-3,8"), count("2-2"), count("")],
            [Some(1), Some(5), Some(1), None]
        );
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn this_machine_answers() {
        let Some(crowd) = Crowd::new() else { return };
        assert!(crowd.core_count > 0);
        crowd.is_there();
    }
}
