//! Cost of a poll round by the number of sources an executor looks after, one of which is busy.
//!
//! A round is a turn of the executor. Sources are of two kinds. *Registered* ones are asked one by
//! one, at most 64 in a round: `/round` is what a round takes, `/visit` how long the busy one waits
//! between two looks. *Clients* say themselves that they are ready, on the board that they share
//! with the daemon.

use std::{
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use executor::{Armed, Attendant, Config, Executor, Found, Idle, SharedSource, Source};
use shm::{Job, JobShared, Ready};
use uring::{Events, SystemClock};

use super::Effort;
use crate::{report::Report, spread::Spread};

const COUNTS: [usize; 4] = [1, 16, 256, 1024];
/// Turns of one measurement: thousands of looks at the busy one of many.
const TURNS: u32 = 50_000;

/// Reports the counts of both kinds that are wanted.
pub(super) fn measure(report: &mut Report, effort: &Effort) {
    for count in COUNTS {
        let names = ["round", "visit"].map(|what| format!("sources/registered/{count}/{what}"));
        if effort.only.wants(&names) {
            let (round, visit) = match registered(effort, count) {
                Ok((round, visit)) => (Ok(round), Ok(visit)),
                Err(why) => (Err(why.to_string()), Err(why.to_string())),
            };
            names
                .into_iter()
                .zip([round, visit])
                .for_each(|(name, time)| report.row(name, "ns", time));
        }
        let name = format!("sources/clients/{count}/round");
        if effort.only.wants([&name]) {
            let round = clients(effort, count).map_err(|why| why.to_string());
            report.row(name, "ns", round);
        }
    }
}

/// A source where every look finds something, or none does.
struct Registered {
    is_busy: AtomicBool,
    found: AtomicU64,
}

impl SharedSource for Registered {
    fn poll(&self, _: usize) -> Found {
        if !self.is_busy.load(Ordering::Relaxed) {
            return Found::Handled(0);
        }
        self.found.fetch_add(1, Ordering::Relaxed);
        Found::Handled(1)
    }

    fn attend(&self, _: Attendant<'_>) -> Armed {
        Armed::Waits
    }
}

/// Time of a round, and between two looks at the busy one of `count` registered sources, ns.
fn registered(effort: &Effort, count: usize) -> io::Result<(Spread, Spread)> {
    let mut executor = executor()?;
    let source = |is_busy| {
        Arc::new(Registered { is_busy: AtomicBool::new(is_busy), found: AtomicU64::new(0) })
    };
    let busy = source(true);
    let handle = executor.handle();
    let mut registrations = vec![handle.poll_lists().register(Arc::clone(&busy) as _)];
    registrations.extend((1..count).map(|_| handle.poll_lists().register(source(false))));
    let mut visits = Vec::new();
    let rounds = spread(effort, || {
        let before = busy.found.load(Ordering::Relaxed);
        let time = time_of_turn(|| {
            executor.turn();
        });
        let found = busy.found.load(Ordering::Relaxed) - before;
        visits.push(time * f64::from(TURNS) / found as f64);
        time
    })?;
    Ok((rounds, spread_of(visits)?))
}

/// The clients of a daemon, as its executor finds them.
struct Clients(Rc<Job>);

impl Source for Clients {
    fn poll(&mut self, _: usize) -> usize {
        let (JobShared { boards: [board, ..], ready, .. }, mut count) = (self.0.shared(), 0);
        board.take(|session| {
            let bits = ready.get(session).map_or(0, Ready::take);
            count += usize::from(bits != 0);
        });
        count
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

/// Time of a round that serves the last of `count` clients, with what the client does for it, ns.
fn clients(effort: &Effort, count: usize) -> io::Result<Spread> {
    let mut executor = executor()?;
    let job = Rc::new(Job::create()?.0);
    executor.handle().add_source(Box::new(Clients(Rc::clone(&job))));
    let JobShared { boards: [board, ..], ready, .. } = job.shared();
    let clients: Vec<_> = ready.iter().enumerate().take(count).collect();
    let raise = |(session, ready): (usize, &Ready)| ready.raise(0, board, session);
    // Each has asked for something once.
    clients.iter().for_each(|client| {
        raise(*client);
    });
    executor.turn();
    spread(effort, || {
        time_of_turn(|| {
            if let Some(last) = clients.last() {
                raise(*last);
            }
            executor.turn();
        })
    })
}

fn executor() -> io::Result<Executor> {
    let parker = Events::new()?.parker();
    let config = Config { idle: Idle::Spin, ..Config::default() };
    Ok(Executor::new(Rc::new(SystemClock), Box::new(parker), config))
}

/// Mean time of one of [`TURNS`] turns, ns.
fn time_of_turn(mut turn: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|_| turn());
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn spread(effort: &Effort, mut time: impl FnMut() -> f64) -> io::Result<Spread> {
    spread_of((0..effort.rounds).map(|_| time()).collect())
}

fn spread_of(times: Vec<f64>) -> io::Result<Spread> {
    Spread::of(times).ok_or_else(|| io::Error::other("no round was run"))
}
