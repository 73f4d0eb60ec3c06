//! Reading and writing in every size of the 2012 paper's figure 4, and the burst.

use super::{
    Effort,
    places::{
        Places,
        Where::{self, Disk, Memory},
        to_read, to_write,
    },
    sides::{Bench, HYBRID, Idle, Players, Samples, per_call, ratio},
};
use crate::{
    job::{
        Job,
        Verb::{self, Burst, Read, Write},
    },
    options::{Only, size_name, word},
    report::Report,
    rounds::spread,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The sizes of the figure, those with a target first: `--quick` may not reach the last.
const SIZES: [usize; 9] =
    [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB];
/// Bytes written in 4 KiB calls: several times the longest staging log.
const SUSTAINED: usize = 64 * MIB;
/// Bytes of a burst: half the longest staging log.
const BURST: usize = 4 * MIB;
pub(super) const BURST_NAMES: [&str; 4] = [
    "write/4KiB/native/burst",
    "write/4KiB/hybrid/burst",
    "native/cpu_ns/4KiB",
    "client/cpu_ns/4KiB",
];

/// One case: operation, size in bytes, and place.
type Cell = (Verb, usize, Where);

/// Measured with the other policy under either daemon as well: what the targets are stated for.
const BOTH: [Cell; 10] = [
    (Write, 4 * KIB, Memory),
    (Read, 4 * KIB, Memory),
    (Write, 16 * MIB, Memory),
    (Read, 16 * MIB, Memory),
    (Write, 4 * KIB, Disk),
    (Read, 4 * KIB, Disk),
    (Read, 64 * KIB, Disk),
    (Read, MIB, Disk),
    (Read, 16 * MIB, Disk),
    (Read, 256 * MIB, Disk),
];

/// The cells that are wanted under a daemon that idles so, and the sides that are, besides
/// `native`: every one for `delegate` where it spins, for `hybrid` where it parks.
pub(super) fn wanted(idle: Idle, places: &Places, only: &Only) -> Vec<(Cell, Players)> {
    let players = |cell: Cell| {
        let (place, wants) = (places.name(cell.2), |names: [String; 2]| only.wants(names));
        let wants = |side| wants(names(side, cell, place, idle));
        let is_both = BOTH.contains(&cell);
        let hybrid = (is_both || idle != Idle::Spin) && wants("hybrid");
        let delegate = (is_both || idle == Idle::Spin) && wants("delegate");
        let [native, _] = names("native", cell, place, idle);
        (hybrid || delegate || only.wants([native])).then_some((cell, Players { hybrid, delegate }))
    };
    cells().filter_map(players).collect()
}

/// Every size, written and read, on both file systems; first what the targets are stated for.
fn cells() -> impl Iterator<Item = Cell> {
    let of_size = |size| {
        let places = [Disk, Memory].into_iter();
        places.flat_map(move |place| [(Write, size, place), (Read, size, place)])
    };
    let rest = SIZES.into_iter().flat_map(of_size).filter(|cell| !BOTH.contains(cell));
    BOTH.into_iter().chain(rest)
}

/// One side of a cell, and what it is compared with.
struct Side<'a> {
    name: &'a str,
    /// Bytes of a round.
    volume: f64,
    native: &'a Samples,
    ours: &'a Samples,
}

