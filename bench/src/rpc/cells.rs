//! What is run in every round, and what follows from it.

use std::path::Path;

use super::{
    Effort,
    crowds::Crowds,
    packet::{Run, Transport},
    run::{name, run},
    server::Part,
    side::{Program, WITHOUT_PEERS},
};
use crate::{
    file::side::{self as file, Engine},
    files::{Place, Places},
    fio::Fio,
    machine::Cores,
    meter::Sample,
    report::Report,
    spread::Spread,
};

const KIB: usize = 1 << 10;
/// The sizes of the thesis.
const SIZES: [usize; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB];
/// Bytes that may be on the way, unless these are too few or too many packets.
const ON_THE_WAY: usize = 4 << 20;
const DEPTHS: [usize; 2] = [8, 256];
/// A blocking server moves so much less, to take about as long.
const PSYNC_PART: u64 = 8;
/// Servers that are compared with ours, on the same packets.
const PEERS: [(Program, &str); 4] = [
    (Program::Psync, "psync"),
    (Program::Glommio, "glommio"),
    (Program::Tokio, "tokio"),
    (Program::Compio, "compio"),
];

/// Of one case, one a round, or why there are none.
pub(super) type Values<T> = Result<Vec<T>, String>;

/// What was measured of one size: the same index is the same round. Rates are in MB/s.
struct Cell {
    run: Run,
    request: Values<Sample>,
    network: Values<f64>,
    stored: Vec<Stored>,
}

/// What was measured of one size in one place.
struct Stored {
    suffix: String,
    file: Values<Sample>,
    integrated: Values<Sample>,
    peers: [Values<f64>; PEERS.len()],
    /// With io_uring, at its best depth.
    fio: Values<f64>,
    /// One write after the other.
    fio_psync: Values<f64>,
}

/// Runs everything, round by round, and reports it.
pub(super) fn measure(
    effort: &Effort,
    places: &Places,
    cores: Option<Cores>,
    transport: Transport,
    report: &mut Report,
) {
    let mut cells: Vec<_> = SIZES.map(|size| Cell::new(effort, places, size, transport)).into();
    let mut crowds = (transport == Transport::Tcp).then(|| Crowds::new(effort));
    let cases = (0..effort.rounds).flat_map(|_| 0..=SIZES.len());
    for index in cases {
        if effort.is_used_up() {
            break;
        }
        match cells.get_mut(index) {
            Some(cell) => cell.round(effort, places, cores),
            None => crowds.iter_mut().for_each(|crowds| crowds.round(places, cores)),
        }
    }
    cells.iter().for_each(|cell| cell.report(report));
    crowds.iter().for_each(|crowds| crowds.report(report));
}

/// Reports that nothing can be measured, and why.
pub(super) fn skip(report: &mut Report, why: &str) {
    for size in SIZES {
        for yardstick in ["limit", "bound", "psync"] {
            let name = format!("integrated/{}/ucx:{yardstick}", size_name(size));
            report.ratio(name, Err(why.to_owned()));
        }
    }
}

impl Cell {
    fn new(effort: &Effort, places: &Places, size: usize, transport: Transport) -> Self {
        let [least, most] = DEPTHS;
        let depth = u32::try_from((ON_THE_WAY / size).clamp(least, most)).unwrap_or(1);
        let count = effort.volume(size) / size as u64;
        let run = Run { size, count, depth, clients: 1, span: effort.span, transport };
        let stored = places.0.iter().map(|place| Stored::new(place, transport)).collect();
        Self { run, request: Ok(Vec::new()), network: only_over_tcp(transport), stored }
    }

    fn round(&mut self, effort: &Effort, places: &Places, cores: Option<Cores>) {
        let Some(any) = places.0.first().map(Place::file) else { return };
        let run = &self.run;
        push(&mut self.request, || self::run(Program::Kakehi, Part::Request, run, &any, cores));
        push(&mut self.network, || {
            let sample = self::run(Program::Psync, Part::Network, run, &any, cores)?;
            Ok(rate(run, &sample))
        });
        for (place, stored) in places.0.iter().zip(&mut self.stored) {
            stored.round(run, effort, &place.file(), cores);
        }
    }

    fn report(&self, report: &mut Report) {
        let size = size_name(self.run.size);
        let request = rates(&self.run, &self.request);
        let transport = name(self.run.transport);
        report.row(format!("request/{size}/{transport}"), "MB/s", spread(&request));
        report.row(format!("request/{size}/{transport}/cpu"), "us", self.cpu(&self.request));
        report.row(format!("network/{size}/{transport}"), "MB/s", spread(&self.network));
        for stored in &self.stored {
            let end = &stored.suffix;
            let file = rates(&self.run, &stored.file);
            report.row(format!("file/{size}{end}"), "MB/s", spread(&file));
            report.row(format!("file/{size}{end}/cpu"), "us", self.cpu(&stored.file));
            report.row(format!("fio/{size}{end}"), "MB/s", spread(&stored.fio));
            report.row(format!("fio_psync/{size}{end}"), "MB/s", spread(&stored.fio_psync));
            self.report_integrated(report, stored);
        }
    }

    fn report_integrated(&self, report: &mut Report, stored: &Stored) {
        let (size, end) = (size_name(self.run.size), &stored.suffix);
        let transport = name(self.run.transport);
        let name = |what: &str| format!("{what}/{size}/{transport}{end}");
        let ours = rates(&self.run, &stored.integrated);
        let ratio =
            |other: &Values<f64>| spread(&combine(&ours, other, |ours, other| ours / other));
        report.row(name("integrated"), "MB/s", spread(&ours));
        report.row(name("integrated") + "/cpu", "us", self.cpu(&stored.integrated));
        let growth = map(&stored.integrated, |sample| sample.growth as f64);
        report.row(format!("rss_growth/{size}{end}"), "B", spread(&growth));
        report.ratio(name("integrated") + ":limit", ratio(&self.limit(stored)));
        report.ratio(name("integrated") + ":bound", ratio(&self.bound(stored)));
        for ((_, peer), theirs) in PEERS.into_iter().zip(&stored.peers) {
            report.row(name(peer), "MB/s", spread(theirs));
            report.ratio(name("integrated") + ":" + peer, ratio(theirs));
        }
    }

