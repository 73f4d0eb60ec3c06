//! Runs of every round, and their results.

use std::path::PathBuf;

use super::{
    Effort,
    crowds::Crowds,
    packet::{Run, Transport},
    run::run,
    server::Part,
    side::{Program, WITHOUT_PEERS},
};
use crate::{
    file::side::{self as file, Engine},
    files::{TestFile, TestFiles},
    fio::Fio,
    machine::Cores,
    meter::Sample,
    options::{size_name, word},
    progress::Progress,
    report::Report,
    rounds::{self, Rounds, combine, interval_of, map, push, too_late},
    spread::Spread,
};

const KIB: usize = 1 << 10;
/// The sizes of the thesis.
const SIZES: [usize; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB];
/// Bytes that `file` has under way, unless these are too few packets.
const AT_DEVICE: usize = 4 << 20;
/// Bytes on the way over TCP to memory: with more, packets are out of the cache when they are
/// received.
const TO_MEMORY: usize = 2 << 20;
const DEPTH_MIN: usize = 8;
/// Blocking calls move so much less to a disk, to take about as long.
const PSYNC_PART: u64 = 8;
/// Servers that are compared with ours, on the same packets.
const PEERS: [(Program, &str); 2] = [(Program::Psync, "psync"), (Program::Glommio, "glommio")];

/// Measurements of one size beside one place. Rates are in MB/s. A machine's network is not the
/// same from one second to the next, so it is measured anew beside each place.
struct Cell {
    run: Run,
    path: PathBuf,
    suffix: String,
    /// Of the packets of a run, one in so many is left to blocking calls.
    psync_part: u64,
    request: Rounds<Sample>,
    integrated: Rounds<Sample>,
    file: Rounds<Sample>,
    network: Rounds<f64>,
    peers: [Rounds<f64>; PEERS.len()],
    /// With io_uring, at each depth.
    fio: Vec<Rounds<f64>>,
    /// One write after the other.
    fio_psync: Rounds<f64>,
    /// Of one long run.
    growth: Rounds<f64>,
}

/// One measurement of a round.
#[derive(Clone, Copy)]
enum Step {
    Request,
    Integrated,
    File,
    Network,
    /// By its index in [`PEERS`].
    Peer(usize),
    /// By the index of its depth.
    Fio(usize),
    FioPsync,
}

/// Runs everything, round by round, and reports it.
pub(super) fn measure(
    effort: &Effort,
    places: &TestFiles,
    cores: Option<Cores>,
    transport: Transport,
    report: &mut Report,
) {
    let of_size =
        |size| places.0.iter().map(move |place| Cell::new(place, size, transport, effort));
    let mut cells: Vec<_> = SIZES.into_iter().flat_map(of_size).collect();
    cells.retain(|cell| effort.only.wants(cell.names()));
    let crowds = (transport == Transport::Tcp).then(|| Crowds::new(effort));
    let mut crowds = crowds.filter(Crowds::is_wanted);
    let count = cells.len();
    let steps = count + usize::from(crowds.is_some());
    let mut progress = Progress::of("rpc", effort.rounds * steps);
    let cases = (0..effort.rounds).flat_map(|round| (0..steps).map(move |at| (round, at)));
    for (round, index) in cases {
        if effort.end.is_over() {
            break;
        }
        match cells.get_mut(index) {
            Some(cell) => cell.round(round, effort, cores),
            None => crowds.iter_mut().for_each(|crowds| crowds.round(round, places, cores)),
        }
        progress.step();
    }
    cells.iter().for_each(|cell| cell.report(report));
    crowds.iter().for_each(|crowds| crowds.report(report));
}

/// Reports that nothing can be measured, and why.
pub(super) fn skip(report: &mut Report, effort: &Effort, why: &str) {
    for size in SIZES {
        for yardstick in ["limit", "bound", "psync"] {
            let name = format!("integrated/{}/ucx:{yardstick}", size_name(size));
            if effort.only.wants([&name]) {
                report.ratio(name, Err(why.to_owned()));
            }
        }
    }
}

