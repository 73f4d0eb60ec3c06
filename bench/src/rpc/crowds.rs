//! Many clients of one server: all together as fast as one, and none faster than the others.

use super::{
    Effort,
    cells::{Values, best, combine, map, push, rate, ratio, spread},
    packet::{Run, Transport},
    run::run,
    server::Part,
    side::Program,
};
use crate::{files::Places, machine::Cores, meter::Sample, report::Report};

const SIZE: usize = 4 << 10;
/// Connections.
const CLIENTS: [u32; 4] = [1, 16, 64, MOST];
const MOST: u32 = 256;
const DEPTH: u32 = 1536;
/// Bytes of a run, also of a short bench: each of many clients has several turns in one.
const VOLUME: u64 = 1 << 30;

/// What was measured of each number of clients: the same index is the same round.
pub(super) struct Crowds {
    run: Run,
    samples: [Values<Sample>; CLIENTS.len()],
}

impl Crowds {
    pub(super) fn new(effort: &Effort) -> Self {
        let (count, span, transport) = (VOLUME / SIZE as u64, effort.span, Transport::Tcp);
        let run =
            Run { size: SIZE, count, depth: DEPTH, clients: 1, span, transport, lends: false };
        Self { run, samples: CLIENTS.map(|_| Ok(Vec::new())) }
    }

    pub(super) fn round(&mut self, round: usize, places: &Places, cores: Option<Cores>) {
        let Some(place) = places.0.first() else { return };
        let mut cases: Vec<_> = CLIENTS.into_iter().zip(&mut self.samples).collect();
        if round % 2 == 1 {
            cases.reverse();
        }
        for (clients, samples) in cases {
            let crowd = Run { clients, ..self.run.clone() };
            let path = place.file();
            push(samples, || run(Program::Kakehi, Part::Integrated, &crowd, &path, cores));
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
        let [one, .., many] = &self.samples;
        let memory = combine(one, many, |one, many| {
            many.rss.saturating_sub(one.rss) as f64 / f64::from(MOST - 1)
        });
        report.row("connections/4KiB/tcp/memory", "B a client", spread(&memory));
        let [.., last] = &rates;
        report.ratio("connections/256/4KiB/tcp:best", ratio(last, best(&rates)));
    }
}
