//! The three sides of every comparison, under one daemon, and the same with the cores the other way
//! round: where a host gives two cores different speeds, by what it runs beside them, a ratio would
//! compare those.

use std::time::Instant;

use super::{
    CASE_TIME, Effort,
    places::{Places, Where, remove, to_write},
};
use crate::{
    job::{Job, Sample, Verb},
    kakehi::{Daemon, Environment},
    machine::Cores,
    options::word,
    rounds::{self, Rounds},
    side::Side,
    spread::Spread,
};

/// Delegates every file.
const EVERYTHING: &str = "/**=delegate";

/// The daemon's idle policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Idle {
    Park,
    Spin,
    #[value(name = "poll-idle")]
    Poll,
}

/// Participants of a case besides `native`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Players {
    pub(super) hybrid: bool,
    pub(super) delegate: bool,
}

/// `hybrid` alone against `native`.
pub(super) const HYBRID: Players = Players { hybrid: true, delegate: false };

/// Samples of one side.
pub(super) type Samples = Rounds<Sample>;

/// The sides, once for each way round of the cores.
pub(super) struct Bench<'a> {
    pub(super) places: &'a Places,
    fleets: Vec<Fleet>,
    pub(super) idle: Idle,
}

/// The sides and their daemon. Workers end first.
pub(super) struct Fleet {
    /// `native`, `hybrid`, `delegate`.
    pub(super) sides: [Side; 3],
    daemon: Result<Daemon, String>,
}

impl<'a> Bench<'a> {
    /// Starts daemons with this idle policy, and the workers. What fails is said by every case
    /// that needs it.
    pub(super) fn start(idle: Idle, places: &'a Places, cores: Option<Cores>) -> Self {
        let ways = match cores {
            Some(cores) => vec![Some(cores), Some(cores.swapped())],
            None => vec![None],
        };
        let fleets = ways.into_iter().map(|cores| {
            let fleet = Fleet::start(idle, places, cores);
            fleet.pause();
            fleet
        });
        Self { places, fleets: fleets.collect(), idle }
    }

    /// The fleet whose turn it is. The daemons of the others are stopped.
    fn turn(&mut self, round: usize) -> Result<&mut Fleet, String> {
        let turn = round % self.fleets.len().max(1);
        self.fleets.iter().for_each(Fleet::pause);
        let fleet = self.fleets.get_mut(turn).ok_or("there is no daemon")?;
        fleet.resume();
        Ok(fleet)
    }

    /// Measures `job` on the sides in turn, so that whatever disturbs the machine disturbs all, and
    /// every other round with the other way round of the cores. A side that does not take part has
    /// no sample.
    pub(super) fn measure(&mut self, effort: &Effort, job: &Job, players: Players) -> [Samples; 3] {
        if let Err(why) = effort.end.check() {
            return [(); 3].map(|()| Err(why.clone()));
        }
        let mut samples = [const { Samples::Ok(Vec::new()) }; 3];
        let start = Instant::now();
        let warm_up = self.fleets.len();
        for round in 0..warm_up + effort.rounds_max {
            let is_even = round % warm_up.max(1) == 0;
            let is_enough = round >= warm_up + effort.rounds && start.elapsed() >= CASE_TIME;
            if is_even && is_enough {
                break;
            }
            let fleet = match self.turn(round) {
                Ok(fleet) => fleet,
                Err(why) => return [(); 3].map(|()| Err(why.clone())),
            };
            let plays = [true, players.hybrid, players.delegate];
            let turns = fleet.sides.iter_mut().zip(&mut samples).zip(plays);
            for ((side, samples), _) in turns.filter(|(_, plays)| *plays) {
                let Ok(list) = samples else { continue };
                match run(side, job) {
                    // The first rounds are to touch buffers and fill tables.
                    Ok(_) if round < warm_up => {}
                    Ok(sample) => list.push(sample),
                    Err(why) => *samples = Err(why),
                }
            }
        }
        samples
    }

