//! What unmodified programs pay for being delegated: streams of the C library, and starting.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    Effort,
    places::{Where, to_write},
    sides::{Bench, HYBRID, per_call},
};
use crate::{
    job::{Job, Sample, Verb},
    kakehi::Environment,
    report::Report,
    spread::Spread,
};

const RECORD: usize = 64;
const RECORDS: usize = 50_000;
/// A program that does nothing.
const PROGRAM: &str = "/bin/true";
/// Starts a round: one is short.
const STARTS: usize = 20;

impl Bench<'_> {
    /// Measures both.
    pub(super) fn programs(&mut self, report: &mut Report, effort: &Effort) {
        self.streams(report, effort);
        let [native, preloaded, overhead] = self.starts(effort);
        report.row("exec/native", "us", native);
        report.row("exec/preload", "us", preloaded);
        report.row("exec/overhead", "us", overhead);
    }

    fn streams(&mut self, report: &mut Report, effort: &Effort) {
        let Ok(place) = self.places.get(Where::Disk) else { return };
        let job = Job { verb: Verb::Print, size: RECORD, count: RECORDS, path: to_write(place) };
        let [native, hybrid, _] = self.measure(effort, &job, HYBRID);
        for (side, samples) in [("native", native), ("accept", hybrid)] {
            let time = per_call(&samples, &job, |sample: &Sample| sample.wall_ns);
            report.row(format!("{side}/fopen+fprintf/64B"), "ns", time);
        }
    }

    /// Time to start a program and wait for its end: as it is, with the library, the difference.
    fn starts(&mut self, effort: &Effort) -> [Result<Spread, String>; 3] {
        let (mut native, mut preloaded) = (Vec::new(), Vec::new());
        let nothing = Environment::new();
        let environment = self.first().and_then(|fleet| fleet.environment.clone());
        for _ in 0..effort.rounds * STARTS {
            let environment = environment.as_ref().map_err(String::clone);
            match environment.and_then(|with| Ok((start(&nothing)?, start(with)?))) {
                Ok((without, with)) => {
                    native.push(without);
                    preloaded.push(with);
                }
                Err(why) => return [(); 3].map(|()| Err(why.clone())),
            }
        }
        let difference = preloaded.iter().zip(&native).map(|(with, without)| with - without);
        let spread = |times: Option<Spread>| times.ok_or_else(|| "no round was run".to_owned());
        let difference = spread(Spread::of(difference.collect::<Vec<_>>()));
        [spread(Spread::of(native)), spread(Spread::of(preloaded)), difference]
    }
}

/// Microseconds until a program has run.
fn start(environment: &Environment) -> Result<f64, String> {
    let mut command = Command::new(PROGRAM);
    command.env_clear().envs(environment).stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|why| format!("{PROGRAM}: {why}"))?;
    let time = start.elapsed();
    if !status.success() {
        return Err(format!("{PROGRAM}: {status}"));
    }
    Ok(time.as_secs_f64() * 1e6)
}
