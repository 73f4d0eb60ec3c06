//! Cost of a run: time, CPU time of the whole process and of its core, memory.

use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::core_time::{idle_time, own_core};

/// Measures from the first packet to the last.
#[derive(Debug)]
pub(crate) struct Meter {
    count: u64,
    /// The core that a run is kept on.
    core: Option<usize>,
    start: Cell<Option<Start>>,
    /// At a tenth of the run.
    early_rss: Cell<Option<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    time: Instant,
    cpu: Duration,
    /// Of the core.
    idle: Option<Duration>,
}

/// Cost of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    /// Busy time of the process's one core, whoever used it; without such a core, `cpu_ns`.
    pub(crate) core_ns: u64,
    /// Growth of resident memory from a tenth of the run to its end, bytes.
    pub(crate) growth: u64,
    /// Resident memory at the end of the run, bytes.
    pub(crate) rss: u64,
    /// Packets of the connection that sent most by those of the one that sent least, thousandths.
    pub(crate) unfairness: u64,
}

impl Meter {
    /// For a run of `count` packets.
    pub(crate) fn new(count: u64) -> Self {
        Self { count, core: own_core(), start: Cell::new(None), early_rss: Cell::default() }
    }

    /// Starts the clock at the first call.
    pub(crate) fn start(&self) {
        if self.start.get().is_none() {
            let idle = self.core.and_then(idle_time); // Before the clock starts: it takes a while.
            self.start.set(Some(Start { time: Instant::now(), cpu: cpu_time(), idle }));
        }
    }

    /// Notes that `served` packets are served.
    pub(crate) fn served(&self, served: u64) {
        if served >= self.count.div_ceil(10) && self.early_rss.get().is_none() {
            self.early_rss.set(Some(rss()));
        }
    }

    /// Returns the cost so far.
    pub(crate) fn sample(&self) -> Sample {
        let (time, cpu, idle) = (Instant::now(), cpu_time(), self.core.and_then(idle_time));
        let end = Start { time, cpu, idle };
        let start = self.start.get().unwrap_or(end);
        let (wall, cpu) = (end.time - start.time, end.cpu.saturating_sub(start.cpu));
        let idle = start.idle.and_then(|idle| end.idle?.checked_sub(idle));
        let core = idle.map_or(cpu, |idle| wall.saturating_sub(idle));
        let rss = rss();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Sample {
            wall_ns: nanos(wall),
            cpu_ns: nanos(cpu),
            core_ns: nanos(core),
            growth: rss.saturating_sub(self.early_rss.get().unwrap_or(0)),
            rss,
            unfairness: 1000,
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident memory of this process, bytes.
fn rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_after_a_tenth_of_a_run_is_growth() {
        let meter = Meter::new(10);
        meter.start();
        meter.served(1);
        // Far more than other tests of this process give back meanwhile.
        let touched = std::hint::black_box(vec![1_u8; 128 << 20]);
        assert!(meter.sample().growth >= touched.len() as u64 / 2);
    }
}