    /// Has all sides do a job that is not measured.
    pub(super) fn prepare(&mut self, job: &Job) {
        for round in 0..self.fleets.len() {
            let Ok(fleet) = self.turn(round) else { continue };
            for side in &mut fleet.sides {
                // What goes wrong here is kept by the side, or met again when it is measured.
                run(side, job).ok();
            }
        }
    }

    /// Time of a request without I/O, ns: of means of `count` in a row, many a round.
    pub(super) fn round_trip(&mut self, effort: &Effort, count: usize) -> Result<Spread, String> {
        let fleet = self.turn(0)?;
        let folder = fleet.daemon.as_ref().map_err(String::clone)?.folder();
        let job = Job { verb: Verb::Nothing, size: 0, count, path: folder };
        let [native, ..] = &mut fleet.sides;
        native.run(&job)?;
        let samples: Result<Vec<_>, _> =
            (0..effort.rounds * 20).map(|_| native.run(&job)).collect();
        per_call(&samples, &job, |sample| sample.wall_ns)
    }
}

impl Drop for Bench<'_> {
    /// A worker that ends says so to its daemon.
    fn drop(&mut self) {
        self.fleets.iter().for_each(Fleet::resume);
    }
}

impl Fleet {
    fn start(idle: Idle, places: &Places, cores: Option<Cores>) -> Self {
        let daemon = Daemon::start(&word(idle), cores.map(|cores| cores.daemon));
        let daemon = daemon.map_err(|why| format!("{why:#}"));
        let core = cores.map(|cores| cores.client);
        let environment = |rule| {
            let daemon = daemon.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
            daemon.environment(rule)
        };
        let sides = [
            Side::start(Ok(Environment::new()), core),
            Side::start(environment(None), core),
            Side::start(environment(Some(EVERYTHING)), core),
        ];
        let mut fleet = Self { sides, daemon };
        fleet.check_delegation(places);
        fleet
    }

    /// Gives up a delegated side when nothing it writes reaches the daemon: its ratios would
    /// compare the kernel with itself.
    fn check_delegation(&mut self, places: &Places) {
        let Ok(daemon) = &self.daemon else { return };
        let places = [Where::Disk, Where::Memory].map(|place| places.get(place));
        for side in self.sides.iter_mut().skip(1) {
            for place in places.iter().flatten() {
                let path = to_write(place);
                let job = Job { verb: Verb::Write, size: 4096, count: 1024, path };
                let before = daemon.bytes_delegated().unwrap_or(0);
                // What goes wrong here is kept by the side, or met again in every case.
                run(side, &job).ok();
                // The first writes of a file are the kernel's: staging begins once it pays.
                if daemon.bytes_delegated().unwrap_or(0) < before + job.volume() / 2 {
                    side.fail(format!("what it writes to {} is not delegated", place.name));
                }
            }
        }
    }

    fn pause(&self) {
        self.daemon.iter().for_each(Daemon::pause);
    }

    fn resume(&self) {
        self.daemon.iter().for_each(Daemon::resume);
    }
}

/// Has a side do a job, and checks what it wrote.
pub(super) fn run(side: &mut Side, job: &Job) -> Result<Sample, String> {
    let sample = side.run(job);
    if matches!(job.verb, Verb::Read | Verb::Nothing) {
        return sample;
    }
    let written = remove(&job.path).map_err(|why| why.to_string())?;
    let sample = sample?;
    if written != job.volume() {
        return Err(format!("{written} bytes in the file after close, not {}", job.volume()));
    }
    Ok(sample)
}

/// Nanoseconds a call.
pub(super) fn per_call(
    samples: &Samples,
    job: &Job,
    time: impl Fn(&Sample) -> u64,
) -> Result<Spread, String> {
    rounds::spread(samples, |sample| time(sample) as f64 / job.count as f64)
}

/// Time of `native` by time of `ours`, round by round.
pub(super) fn ratio(native: &Samples, ours: &Samples) -> Result<Spread, String> {
    rounds::ratio(native, ours, |sample| sample.wall_ns as f64)
}