impl Cell {
    fn new(place: &TestFile, size: usize, transport: Transport, effort: &Effort) -> Self {
        let on_the_way = match transport {
            // A disk has one half written while the server receives the other.
            _ if !place.is_memory() => 2 * AT_DEVICE,
            Transport::Tcp => TO_MEMORY,
            Transport::Ucx => AT_DEVICE,
        };
        let depth = u32::try_from(depth(on_the_way, size)).unwrap_or(1);
        let count = effort.volume / size as u64;
        // A device takes them from the server's own buffers.
        let lends = place.is_memory();
        Self {
            run: Run { size, count, depth, clients: 1, span: effort.span, transport, lends },
            path: place.file(),
            suffix: place.suffix.clone(),
            psync_part: if place.is_memory() { 1 } else { PSYNC_PART },
            request: Ok(Vec::new()),
            integrated: Ok(Vec::new()),
            file: Ok(Vec::new()),
            network: only_over_tcp(transport),
            peers: PEERS.map(|_| only_over_tcp(transport)),
            fio: vec![Ok(Vec::new()); effort.depths(size).len()],
            fio_psync: Ok(Vec::new()),
            growth: Ok(Vec::new()),
        }
    }

    fn round(&mut self, round: usize, effort: &Effort, cores: Option<Cores>) {
        // What a ratio is made of is measured side by side, and nothing always before another.
        let mut steps = vec![Step::Request, Step::Integrated, Step::File];
        steps.push(Step::Network);
        steps.extend((0..self.fio.len()).map(Step::Fio));
        steps.extend((0..PEERS.len()).map(Step::Peer));
        steps.push(Step::FioPsync);
        if round % 2 == 1 {
            steps.reverse();
        }
        for step in steps {
            self.step(step, effort, cores);
        }
        if round == 0 {
            let size = self.run.size;
            let long = Run {
                count: Effort::by_size(effort.long_volumes, size) / size as u64,
                ..self.run.clone()
            };
            push(&mut self.growth, || {
                let sample = run(Program::Kakehi, Part::Integrated, &long, &self.path, cores)?;
                Ok(sample.growth as f64)
            });
        }
    }

    fn step(&mut self, step: Step, effort: &Effort, cores: Option<Cores>) {
        let (all, path) = (&self.run, &*self.path);
        let &Run { size, count, span, .. } = all;
        let less = Run { count: (count / self.psync_part).max(1), ..all.clone() };
        let core = cores.map(|cores| cores.daemon);
        let ours = |part| run(Program::Kakehi, part, all, path, cores);
        let fio = |engine, run: &Run, depth| {
            let count = run.count;
            let fio = Fio { pattern: "write", engine, size, count, depth, span, core };
            fio.run(path).map(|found| found.rate)
        };
        match step {
            Step::Request => push(&mut self.request, || ours(Part::Request)),
            Step::Integrated => push(&mut self.integrated, || ours(Part::Integrated)),
            Step::File => push(&mut self.file, || {
                let (engine, write, random, halfway) = (Engine::Auto, true, false, false);
                let (depth, path) = (depth(AT_DEVICE, size), path.to_owned());
                file::Args { engine, write, random, size, count, depth, span, halfway, path, core }
                    .run()
            }),
            Step::Network => push(&mut self.network, || {
                Ok(rate(all, &run(Program::Psync, Part::Network, all, path, cores)?))
            }),
            Step::Peer(index) => {
                let pairs = PEERS.iter().zip(&mut self.peers).nth(index);
                let Some((&(program, _), values)) = pairs else { return };
                // It receives into a buffer, as most programs do.
                let less = Run { lends: false, ..less };
                let all = if program == Program::Psync { &less } else { all };
                push(values, || {
                    if !program.is_built() {
                        return Err(WITHOUT_PEERS.to_owned());
                    }
                    Ok(rate(all, &run(program, Part::Integrated, all, path, cores)?))
                });
            }
            Step::Fio(index) => {
                let pairs = effort.depths(size).iter().zip(&mut self.fio).nth(index);
                let Some((&depth, values)) = pairs else { return };
                push(values, || fio("io_uring", all, depth));
            }
            Step::FioPsync => push(&mut self.fio_psync, || fio("psync", &less, 1)),
        }
    }

