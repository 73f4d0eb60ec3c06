//! Where the time of a request without I/O goes: the rows of the 2012 paper's table 4.
//!
//! The total is what a program measures against a real daemon. The parts are measured here, each in
//! a loop of its own, with the very types that client and daemon use:
//!
//! - `dispatch`: everything both sides do to a lane and to the board, on one thread, so that every
//!   line is warm: publish, raise, take the bits, take the entry, complete, ring, take the answer;
//! - `transfer`: the same between two threads on two cores, less `dispatch`: what is left is the
//!   lines' way across, there and back, and finding them;
//! - `call`: a turn of an executor with one source that has nothing;
//! - `translate`: decoding a read, and checking its range of the arena;
//! - `other`: the total less all of these: the client's lane, the daemon's session and its
//!   counters, the other sources of its poll list.

use std::{
    hint::{self, black_box},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use executor::{Armed, Executor, Idle, Source};
use shm::{
    Board, Ready,
    lane::{Lane, Requester, Responder},
};
use uring::{Events, SystemClock};
use wire::{Entry, Phase, Reply, Request};

use crate::{machine::Cores, report::Report, rounds::spread, spread::Spread, worker::pin};

/// Requests timed together: short enough that most are not disturbed.
const BATCH: u32 = 500;
/// Batches a round, of which the median counts.
const BATCHES: usize = 40;
const SESSION: usize = 5;
const LANE: usize = 3;

/// The rows: the whole with a spinning daemon, its parts, and the whole with other daemons.
pub(super) const NAMES: [&str; 8] = [
    "overhead/total",
    "overhead/transfer",
    "overhead/dispatch",
    "overhead/call",
    "overhead/translate",
    "overhead/other",
    "overhead/total/poll-idle",
    "overhead/total/park",
];

/// Medians of the parts, ns, or why one is missing.
pub(super) struct Parts {
    transfer: Result<Spread, String>,
    dispatch: Result<Spread, String>,
    call: Result<Spread, String>,
    translate: Result<Spread, String>,
}

/// Measures the parts. Needs two idle cores.
pub(super) fn measure(rounds: usize, cores: Option<Cores>) -> Parts {
    let text = |why: anyhow::Error| format!("{why:#}");
    let rounds = |time: &dyn Fn() -> anyhow::Result<f64>| {
        let times: anyhow::Result<Vec<f64>> = (0..rounds).map(|_| time()).collect();
        spread(&times.map_err(text), |time| *time)
    };
    let dispatch = rounds(&|| Ok(alone()));
    let crossing =
        cores.map_or(Err("there is only one core".to_owned()), |cores| rounds(&|| across(cores)));
    let transfer = minus(&crossing, &[&dispatch]);
    Parts { transfer, dispatch, call: rounds(&turn), translate: rounds(&|| Ok(translate())) }
}

/// Reports the rows, with what was measured of the whole: with a daemon that spins, that polls,
/// and that parks.
pub(super) fn report(
    report: &mut Report,
    parts: &Parts,
    [total, polled, parked]: [Result<Spread, String>; 3],
) {
    let Parts { transfer, dispatch, call, translate } = parts;
    let other = minus(&total, &[transfer, dispatch, call, translate]);
    let [transfer, dispatch, call, translate] =
        [transfer, dispatch, call, translate].map(Clone::clone);
    let times = [total, transfer, dispatch, call, translate, other, polled, parked];
    for (name, time) in NAMES.into_iter().zip(times) {
        report.row(name, "ns", time);
    }
}

/// A spread shifted by the medians of others.
fn minus(
    whole: &Result<Spread, String>,
    parts: &[&Result<Spread, String>],
) -> Result<Spread, String> {
    let mut rest = whole.clone()?;
    for part in parts {
        let part = part.as_ref().map_err(String::clone)?.median;
        rest = Spread { median: rest.median - part, min: rest.min - part, max: rest.max - part };
    }
    Ok(rest)
}

/// Memory that client and daemon share for one lane.
#[derive(Default)]
struct Shared {
    lane: Box<Lane>,
    board: Board,
    ready: Line<Ready>,
}

/// A cache line of its own: in the job segment, other sessions are its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

impl Shared {
    /// The client's half up to the answer: returns the entry's number.
    fn ask(&self, requester: &mut Requester) -> u32 {
        let entry = Request::Nothing.encode();
        let seq = requester.publish(&self.lane, &entry.0).unwrap_or_default();
        black_box(self.ready.0.raise(LANE, &self.board, SESSION));
        seq
    }

    fn is_answered(&self, requester: &Requester, seq: u32) -> bool {
        Reply::phase_of(requester.state(&self.lane, seq), seq) == Some(Phase::Completed)
    }

    /// The daemon's half: looks once, and answers what is there.
    fn answer(&self, responder: &mut Responder) {
        self.board.take(|_| {
            black_box(self.ready.0.take());
            if let Ok(Some((seq, words))) = responder.next(&self.lane) {
                black_box(words);
                let state = Reply { seq, phase: Phase::Completed }.encode();
                responder.complete(&self.lane, seq, state, 0);
                self.lane.bell.ring();
            }
        });
    }
}

/// Both halves on one thread, ns a request.
fn alone() -> f64 {
    let shared = Shared::default();
    let (mut requester, mut responder) = (Requester::new(), Responder::default());
    each(|| {
        let seq = shared.ask(&mut requester);
        shared.answer(&mut responder);
        black_box(shared.is_answered(&requester, seq));
        black_box(requester.take(&shared.lane, seq));
    })
}

/// Both halves on two cores, ns a request.
fn across(cores: Cores) -> anyhow::Result<f64> {
    let (shared, stop) = (Shared::default(), Line(AtomicBool::new(false)));
    thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let pinned = pin(Some(cores.daemon));
            let mut responder = Responder::default();
            while !stop.0.load(Ordering::Relaxed) {
                shared.answer(&mut responder);
                hint::spin_loop();
            }
            pinned
        });
        let client = scope.spawn(|| {
            let pinned = pin(Some(cores.client));
            let mut requester = Requester::new();
            let time = each(|| {
                let seq = shared.ask(&mut requester);
                while !shared.is_answered(&requester, seq) {
                    hint::spin_loop();
                }
                black_box(requester.take(&shared.lane, seq));
            });
            stop.0.store(true, Ordering::Relaxed);
            pinned.map(|()| time)
        });
        let lost = |_| anyhow::anyhow!("a thread was lost");
        let time = client.join().map_err(lost)?;
        daemon.join().map_err(lost)??;
        time
    })
}

