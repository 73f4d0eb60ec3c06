//! A client and a server in one seeded thread: the network breaks and the server is killed at any
//! step of anything. Storage, records, network, and time are simulated; a failing seed is printed,
//! and `SEED=n` repeats it, `ROUNDS=n` takes as many seeds as wanted.
//!
//! What is promised: a request that succeeded has happened once, one that failed at most once, and
//! nothing that was answered is lost.

mod disk;
mod network;

use std::{
    cell::{Cell, RefCell},
    ffi::CString,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use executor::{Class, Clock, Config, Executor, Handle, Instant, ManualClock, Park, Unpark};
use fastrand::Rng;
use rustix::fs::OFlags;
use shm::copy::copy_in;
use uring::{Buffers, Heap};
use wire::{Frame, Request, SESSION_LEN};

use self::{
    disk::{Disk, SimDisk, SimShelf},
    network::SimNetwork,
};
use super::{
    channel::{Inbox, Outbox},
    client::{Client, Network as _},
    file,
    file::RemoteFile,
    handshake::{first, greet},
    key::Key,
    server::{REQUESTS, Server},
    service::Service,
};
use crate::{
    names::{NameCall, OpenCall},
    simulation::seeds,
};

const SEEDS: u64 = 50;
/// Programs that use the client at the same time.
const TASKS: usize = 4;
const ROUNDS: usize = 12;
/// Longest a simulation may go on, in its own time.
const TIME_MAX: Duration = Duration::from_secs(300);

#[test]
fn every_request_happens_once_under_every_seed() {
    let mut kills = 0;
    for seed in seeds(SEEDS) {
        match panic::catch_unwind(AssertUnwindSafe(|| World::new(seed).run())) {
            Ok(count) => kills += count,
            Err(cause) => {
                eprintln!("SEED={seed}");
                panic::resume_unwind(cause);
            }
        }
    }
    assert!(kills > 0, "no server was killed");
}

#[test]
fn client_without_credit_is_cut_off() {
    for (asked, answered) in [(REQUESTS, true), (REQUESTS + 1, false)] {
        let mut world = World::new(7);
        world.start_server();
        let (network, key, done) = (world.network.clone(), world.key.clone(), world.done.clone());
        let outcome = Rc::new(RefCell::new(None));
        let told = Rc::clone(&outcome);
        world.handle.spawn(Class::Latency, async move {
            told.replace(Some(ask_at_once(&network, &key, asked).await));
            done.set(1);
        });
        let end = world.clock.now() + TIME_MAX;
        while world.done.get() == 0 {
            assert!(world.clock.now() < end, "neither answered nor cut off");
            world.turn();
        }
        let outcome = outcome.take().expect("done");
        assert_eq!(outcome.is_ok(), answered, "{asked} requests: {outcome:?}");
    }
}

/// Sends so many requests without waiting for a reply, then waits for all of them.
async fn ask_at_once(network: &SimNetwork<SimDisk>, key: &Key, asked: u32) -> std::io::Result<()> {
    let (receiver, mut sender) = network.connect().await?;
    let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
    let ask = async {
        greet(key, [1; SESSION_LEN], &mut inbox, &outbox).await?;
        for id in 1..=u64::from(asked) {
            let request = Request::Stat { path_len: 2, follow: true };
            outbox.push(Frame::Request { id, record: None, request, payload: b"/x" });
        }
        for _ in 0..asked {
            let len = inbox.fill().await?;
            inbox.consume(len);
        }
        Ok(())
    };
    first(ask, outbox.pump(&mut sender)).await
}

/// A clock that also moves a little whenever it is read, as machines do.
#[derive(Default)]
struct SimClock(ManualClock);

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.advance(Duration::from_nanos(20));
        self.0.now()
    }
}

/// The executor is turned by hand and never parks.
struct NoPark;

impl Park for NoPark {
    fn park(&mut self, _: Option<Duration>) {}

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(NoUnpark)
    }
}

struct NoUnpark;

impl Unpark for NoUnpark {
    fn unpark(&self) {}
}

struct World {
    executor: Executor,
    clock: Rc<SimClock>,
    handle: Handle,
    rng: Rc<RefCell<Rng>>,
    disk: Rc<Disk>,
    network: SimNetwork<SimDisk>,
    key: Key,
    done: Rc<Cell<usize>>,
    /// What tasks were told, to be compared with the disk.
    told: Rc<RefCell<Told>>,
    kills: u64,
}

