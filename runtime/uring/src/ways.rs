//! By which way long streams are written to a file system: through the page cache or past it.
//!
//! The page cache takes a burst at the speed of memory, so streams begin there. Once the kernel has
//! more dirty pages than it wants, or makes writers wait, a stream goes no faster than its device,
//! and the copy only costs the core. Then a stretch by each way is measured, and the cheaper one is
//! taken as long as data comes.
//!
//! A stretch costs its time and the CPU time of this process, by KiB. Stretches through the page
//! cache are measured only under that pressure: before it, the device has not been paid for. Those
//! past it are measured only without: until dirty pages are written, they share the device.

use std::{fs, time::Duration};

use executor::Instant;

/// Bytes of a stretch, of all long streams to a file system.
const STRETCH: u64 = 16 << 20;
/// Stretches from which on an estimate counts.
const SAMPLES: u32 = 4;
/// Stretches under pressure until a way that was dearer is tried again.
const RETRY: u32 = 64;
/// A pause after which streams begin in the page cache again.
const REST: Duration = Duration::from_secs(10);
/// File systems of which something is learnt.
const SYSTEMS_MAX: usize = 16;
/// A step is this part of the estimate.
const STEP: u64 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    #[default]
    Cached,
    Direct,
}

/// Time spent so far.
#[derive(Clone, Copy, Debug)]
struct Spent {
    now: Instant,
    /// CPU time of this process.
    cpu: Duration,
}

/// The ways of all file systems.
#[derive(Debug, Default)]
pub(crate) struct Ways(Vec<System>);

#[derive(Debug, Default)]
struct System {
    device: u64,
    way: Way,
    /// Bytes since the stretch began.
    len: u64,
    /// When that was; `None`: the stretch is not measured, as it has begun by the other way.
    start: Option<Spent>,
    last: Instant,
    cached: Estimate,
    direct: Estimate,
    /// Stretches under pressure since the direct way was given up.
    since: u32,
}

impl Ways {
    /// Notes a long stream's write of `len` bytes, and returns its way. At the end of a stretch it
    /// asks for the CPU time of this process, and whether writers wait for the device.
    pub(crate) fn take(
        &mut self,
        device: u64,
        len: u64,
        now: Instant,
        cpu: impl FnOnce() -> Duration,
        is_pressed: impl FnOnce() -> bool,
    ) -> Way {
        let Some(system) = self.find(device) else { return Way::Cached };
        if now.saturating_since(system.last) > REST {
            (system.way, system.start, system.len) = (Way::Cached, None, 0);
        }
        system.last = now;
        system.len += len;
        if system.len >= STRETCH {
            system.end_stretch(Spent { now, cpu: cpu() }, is_pressed());
        }
        system.way
    }

    fn find(&mut self, device: u64) -> Option<&mut System> {
        let systems = &mut self.0;
        if systems.iter().all(|system| system.device != device) && systems.len() < SYSTEMS_MAX {
            systems.push(System { device, ..System::default() });
        }
        systems.iter_mut().find(|system| system.device == device)
    }
}

impl System {
    fn end_stretch(&mut self, spent: Spent, is_pressed: bool) {
        let len = std::mem::take(&mut self.len);
        let cost = self.start.replace(spent).map(|start| cost(start, spent, len));
        match self.way {
            Way::Cached if is_pressed => {
                self.cached.learn(cost);
                self.since = self.since.saturating_add(1);
                if self.direct.get() > self.cached.get() && self.since >= RETRY {
                    self.direct = Estimate::default();
                }
                if self.cached.get().is_some() && self.direct.get() <= self.cached.get() {
                    (self.way, self.start) = (Way::Direct, None);
                }
            }
            Way::Direct if !is_pressed => {
                self.direct.learn(cost);
                if self.direct.get() > self.cached.get() {
                    (self.way, self.start, self.since) = (Way::Cached, None, 0);
                }
            }
            _ => {}
        }
    }
}

/// Nanoseconds a KiB.
fn cost(start: Spent, end: Spent, len: u64) -> u64 {
    let time = end.now.saturating_since(start.now) + end.cpu.saturating_sub(start.cpu);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / (len >> 10).max(1)
}

/// The least of the first samples, and then a step up or down with each: a pause of the clients
/// moves it no more than any other sample.
#[derive(Debug, Default)]
struct Estimate {
    value: u64,
    count: u32,
}