/// A source that never has anything.
struct Quiet;

impl Source for Quiet {
    fn poll(&mut self, _: usize) -> usize {
        black_box(0)
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

/// A turn of an executor that spins, ns.
fn turn() -> anyhow::Result<f64> {
    let config = executor::Config { idle: Idle::Spin, ..executor::Config::default() };
    let park = Box::new(Events::new()?.parker());
    let mut executor = Executor::new(Rc::new(SystemClock), park, config);
    executor.handle().add_source(Box::new(Quiet));
    Ok(each(|| {
        black_box(executor.turn());
    }))
}

/// Decoding and checking of one read, ns.
fn translate() -> f64 {
    let arena_len = black_box(32u64 << 20);
    let request = Request::Read { file: 1, at: 1 << 20, len: 4096, arena_at: 65_536 };
    let Entry(words) = request.encode();
    each(|| {
        let decoded = Request::decode(&Entry(black_box(words)));
        let is_valid = matches!(decoded, Ok(Request::Read { at, len, arena_at, .. })
            if at.checked_add(u64::from(len)).is_some_and(|end| i64::try_from(end).is_ok())
                && arena_at.checked_add(u64::from(len)).is_some_and(|end| end <= arena_len));
        black_box(is_valid);
    })
}

/// Nanoseconds `step` takes: the median of many short runs.
fn each(mut step: impl FnMut()) -> f64 {
    let mut times = [0.0; BATCHES];
    for time in &mut times {
        let start = Instant::now();
        for _ in 0..BATCH {
            step();
        }
        *time = start.elapsed().as_nanos() as f64 / f64::from(BATCH);
    }
    Spread::of(times).map_or(0.0, |spread| spread.median)
}
