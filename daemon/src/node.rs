//! State shared by the executors of a daemon, and messages between them.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use coalesce::Clients;
use executor::{Counters, Mailbox, Reply, lock, reply};
use rustix::{io::Errno, process::Pid};
use serde::Serialize;
use shm::{Board, JobShared, Ready};

use crate::{
    admission::{Admission, Grant},
    machine_memory,
    registry::Registry,
    remote_status::{Listening, RemoteStatus},
    samples::Samples,
    statistics::Totals,
    trace::Trace,
    view_nodes::Nodes,
};

/// Shared by all executors.
#[derive(Debug)]
pub(crate) struct Node {
    /// Those that make and read coalesced files, and what is shared with them.
    pub(crate) clients: Arc<Clients>,
    /// Of a daemon that has servers.
    pub(crate) remote: Option<RemoteStatus>,
    /// By the folders whose files they hold.
    pub(crate) multifiles: BTreeMap<String, String>,
    /// The program that the daemon was started for.
    pub(crate) command: Option<String>,
    pub(crate) started_at: Instant,
    /// The counters over time, for a report.
    pub(crate) samples: Mutex<Option<Samples>>,
    /// Of a run with `--trace`.
    pub(crate) trace: Option<Arc<Trace>>,
    /// By name.
    pub(crate) settings: BTreeMap<String, String>,
    /// Of a daemon that is a server.
    pub(crate) listening: OnceLock<Listening>,
    /// Set when every mapped folder has a view.
    pub(crate) has_views: OnceLock<()>,
    /// Set when that is so only in mounts of the job's own.
    pub(crate) has_own_mounts: OnceLock<()>,
    /// The names of each view, as the kernel knows them.
    pub(crate) viewed: Mutex<Vec<Arc<Mutex<Nodes>>>>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) admission: Mutex<Admission>,
    /// Of sessions that have ended, by executor. Only that executor tells of them while it runs:
    /// whoever read them after its report would count a session that ended in between twice.
    ended: Vec<Mutex<Totals>>,
    /// One per executor that there may be.
    mail: Vec<Mailbox<Mail>>,
    /// Executors that run.
    running: AtomicUsize,
    stopping: AtomicBool,
    /// Sessions that have ended and had locks.
    lockers_ended: AtomicU64,
}

/// A message from one executor to another.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Drain one file; truncate it to `len` bytes if it is refused.
    Drain { session: u32, slot: u32, len: Option<u64>, done: Reply<Result<(), Errno>> },
    /// Drain every file.
    DrainAll(Reply<()>),
    /// Read every control socket.
    Hear(Reply<()>),
    /// End the sessions of clients that are gone and had locks.
    Reap(Reply<()>),
    /// Tell every client that the daemon goes away.
    Close(Reply<()>),
    /// Everything is drained: end the session at the server.
    LeaveServer(Reply<()>),
    /// Say what happens.
    Report(Reply<Report>),
    /// A session has ended somewhere; sent to the first executor.
    Departed,
    /// Leave the loop.
    End,
}

/// An executor's report on itself.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) core: CoreReport,
    /// Of its sessions, those that have ended too.
    pub(crate) totals: Totals,
    pub(crate) staged_bytes: u64,
    /// For how long it has worked.
    pub(crate) working: Duration,
}

/// An executor, for people and scripts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CoreReport {
    pub(crate) core: usize,
    pub(crate) engine: String,
    pub(crate) sessions: usize,
    pub(crate) turns: u64,
    pub(crate) idle_turns: u64,
    pub(crate) parks: u64,
    pub(crate) latency_polls: u64,
    pub(crate) throughput_polls: u64,
    /// Shares of the time since its start, together 1 but for rounding.
    pub(crate) working: f64,
    pub(crate) polling: f64,
    pub(crate) parked: f64,
    /// Events of sources by the way they were found.
    pub(crate) polled_events: u64,
    pub(crate) doorbell_events: u64,
    /// Times it found something for another executor, and woke it.
    pub(crate) handed_over: u64,
    /// Times it ceased polling because another thread wanted its core.
    pub(crate) gave_way: u64,
}

impl CoreReport {
    pub(crate) fn new(core: usize, engine: String, sessions: usize, counters: &Counters) -> Self {
        let Counters { working, polling, parked, .. } = *counters;
        let total = (working + polling + parked).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = |time: Duration| (time.as_secs_f64() / total * 1e4).round() / 1e4;
        Self {
            core,
            engine,
            sessions,
            turns: counters.turns,
            idle_turns: counters.idle_turns,
            parks: counters.parks,
            latency_polls: counters.latency_polls,
            throughput_polls: counters.throughput_polls,
            working: share(working),
            polling: share(polling),
            parked: share(parked),
            polled_events: counters.source_events - counters.doorbell_events,
            doorbell_events: counters.doorbell_events,
            handed_over: counters.handed_over,
            gave_way: counters.gave_way,
        }
    }
}