    /// What one thread can reach with this network, this storage, and this CPU time.
    fn limit(&self, stored: &Stored) -> Values<f64> {
        let (request, file) = (rates(&self.run, &self.request), rates(&self.run, &stored.file));
        let cpu = combine(&self.request, &stored.file, |request, file| {
            rate_of(&self.run, request.cpu_ns + file.cpu_ns)
        });
        combine(&combine(&request, &file, f64::min), &cpu, f64::min)
    }

    /// What others reach with the storage and with the network.
    fn bound(&self, stored: &Stored) -> Values<f64> {
        let request = rates(&self.run, &self.request);
        let network = match self.run.transport {
            Transport::Tcp => combine(&request, &self.network, f64::min),
            Transport::Ucx => request,
        };
        combine(&network, &stored.fio, f64::min)
    }

    /// Microseconds of CPU time a packet.
    fn cpu(&self, samples: &Values<Sample>) -> Result<Spread, String> {
        spread(&map(samples, |sample| sample.cpu_ns as f64 / 1e3 / self.run.count as f64))
    }
}

impl Stored {
    fn new(place: &Place, transport: Transport) -> Self {
        Self {
            suffix: place.suffix.clone(),
            file: Ok(Vec::new()),
            integrated: Ok(Vec::new()),
            peers: PEERS.map(|_| only_over_tcp(transport)),
            fio: Ok(Vec::new()),
            fio_psync: Ok(Vec::new()),
        }
    }

    fn round(&mut self, all: &Run, effort: &Effort, path: &Path, cores: Option<Cores>) {
        let less = Run { count: (all.count / PSYNC_PART).max(1), ..all.clone() };
        push(&mut self.file, || {
            let &Run { size, count, span, .. } = all;
            let (depth, core) = (all.depth as usize, cores.map(|cores| cores.daemon));
            let (engine, write, random, path) = (Engine::Auto, true, false, path.to_owned());
            file::Args { engine, write, random, size, count, depth, span, path, core }.run()
        });
        push(&mut self.integrated, || run(Program::Kakehi, Part::Integrated, all, path, cores));
        for ((program, _), values) in PEERS.into_iter().zip(&mut self.peers) {
            let all = if program == Program::Psync { &less } else { all };
            push(values, || {
                if !program.is_built() {
                    return Err(WITHOUT_PEERS.to_owned());
                }
                Ok(rate(all, &run(program, Part::Integrated, all, path, cores)?))
            });
        }
        let fio = |engine, run: &Run, depth| {
            let &Run { size, count, span, .. } = run;
            let core = cores.map(|cores| cores.daemon);
            let found = Fio { pattern: "write", engine, size, count, depth, span, core }.run(path);
            found.map(|found| found.rate)
        };
        push(&mut self.fio, || {
            let rates = effort.depths(all.size).iter().map(|&depth| fio("io_uring", all, depth));
            let rates: Result<Vec<_>, _> = rates.collect();
            Ok(rates?.into_iter().fold(0.0, f64::max))
        });
        push(&mut self.fio_psync, || fio("psync", &less, 1));
    }
}

/// Values of what exists over TCP alone.
fn only_over_tcp<T>(transport: Transport) -> Values<T> {
    match transport {
        Transport::Tcp => Ok(Vec::new()),
        Transport::Ucx => Err("over TCP only".to_owned()),
    }
}

/// Measures once more, unless it failed before.
pub(super) fn push<T>(values: &mut Values<T>, measure: impl FnOnce() -> Result<T, String>) {
    if let Ok(list) = values {
        match measure() {
            Ok(value) => list.push(value),
            Err(why) => *values = Err(why),
        }
    }
}

fn rates(run: &Run, samples: &Values<Sample>) -> Values<f64> {
    map(samples, |sample| rate(run, sample))
}

/// MB/s.
pub(super) fn rate(run: &Run, sample: &Sample) -> f64 {
    rate_of(run, sample.wall_ns)
}

/// MB/s of a run that took so long: bytes a nanosecond are gigabytes a second.
fn rate_of(run: &Run, nanos: u64) -> f64 {
    1e3 * (run.count * run.size as u64) as f64 / nanos as f64
}

pub(super) fn map<T, U>(values: &Values<T>, value: impl Fn(&T) -> U) -> Values<U> {
    values.as_ref().map(|list| list.iter().map(value).collect()).map_err(String::clone)
}

/// Round by round.
fn combine<T: Copy, U: Copy, V>(
    one: &Values<T>,
    other: &Values<U>,
    value: impl Fn(T, U) -> V,
) -> Values<V> {
    let one = one.as_ref().map_err(String::clone)?;
    let other = other.as_ref().map_err(String::clone)?;
    Ok(one.iter().zip(other).map(|(one, other)| value(*one, *other)).collect())
}

pub(super) fn spread(values: &Values<f64>) -> Result<Spread, String> {
    let values = values.as_ref().map_err(String::clone)?;
    Spread::of(values.iter().copied()).ok_or_else(|| "the time of --quick was used up".to_owned())
}

/// A size as in the cases: whole KiB or MiB.
fn size_name(size: usize) -> String {
    if size >= KIB * KIB {
        format!("{}MiB", size / (KIB * KIB))
    } else {
        format!("{}KiB", size / KIB)
    }
}
