//! Many clients of one server: all together as fast as one, and none faster than the others.

use super::{
    Effort,
    cells::{Values, map, push, rate, spread},
    packet::{Run, Transport},
    run::run,
    server::Part,
    side::Program,
};
use crate::{files::Places, machine::Cores, meter::Sample, report::Report};

const SIZE: usize = 4 << 10;
/// Connections; all share the same credits.
const CLIENTS: [u32; 4] = [1, 16, 64, 256];
const DEPTH: u32 = 1024;

/// What was measured of each number of clients: the same index is the same round.
pub(super) struct Crowds {
    run: Run,
    samples: [Values<Sample>; CLIENTS.len()],
}

impl Crowds {
    pub(super) fn new(effort: &Effort) -> Self {
        let count = effort.volume(SIZE) / SIZE as u64;
        let (span, transport) = (effort.span, Transport::Tcp);
        let run = Run { size: SIZE, count, depth: DEPTH, clients: 1, span, transport };
        Self { run, samples: CLIENTS.map(|_| Ok(Vec::new())) }
    }

    pub(super) fn round(&mut self, places: &Places, cores: Option<Cores>) {
        let Some(place) = places.0.first() else { return };
        for (clients, samples) in CLIENTS.into_iter().zip(&mut self.samples) {
            let crowd = Run { clients, ..self.run.clone() };
            push(samples, || run(Program::Kakehi, Part::Integrated, &crowd, &place.file(), cores));
        }
    }

    pub(super) fn report(&self, report: &mut Report) {
        let rates = self.samples.each_ref().map(|samples| map(samples, |one| rate(&self.run, one)));
        for ((clients, samples), rates) in CLIENTS.iter().zip(&self.samples).zip(&rates) {
            report.row(format!("connections/{clients}/4KiB/tcp"), "MB/s", spread(rates));
            let unfairness = map(samples, |one| one.unfairness as f64 / 1e3);
            report.row(
                format!("connections/{clients}/4KiB/tcp/unfairness"),
                "most:least",
                spread(&unfairness),
            );
        }
        let [.., last] = &rates;
        let best = |round: usize| {
            let all = rates.iter().flatten().filter_map(|rates| rates.get(round));
            all.copied().fold(0.0, f64::max)
        };
        let ratios = last.as_ref().map_err(String::clone).map(|rates| {
            rates.iter().enumerate().map(|(round, rate)| rate / best(round)).collect()
        });
        report.ratio("connections/256/4KiB/tcp:best", spread(&ratios));
    }
}