impl Node {
    /// As many executors may run as `admission` has seats for.
    pub(crate) fn new(job: shm::Job, mut admission: Admission) -> Self {
        let seats = admission.seats();
        let (running, most) = (AtomicUsize::new(seats.count()), seats.most());
        Self {
            clients: Arc::new(Clients::new(job)),
            remote: None,
            multifiles: BTreeMap::new(),
            command: None,
            started_at: Instant::now(),
            samples: Mutex::default(),
            trace: None,
            settings: BTreeMap::new(),
            listening: OnceLock::new(),
            has_views: OnceLock::new(),
            has_own_mounts: OnceLock::new(),
            viewed: Mutex::default(),
            registry: Mutex::default(),
            admission: Mutex::new(admission),
            ended: (0..most).map(|_| Mutex::default()).collect(),
            mail: (0..most).map(|_| Mailbox::new()).collect(),
            running,
            stopping: AtomicBool::new(false),
            lockers_ended: AtomicU64::new(0),
        }
    }

    /// The shared struct of the job's segment.
    pub(crate) fn shared(&self) -> &JobShared {
        self.clients.shared()
    }

    /// The ready word of a session.
    pub(crate) fn ready(&self, session: u32) -> Option<&Ready> {
        self.shared().ready.get(session as usize)
    }

    /// Where clients of executor `core` say that they are ready.
    pub(crate) fn board(&self, core: usize) -> Option<&Board> {
        self.shared().boards.get(core)
    }

    /// Executors that there may be.
    pub(crate) fn core_count(&self) -> usize {
        self.mail.len()
    }

    /// The next executor runs: it is asked what all are, and gets sessions.
    pub(crate) fn add_core(&self) {
        let mut admission = lock(&self.admission);
        self.running.fetch_add(1, Ordering::Release);
        admission.seats().open();
    }

    /// The box of executor `core`.
    pub(crate) fn mailbox(&self, core: usize) -> Option<&Mailbox<Mail>> {
        self.mail.get(core)
    }

    /// Lets nobody in from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn session_count(&self) -> usize {
        lock(&self.admission).session_count()
    }

    /// Makes the arena of a session of `client` as long as there is memory for; returns its length,
    /// bytes.
    pub(crate) fn grow(&self, grant: &Cell<Grant>, client: Option<Pid>) -> u64 {
        let (free, mut grown) = (machine_memory::free(client), grant.get());
        lock(&self.admission).grow(&mut grown, free);
        grant.set(grown);
        grown.arena_len
    }

    /// Takes back what a session was granted, and tells who waits for the last.
    pub(crate) fn leave(&self, id: u32, grant: Grant) {
        lock(&self.admission).leave(id, grant);
        if let Some(mailbox) = self.mailbox(0) {
            mailbox.send(Mail::Departed);
        }
    }

    /// Counts a session that has ended on executor `core`.
    pub(crate) fn count_ended(&self, core: usize, session: &Totals) {
        if let Some(ended) = self.ended.get(core) {
            lock(ended).add(session);
        }
    }

    /// Of sessions that have ended on executor `core`; for itself.
    pub(crate) fn ended(&self, core: usize) -> Totals {
        let mut totals = self.ended.get(core).map(|ended| lock(ended).clone()).unwrap_or_default();
        if core == 0 {
            totals.drain_errors += self.clients.errors();
        }
        totals
    }

    /// Counts a session that has ended, whose locks are gone.
    pub(crate) fn locker_ended(&self) {
        self.lockers_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions that have ended and had locks.
    pub(crate) fn lockers_ended(&self) -> u64 {
        self.lockers_ended.load(Ordering::Relaxed)
    }

    /// Sends every executor that runs a message and waits for all the answers there are.
    pub(crate) async fn ask_all<T>(&self, mail: impl Fn(Reply<T>) -> Mail) -> Vec<T> {
        let mut waiting = Vec::new();
        for mailbox in self.mail.iter().take(self.running.load(Ordering::Acquire)) {
            let (reply, answer) = reply();
            mailbox.send(mail(reply));
            waiting.push(answer);
        }
        let mut answers = Vec::new();
        for answer in waiting {
            answers.extend(answer.receive().await);
        }
        answers
    }
}