    /// At the depth that is best over all rounds: the best of a round would be the luckiest.
    fn best_fio(&self) -> &Rounds<f64> {
        best(&self.fio)
    }

    fn report(&self, report: &mut Report) {
        let (size, transport) = (size_name(self.run.size), word(self.run.transport));
        let end = &self.suffix;
        let request = rates(&self.run, &self.request);
        let name = |what: &str| format!("{what}/{size}/{transport}{end}");
        report.row(name("request"), "MB/s", spread(&request));
        report.row(name("request") + "/cpu", "us", self.cpu(&self.request));
        report.row(name("network"), "MB/s", spread(&self.network));
        let file = rates(&self.run, &self.file);
        report.row(format!("file/{size}{end}"), "MB/s", spread(&file));
        report.row(format!("file/{size}{end}/cpu"), "us", self.cpu(&self.file));
        report.row(format!("fio/{size}{end}"), "MB/s", spread(self.best_fio()));
        report.row(format!("fio_psync/{size}{end}"), "MB/s", spread(&self.fio_psync));
        self.report_integrated(report);
    }

    fn report_integrated(&self, report: &mut Report) {
        let (size, end) = (size_name(self.run.size), &self.suffix);
        let transport = word(self.run.transport);
        let name = |what: &str| format!("{what}/{size}/{transport}{end}");
        let ours = rates(&self.run, &self.integrated);
        report.row(name("integrated"), "MB/s", spread(&ours));
        report.row(name("integrated") + "/cpu", "us", self.cpu(&self.integrated));
        report.row(format!("rss_growth/{size}{end}"), "B", spread(&self.growth));
        report.ratio(name("integrated") + ":limit", by_least(&ours, &self.limits()));
        report.ratio(name("integrated") + ":bound", by_least(&ours, &self.bounds()));
        for ((_, peer), theirs) in PEERS.into_iter().zip(&self.peers) {
            report.row(name(peer), "MB/s", spread(theirs));
            report.ratio(name("integrated") + ":" + peer, ratio(&ours, theirs));
        }
    }

    /// Returns the names of its rows.
    fn names(&self) -> Vec<String> {
        let (size, end, transport) =
            (size_name(self.run.size), &self.suffix, word(self.run.transport));
        let carried = |what: &str| format!("{what}/{size}/{transport}{end}");
        let ours = carried("integrated");
        let rows = ["request", "network", "integrated"].into_iter();
        let rows = rows.chain(PEERS.map(|(_, peer)| peer)).map(carried);
        let ratios = ["limit", "bound"].into_iter().chain(PEERS.map(|(_, peer)| peer));
        let ratios = ratios.map(|other| format!("{ours}:{other}"));
        let local = ["file", "fio", "fio_psync", "rss_growth"];
        let local = local.map(|what| format!("{what}/{size}{end}"));
        let cpu = [carried("request"), ours.clone(), format!("file/{size}{end}")];
        let cpu = cpu.map(|row| row + "/cpu");
        rows.chain(ratios).chain(local).chain(cpu).collect()
    }

    /// Returns the upper bounds of one core, with this network, this storage, and this CPU time.
    fn limits(&self) -> [Rounds<f64>; 3] {
        let cpu = combine(&self.request, &self.file, |request, file| {
            rate_of(&self.run, request.core_ns + file.core_ns)
        });
        [rates(&self.run, &self.request), rates(&self.run, &self.file), cpu]
    }

    /// Returns the rates of other programs with the storage and with the network.
    fn bounds(&self) -> Vec<Rounds<f64>> {
        let request = rates(&self.run, &self.request);
        let network = (self.run.transport == Transport::Tcp).then(|| self.network.clone());
        [request, self.best_fio().clone()].into_iter().chain(network).collect()
    }