impl Bench<'_> {
    /// Measures cells: a row per side, and a ratio per delegated side.
    pub(super) fn cells(
        &mut self,
        report: &mut Report,
        effort: &Effort,
        cells: &[(Cell, Players)],
    ) {
        for &(cell, players) in cells {
            let job = self.job(effort, cell);
            let samples = match &job {
                Ok(job) => self.measure(effort, job, players),
                Err(why) => [(); 3].map(|()| Err(why.clone())),
            };
            let [native, hybrid, delegate] = &samples;
            let volume = job.as_ref().map_or(0, Job::volume) as f64;
            let side = |name, ours| Side { name, volume, native, ours };
            self.report(report, cell, &side("native", native));
            if players.hybrid {
                self.report(report, cell, &side("hybrid", hybrid));
            }
            if players.delegate {
                self.report(report, cell, &side("delegate", delegate));
            }
        }
    }

    /// Reports one side of a cell.
    fn report(&self, report: &mut Report, cell: Cell, side: &Side<'_>) {
        let Side { name: side, volume, native, ours } = *side;
        let [row, ratio_name] = names(side, cell, self.places.name(cell.2), self.idle);
        // Bytes a nanosecond are gigabytes a second.
        let rate = spread(ours, |sample| 1e3 * volume / sample.wall_ns as f64);
        report.row(row, "MB/s", rate);
        if side != "native" {
            report.ratio(ratio_name, ratio(native, ours));
        }
    }

    /// Measures writes that all fit in the staging log, and the CPU time they take.
    pub(super) fn burst(&mut self, report: &mut Report, effort: &Effort) {
        let job = self.job(effort, (Write, 4 * KIB, Disk)).map(|mut job| {
            // The log grows with what a file needs: the next file starts with it.
            self.prepare(&job);
            (job.verb, job.count) = (Burst, BURST / job.size);
            job
        });
        let samples = match &job {
            Ok(job) => self.measure(effort, job, HYBRID),
            Err(why) => [(); 3].map(|()| Err(why.clone())),
        };
        let [native, hybrid, _] = &samples;
        let [of_native, of_hybrid, native_cpu, client_cpu] = BURST_NAMES;
        report.ratio(of_hybrid, ratio(native, hybrid));
        let Ok(job) = &job else { return };
        for (name, samples) in [(of_native, native), (of_hybrid, hybrid)] {
            report.row(name, "ns", per_call(samples, job, |sample| sample.wall_ns));
        }
        for (name, samples) in [(native_cpu, native), (client_cpu, hybrid)] {
            report.row(name, "ns", per_call(samples, job, |sample| sample.cpu_ns));
        }
    }

    fn job(&self, effort: &Effort, (verb, size, place): Cell) -> Result<Job, String> {
        let place = self.places.get(place)?;
        let volume = if (verb, size) == (Write, 4 * KIB) { SUSTAINED } else { effort.volume };
        let path = if verb == Read { to_read(place) } else { to_write(place) };
        Ok(Job { verb, size, count: (volume / size).max(1), path })
    }
}

/// The names of a side's row and ratio; `native` has the row alone.
fn names(side: &str, (verb, size, place): Cell, place_name: &str, idle: Idle) -> [String; 2] {
    let (start, idle) =
        (format!("{}/{}/{side}", word(verb), size_name(size)), idle_suffix(side, idle));
    let kind = ratio_suffix(side, (verb, size, place), place_name);
    [format!("{start}/{place_name}{idle}"), format!("{start}{kind}{idle}")]
}

/// Suffix of a ratio's name: empty on the file system the targets are stated for, which is the
/// disk's for `hybrid` and the tmpfs for `delegate`.
fn ratio_suffix(side: &str, (verb, size, place): Cell, place_name: &str) -> String {
    let usual = if side == "delegate" { Memory } else { Disk };
    match (verb, size) {
        _ if place != usual => format!("/{place_name}"),
        (Write, 4096) if side == "hybrid" => "/sustained".to_owned(),
        _ => String::new(),
    }
}

/// Suffix of a case's name when the daemon does not idle as usual for this side.
fn idle_suffix(side: &str, idle: Idle) -> &'static str {
    match (side, idle) {
        ("delegate", Idle::Park) => "/park",
        ("delegate", Idle::Spin) | (_, Idle::Park) => "",
        (_, Idle::Spin) => "/spin",
        (_, Idle::Poll) => "/poll-idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_named_as_their_targets() {
        let name = |side, cell: Cell| {
            let place = if cell.2 == Disk { "ext4" } else { "tmpfs" };
            let kind = ratio_suffix(side, cell, place);
            format!("{}/{}/{side}{kind}", word(cell.0), size_name(cell.1))
        };
        for (expected, side, cell) in [
            ("write/4KiB/hybrid/sustained", "hybrid", (Write, 4 * KIB, Disk)),
            ("write/4KiB/hybrid/tmpfs", "hybrid", (Write, 4 * KIB, Memory)),
            ("write/256MiB/hybrid", "hybrid", (Write, 256 * MIB, Disk)),
            ("read/4KiB/hybrid", "hybrid", (Read, 4 * KIB, Disk)),
            ("read/4KiB/delegate", "delegate", (Read, 4 * KIB, Memory)),
            ("write/16MiB/delegate", "delegate", (Write, 16 * MIB, Memory)),
            ("write/16MiB/delegate/ext4", "delegate", (Write, 16 * MIB, Disk)),
        ] {
            assert_eq!(name(side, cell), expected);
        }
    }

    #[test]
    fn every_size_of_the_figure_is_written_and_read_on_both_file_systems() {
        let found: Vec<_> = cells().collect();
        assert_eq!(found.len(), 36);
        for size in (0..9).map(|step| (4 * KIB) << (2 * step)) {
            for (verb, place) in [(Write, Disk), (Read, Disk), (Write, Memory), (Read, Memory)] {
                assert!(found.contains(&(verb, size, place)), "{verb:?} {size} {place:?}");
            }
        }
    }
}
