//! Costs of delegation for unmodified programs: streams of the C library, and starting.

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

/// The rows of streams, and of starts.
pub(super) const STREAMS: [&str; 2] = ["native/fopen+fprintf/64B", "accept/fopen+fprintf/64B"];
pub(super) const EXEC: [&str; 3] = ["exec/native", "exec/preload", "exec/overhead"];

impl Bench<'_> {
    /// Measures one, or both.
    pub(super) fn programs(
        &mut self,
        report: &mut Report,
        effort: &Effort,
        [has_streams, has_starts]: [bool; 2],
    ) {
        if has_streams {
            self.streams(report, effort);
        }
        if has_starts {
            for (name, time) in EXEC.into_iter().zip(self.starts(effort)) {
                report.row(name, "us", time);
            }
        }
    }

    fn streams(&mut self, report: &mut Report, effort: &Effort) {
        let Ok(place) = self.places.get(Where::Disk) else { return };
        let job = Job { verb: Verb::Print, size: RECORD, count: RECORDS, path: to_write(place) };
        let [native, hybrid, _] = self.measure(effort, &job, HYBRID);
        for (name, samples) in STREAMS.into_iter().zip([native, hybrid]) {
            let time = per_call(&samples, &job, |sample: &Sample| sample.wall_ns);
            report.row(name, "ns", time);
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