    /// Microseconds of its core a packet.
    fn cpu(&self, samples: &Rounds<Sample>) -> Result<Spread, String> {
        spread(&map(samples, |sample| sample.core_ns as f64 / 1e3 / self.run.count as f64))
    }
}

/// The median of values, between the smallest and the largest.
pub(super) fn spread(values: &Rounds<f64>) -> Result<Spread, String> {
    rounds::spread(values, |value| *value)
}

/// Those with the highest median.
pub(super) fn best(all: &[Rounds<f64>]) -> &Rounds<f64> {
    const NONE: &Rounds<f64> = &Ok(Vec::new());
    let median = |values: &&Rounds<f64>| spread(values).map_or(0.0, |spread| spread.median);
    all.iter().max_by(|one, other| median(one).total_cmp(&median(other))).unwrap_or(NONE)
}

/// Values of what exists over TCP alone.
fn only_over_tcp<T>(transport: Transport) -> Rounds<T> {
    match transport {
        Transport::Tcp => Ok(Vec::new()),
        Transport::Ucx => Err("over TCP only".to_owned()),
    }
}

/// Packets that are `len` bytes together.
fn depth(len: usize, size: usize) -> usize {
    (len / size).max(DEPTH_MIN)
}

fn rates(run: &Run, samples: &Rounds<Sample>) -> Rounds<f64> {
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

/// The median ratio, between the ends of its confidence interval.
pub(super) fn ratio(ours: &Rounds<f64>, other: &Rounds<f64>) -> Result<Spread, String> {
    interval_of(combine(ours, other, |ours, other| ours / other))
}

/// The ratio by the one of `others` that leaves the largest. The least of each round would be
/// the unluckiest, and often less than any of them.
fn by_least(ours: &Rounds<f64>, others: &[Rounds<f64>]) -> Result<Spread, String> {
    let ratios: Result<Vec<_>, _> = others.iter().map(|other| ratio(ours, other)).collect();
    let largest = ratios?.into_iter().max_by(|one, other| one.median.total_cmp(&other.median));
    largest.ok_or_else(too_late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine::Machine, report::Row};

    #[test]
    fn a_cell_is_found_by_every_name_that_it_reports() {
        let none = || "no".to_owned();
        let (size, count, depth, clients, span) = (4 * KIB, 1, 1, 1, 1);
        let (transport, lends) = (Transport::Tcp, false);
        let cell = Cell {
            run: Run { size, count, depth, clients, span, transport, lends },
            path: PathBuf::new(),
            suffix: "/tmpfs".to_owned(),
            psync_part: 1,
            request: Err(none()),
            integrated: Err(none()),
            file: Err(none()),
            network: Err(none()),
            peers: PEERS.map(|_| Err(none())),
            fio: vec![Err(none())],
            fio_psync: Err(none()),
            growth: Err(none()),
        };
        let mut report = Report::new("rpc", Machine::find(None), 1);
        cell.report(&mut report);
        let reported = report.rows.iter().map(|row| match row {
            Row::Measured { case, .. } | Row::Skipped { case, .. } => case.clone(),
        });
        let (mut reported, mut names): (Vec<_>, _) = (reported.collect(), cell.names());
        reported.sort();
        names.sort();
        assert_eq!(names, reported);
    }

    #[test]
    fn the_least_is_what_limits_in_most_rounds_not_the_unluckiest_of_each() {
        let ours = Ok(vec![3.0; 3]);
        let others = [Ok(vec![4.0, 4.0, 1.0]), Ok(vec![1.0, 6.0, 6.0])];
        assert_eq!(by_least(&ours, &others).map(|spread| spread.median), Ok(0.75));
        assert_eq!(by_least(&ours, &[Ok(vec![4.0]), Err("no disk".to_owned())]).ok(), None);
    }
}