impl Estimate {
    fn learn(&mut self, sample: Option<u64>) {
        let Some(sample) = sample else { return };
        let step = self.value.div_ceil(STEP);
        self.value = match self.count {
            0 => sample,
            1..SAMPLES => sample.min(self.value),
            _ if sample > self.value => (self.value + step).min(sample),
            _ => self.value.saturating_sub(step).max(sample),
        };
        self.count = self.count.saturating_add(1);
    }

    fn get(&self) -> Option<u64> {
        (self.count >= SAMPLES).then_some(self.value)
    }
}

/// True if the kernel writes dirty pages because there are too many.
pub(crate) fn memory_is_dirty() -> bool {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    is_dirty(&text).unwrap_or(false)
}

fn is_dirty(vmstat: &str) -> Option<bool> {
    let of = |name: &str| {
        let mut lines = vmstat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(found, _)| *found == name)?.1.parse::<u64>().ok()
    };
    let dirty = of("nr_dirty")? + of("nr_writeback")?;
    Some(dirty >= of("nr_dirty_background_threshold")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A file system, and what a stretch by each way takes.
    struct World {
        ways: Ways,
        now: Instant,
        cpu: Duration,
        cached: Duration,
        direct: Duration,
        is_pressed: bool,
    }

    impl World {
        fn new(cached: Duration, direct: Duration) -> Self {
            let (now, cpu) = (Instant::default() + MS, Duration::ZERO);
            Self { ways: Ways::default(), now, cpu, cached, direct, is_pressed: true }
        }

        /// The way after so many stretches.
        fn after(&mut self, count: u32) -> Way {
            let mut way = Way::Cached;
            for _ in 0..count {
                let (cpu, is_pressed) = (self.cpu, self.is_pressed);
                way = self.ways.take(7, STRETCH, self.now, || cpu, || is_pressed);
                let took = if way == Way::Direct { self.direct } else { self.cached };
                (self.now, self.cpu) = (self.now + took, self.cpu + took / 2);
            }
            way
        }
    }

    #[test]
    fn burst_that_memory_takes_stays_in_the_page_cache() {
        let mut world = World::new(10 * MS, 5 * MS);
        world.is_pressed = false;
        assert_eq!(world.after(1000), Way::Cached);
    }

    #[test]
    fn cheaper_way_is_taken_while_the_device_is_waited_for() {
        let mut world = World::new(30 * MS, 20 * MS);
        assert_eq!(world.after(SAMPLES), Way::Cached, "too little is known");
        assert_eq!(world.after(1), Way::Direct);
        world.is_pressed = false;
        assert_eq!(world.after(1000), Way::Direct, "and goes on after that");
        world.direct = 40 * MS;
        assert_eq!(world.after(10), Way::Cached, "until it is dearer");
    }

    #[test]
    fn dearer_way_is_tried_again_now_and_then() {
        let mut world = World::new(20 * MS, 30 * MS);
        assert_eq!(world.after(SAMPLES + 1), Way::Direct);
        world.is_pressed = false;
        assert_eq!(world.after(SAMPLES + 1), Way::Cached);
        assert_eq!(world.after(RETRY), Way::Cached, "nobody waits");
        world.is_pressed = true;
        assert_eq!(world.after(RETRY - 1), Way::Cached);
        assert_eq!(world.after(1), Way::Direct);
    }

    #[test]
    fn streams_begin_in_the_page_cache_after_a_pause() {
        let mut world = World::new(30 * MS, 20 * MS);
        assert_eq!(world.after(SAMPLES + 1), Way::Direct);
        world.is_pressed = false;
        world.now = world.now + 2 * REST;
        assert_eq!(world.after(1), Way::Cached);
        world.is_pressed = true;
        assert_eq!(world.after(1), Way::Direct, "what is known stays known");
    }

    #[test]
    fn dirty_pages_are_compared_with_what_the_kernel_wants() {
        let text = |dirty| {
            format!("nr_dirty {dirty}\nnr_writeback 5\nnr_dirty_background_threshold 100\n")
        };
        assert_eq!(is_dirty(&text(94)), Some(false));
        assert_eq!(is_dirty(&text(95)), Some(true));
        assert_eq!(is_dirty("nr_dirty 1\n"), None);
    }
}
