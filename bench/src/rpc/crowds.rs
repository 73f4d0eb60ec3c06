//! Many clients of one server: all together as fast as one, and none faster than the others.

use super::{
    Effort,
    cells::{best, rate, ratio, spread},
    packet::{Run, Transport},
    run::run,
    server::Part,
    side::Program,
};
use crate::{
    files::TestFiles,
    machine::Cores,
    meter::Sample,
    options::Only,
    report::Report,
    rounds::{Rounds, combine, map, push},
};

const SIZE: usize = 4 << 10;
/// Connections.
const CLIENTS: [u32; 4] = [1, 16, 64, MOST];
const MOST: u32 = 256;
const DEPTH: u32 = 1536;
/// The row of two of these, and the ratio of all.
const MEMORY: &str = "connections/4KiB/tcp/memory";
const BEST: &str = "connections/256/4KiB/tcp:best";
/// Bytes of a run, also of a short bench: each of many clients has several turns in one.
const VOLUME: u64 = 1 << 30;

/// Measurements of each number of clients: the same index is the same round.
pub(super) struct Crowds {
    run: Run,
    only: Only,
    samples: [Rounds<Sample>; CLIENTS.len()],
}

impl Crowds {
    pub(super) fn new(effort: &Effort) -> Self {
        let (count, span, transport) = (VOLUME / SIZE as u64, effort.span, Transport::Tcp);
        let run =
            Run { size: SIZE, count, depth: DEPTH, clients: 1, span, transport, lends: false };
        Self { run, only: effort.only.clone(), samples: CLIENTS.map(|_| Ok(Vec::new())) }
    }

    /// True if any of this is to be measured.
    pub(super) fn is_wanted(&self) -> bool {
        CLIENTS.iter().any(|clients| self.wants(*clients))
    }

    /// True if so many clients are: for themselves, or for what is compared.
    fn wants(&self, clients: u32) -> bool {
        let [rate, unfairness] = names(clients);
        let is_compared =
            self.only.wants([BEST]) || self.wants_memory() && [1, MOST].contains(&clients);
        is_compared || self.only.wants([rate, unfairness])
    }

    fn wants_memory(&self) -> bool {
        self.only.wants([MEMORY])
    }

    pub(super) fn round(&mut self, round: usize, places: &TestFiles, cores: Option<Cores>) {
        let Some(place) = places.0.first() else { return };
        let wanted = CLIENTS.map(|clients| self.wants(clients));
        let cases = CLIENTS.into_iter().zip(&mut self.samples).zip(wanted);
        let mut cases: Vec<_> = cases.filter(|(_, wanted)| *wanted).map(|(case, _)| case).collect();
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
            if !self.wants(*clients) {
                continue;
            }
            let [rate_name, unfairness_name] = names(*clients);
            report.row(rate_name, "MB/s", spread(rates));
            let unfairness = map(samples, |one| one.unfairness as f64 / 1e3);
            report.row(unfairness_name, "most:least", spread(&unfairness));
        }
        if self.wants_memory() {
            self.report_memory(report);
        }
        let [.., last] = &rates;
        if self.only.wants([BEST]) {
            report.ratio(BEST, ratio(last, best(&rates)));
        }
    }

    fn report_memory(&self, report: &mut Report) {
        let [one, .., many] = &self.samples;
        let memory = combine(one, many, |one, many| {
            many.rss.saturating_sub(one.rss) as f64 / f64::from(MOST - 1)
        });
        report.row(MEMORY, "B a client", spread(&memory));
    }
}

/// The rows of so many clients: what they reach, and how unequal they are.
fn names(clients: u32) -> [String; 2] {
    ["", "/unfairness"].map(|end| format!("connections/{clients}/4KiB/tcp{end}"))
}