/// What the programs know.
#[derive(Default)]
struct Told {
    /// Lines whose append succeeded, and those whose append failed.
    appended: Vec<Vec<u8>>,
    doubtful: Vec<Vec<u8>>,
    /// Names that have to be there, and those that must not.
    there: Vec<String>,
    gone: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Rc::new(SimClock::default());
        let shared: Rc<dyn Clock> = Rc::clone(&clock) as Rc<dyn Clock>;
        let executor = Executor::new(shared, Box::new(NoPark), Config::default());
        let handle = executor.handle();
        let rng = Rc::new(RefCell::new(Rng::with_seed(seed)));
        let network = SimNetwork::new(handle.clone(), Rc::clone(&rng));
        let folder = tempfile::tempdir().expect("folder");
        let key = Key::read_or_create(&folder.path().join("key")).expect("key");
        Self {
            executor,
            clock,
            handle,
            rng,
            disk: Rc::default(),
            network,
            key,
            done: Rc::default(),
            told: Rc::default(),
            kills: 0,
        }
    }

    /// Starts a server on what earlier ones have left.
    fn start_server(&self) {
        let life = self.disk.begin_life();
        let (disk, handle) = (Rc::clone(&self.disk), self.handle.clone());
        let storage = SimDisk { disk, handle, rng: Rc::clone(&self.rng), life };
        let shelf = SimShelf { disk: Rc::clone(&self.disk), life };
        let service = Service::new(self.handle.clone(), storage, Box::new(shelf));
        self.network.set_server(Some(Server::new(service, self.key.clone())));
    }

    /// Ends a server at whatever step it is: nothing of it does anything any more.
    fn kill_server(&self) {
        self.disk.end_life();
        self.network.set_server(None);
        self.network.cut();
    }

    fn run(mut self) -> u64 {
        self.start_server();
        let (network, key) = (self.network.clone(), self.key.clone());
        let timeout = Duration::from_secs(600);
        let client = Client::new(self.handle.clone(), network, key, timeout).expect("client");
        self.handle.spawn(Class::Latency, Rc::clone(&client).run());
        for task in 0..TASKS {
            let program = Program {
                client: Rc::clone(&client),
                told: Rc::clone(&self.told),
                name: format!("t{task}"),
            };
            let done = Rc::clone(&self.done);
            self.handle.spawn(Class::Latency, async move {
                program.run().await;
                done.set(done.get() + 1);
            });
        }
        let mut faults = self.rng.borrow_mut().u32(0..12);
        let end = self.clock.now() + TIME_MAX;
        while self.done.get() < TASKS {
            assert!(self.clock.now() < end, "the programs do not end");
            self.turn();
            if faults > 0 && self.rng.borrow_mut().u32(0..60) == 0 {
                faults -= 1;
                self.fail();
            }
        }
        self.check();
        self.kills
    }

    /// One turn, and time goes on.
    fn turn(&mut self) {
        self.executor.turn();
        let us = self.rng.borrow_mut().u64(1..40);
        self.clock.0.advance(Duration::from_micros(us));
    }

    fn fail(&mut self) {
        if self.rng.borrow_mut().bool() {
            return self.network.cut();
        }
        self.kill_server();
        self.kills += 1;
        let turns = self.rng.borrow_mut().u32(0..200);
        for _ in 0..turns {
            self.turn();
        }
        self.start_server();
    }

    fn check(&self) {
        let told = self.told.borrow();
        let log = self.disk.content("/log").unwrap_or_default();
        let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
        let count = |line: &Vec<u8>| lines.iter().filter(|found| *found == line).count();
        for line in &told.appended {
            assert_eq!(count(line), 1, "{}", line.escape_ascii());
        }
        for line in &told.doubtful {
            assert!(count(line) <= 1, "{}", line.escape_ascii());
        }
        let known = told.appended.len() + told.doubtful.len();
        assert!(lines.len() <= known, "{} lines of {known}", lines.len());
        for name in &told.there {
            assert!(self.disk.exists(name), "{name} is lost");
        }
        for name in &told.gone {
            assert!(!self.disk.exists(name), "{name} has come back");
        }
    }
}

/// What a program does with remote files.
struct Program {
    client: Rc<Client<SimNetwork<SimDisk>>>,
    told: Rc<RefCell<Told>>,
    name: String,
}

impl Program {
    async fn run(&self) {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND;
        let log = self.open("/log", flags).await.expect("the log can be opened");
        for round in 0..ROUNDS {
            let line = format!("{} {round} {}\n", self.name, "x".repeat(round)).into_bytes();
            match log.write(0, &buffers(&line)).await {
                Ok(len) => {
                    assert_eq!(len, line.len());
                    self.told.borrow_mut().appended.push(line);
                }
                Err(_) => self.told.borrow_mut().doubtful.push(line),
            }
            self.names(round).await;
        }
    }

    async fn names(&self, round: usize) {
        let made = format!("/{}-{round}", self.name);
        let moved = format!("{made}-moved");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let Ok(file) = self.open(&made, flags).await else { return };
        // Idempotent: written, and read back through whatever connections there were.
        let content = made.repeat(100).into_bytes();
        assert_eq!(file.write(7, &buffers(&content)).await.ok(), Some(content.len()));
        let rename = NameCall::Rename { from: path(&made), to: path(&moved), flags: 0 };
        if self.name(rename).await.is_err() {
            return;
        }
        let found = Heap::buffer(content.len());
        let read = file.read(7, &found.clone().into()).await;
        assert_eq!(read.ok(), Some(content.len()), "of {made}");
        let mut bytes = vec![0; content.len()];
        shm::copy::copy_out(&mut bytes, found.bytes());
        assert_eq!(bytes, content);
        self.told.borrow_mut().gone.push(made.clone());
        if round % 2 == 0 {
            self.told.borrow_mut().there.push(moved);
        } else if self.name(NameCall::Unlink { path: path(&moved) }).await.is_ok() {
            self.told.borrow_mut().gone.push(moved);
        }
        let folder = format!("{made}-folder");
        if self.name(NameCall::MakeDir { path: path(&folder), mode: 0o700 }).await.is_ok() {
            let again = NameCall::MakeDir { path: path(&folder), mode: 0o700 };
            assert!(self.name(again).await.is_err(), "{folder} was made twice");
            self.told.borrow_mut().there.push(folder);
        }
    }

    async fn open(
        &self,
        name: &str,
        flags: OFlags,
    ) -> std::io::Result<Rc<RemoteFile<SimNetwork<SimDisk>>>> {
        let call = OpenCall { path: path(name), flags: flags.bits(), mode: 0o600 };
        RemoteFile::open(&self.client, call).await
    }

    async fn name(&self, call: NameCall) -> std::io::Result<()> {
        file::name(&self.client, call).await.map(drop)
    }
}

fn path(name: &str) -> CString {
    CString::new(name).expect("no NUL")
}

fn buffers(bytes: &[u8]) -> Buffers {
    let buffer = Heap::buffer(bytes.len());
    copy_in(buffer.bytes(), bytes);
    buffer.into()
}
