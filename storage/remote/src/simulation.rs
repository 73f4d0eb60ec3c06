//! Clients and a server in one seeded thread: the network breaks and the server is killed at any
//! step of anything. Storage, records, network, and time are simulated; a failing seed is printed,
//! and `SEED=n` repeats it, `ROUNDS=n` takes as many seeds as wanted.
//!
//! The promise: a request that succeeded has happened once, one that failed at most once, and
//! nothing that was answered is lost; also where clients append the same bytes to the same file.
//! And what is counted under a lock is counted exactly, whatever servers had the lock.

mod disk;
mod hostile;
mod network;
mod outlasted;

use std::{
    cell::{Cell, RefCell},
    ffi::CString,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    time::Duration,
};

use executor::{Class, Clock, Config, Executor, Handle};
use fastrand::Rng;
use rustix::{fs::OFlags, io::Errno};
use shm::copy::{copy_in, copy_out};
use simulated::{NoPark, SimClock, seeds};
use storage::{
    lock_call::LockCall,
    names::{CallPath, NameCall, OpenCall},
};
use uring::{Buffers, Heap};
use wire::{
    BOOT_LEN, INLINE_LEN_MAX, LockKind, LockOwner, LockTerms, ROOT_LEN, Request, SESSION_LEN,
    TRANSFER_LEN_MAX,
};

use self::{
    disk::{Disk, SimDisk, SimShelf},
    network::SimNetwork,
};
use crate::{
    client::{
        file::RemoteFile,
        group::{Group, Member, Spread},
        requests::Client,
    },
    line::key::Key,
    server::{boot::Boot, connections::Server, received::Received, service::Service},
};

const SEEDS: u64 = 50;
const CLIENTS: usize = 2;
/// Programs that use a client at the same time.
const TASKS: usize = 2;
const ROUNDS: usize = 12;
/// Bytes that everybody appends, all of them the same.
const SAME_LEN: usize = 10;
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

/// The welcome that called it new may have been lost: it is said again.
#[test]
fn session_is_new_until_its_client_has_asked_for_something() {
    let mut world = World::new(7);
    let service = world.service();
    let mut enter = || {
        let entered = world.executor.run_until(service.enter([1; SESSION_LEN]));
        let (visit, is_known) = entered.expect("room");
        (Rc::clone(&visit.session), is_known)
    };
    let (session, is_known) = enter();
    assert!(!is_known);
    assert!(!enter().1);

    let (payload, data) = (Rc::default(), Heap::buffer(0));
    let received =
        Received { id: 1, record: None, request: Request::Reclaimed, payload, data: data.into() };
    service.start(&session, received, |_, _| ());

    assert!(enter().1);
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
    /// Results that tasks were told, to be compared with the disk.
    told: Rc<RefCell<Told>>,
    kills: u64,
}

/// Results that programs know.
#[derive(Default)]
struct Told {
    /// Lines of which so many bytes were appended, and those whose append failed.
    appended: Vec<(Vec<u8>, usize)>,
    doubtful: Vec<Vec<u8>>,
    /// Bytes that were appended to the file in which all are the same, and may have been besides.
    same: usize,
    maybe_same: usize,
    /// Times that the number in the file of all was raised under its lock.
    counted: u64,
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
        self.start_server_in(Boot([1; BOOT_LEN]));
    }

    fn start_server_in(&self, boot: Boot) {
        self.network.set_server(Some(Server::new(self.service(), self.key.clone(), boot)));
    }

    fn service(&self) -> Rc<Service<SimDisk>> {
        self.service_of(u64::MAX)
    }

    /// A service that may have so many descriptors.
    fn service_of(&self, limit: u64) -> Rc<Service<SimDisk>> {
        let life = self.disk.begin_life();
        let (disk, handle) = (Rc::clone(&self.disk), self.handle.clone());
        let shelf = SimShelf { disk: Rc::clone(&disk), handle: handle.clone(), life };
        let storage = SimDisk { disk, handle, rng: Rc::clone(&self.rng), life };
        Service::new(self.handle.clone(), storage, Box::new(shelf), limit).expect("ledgers")
    }

    /// Ends a server at whatever step it is: nothing of it does anything any more.
    fn kill_server(&self) {
        self.disk.end_life();
        self.network.set_server(None);
        self.network.cut();
    }

    fn run(mut self) -> u64 {
        self.start_server();
        for client in 0..CLIENTS {
            self.start_client(client);
        }
        let mut faults = self.rng.borrow_mut().u32(0..24);
        // All at the start, or spread over the whole.
        let odds = 30 << (2 * self.rng.borrow_mut().u32(0..4));
        let end = self.clock.now() + TIME_MAX;
        while self.done.get() < CLIENTS * TASKS {
            assert!(self.clock.now() < end, "the programs do not end");
            self.turn();
            if faults > 0 && self.rng.borrow_mut().u32(0..odds) == 0 {
                faults -= 1;
                self.fail();
            }
        }
        self.check();
        self.kills
    }

    fn start_client(&self, number: usize) {
        let (network, key) = (self.network.clone(), self.key.clone());
        let timeout = Duration::from_secs(600);
        let client = Client::new(self.handle.clone(), network, key, timeout).expect("client");
        self.handle.spawn(Class::Latency, Rc::clone(&client).run());
        let member = Member { name: "server".to_owned(), client };
        let group = Rc::new(Group::new(vec![member], Spread::File));
        for task in 0..TASKS {
            let program = Program {
                group: Rc::clone(&group),
                told: Rc::clone(&self.told),
                name: format!("c{number}t{task}"),
                process: u16::try_from(task).expect("few"),
            };
            let done = Rc::clone(&self.done);
            self.handle.spawn(Class::Latency, async move {
                program.run().await;
                done.set(done.get() + 1);
            });
        }
    }

    /// One turn, and time goes on.
    fn turn(&mut self) {
        self.executor.turn();
        let us = self.rng.borrow_mut().u64(1..40);
        self.clock.0.advance(Duration::from_micros(us));
    }

    fn fail(&mut self) {
        let fault = self.rng.borrow_mut().u32(0..4);
        match fault {
            0 => return self.network.cut(),
            1 => return self.network.damage(),
            _ => {}
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
        let lines: Vec<_> =
            (0..log.len()).filter(|at| log[*at] == b'<').map(|at| &log[at..]).collect();
        let count = |line: &[u8]| lines.iter().filter(|found| found.starts_with(line)).count();
        for (line, len) in &told.appended {
            let (name, piece) = (line[..line.len().min(32)].escape_ascii(), first_piece(line));
            // One that was cut short is not there as a whole.
            assert_eq!(count(piece), usize::from(*len >= piece.len()), "{name}");
            let there = &piece[..piece.len().min(*len)];
            assert!(count(there) > 0, "the first {} bytes of {name}", there.len());
        }
        for line in &told.doubtful {
            let name = line[..line.len().min(32)].escape_ascii();
            assert!(count(first_piece(line)) <= 1, "{name}");
        }
        let certain: usize = told.appended.iter().map(|(_, len)| len).sum();
        let asked = told.appended.iter().map(|(line, _)| line).chain(&told.doubtful);
        let possible: usize = asked.map(Vec::len).sum();
        assert!((certain..=possible).contains(&log.len()), "{} of {certain}", log.len());
        let same = self.disk.content("/same").unwrap_or_default();
        let range = told.same..=told.same + told.maybe_same;
        assert!(range.contains(&same.len()), "{} of {range:?} equal bytes", same.len());
        assert!(same.iter().all(|byte| *byte == b'x'));
        let count = self.disk.content("/count").expect("counted");
        assert_eq!(count, told.counted.to_le_bytes(), "{} times", told.counted);
        for name in &told.there {
            assert!(self.disk.exists(name), "{name} is lost");
        }
        for name in &told.gone {
            assert!(!self.disk.exists(name), "{name} has come back");
        }
    }
}

/// A program's work with remote files.
struct Program {
    group: Rc<Group<SimNetwork<SimDisk>>>,
    told: Rc<RefCell<Told>>,
    name: String,
    process: u16,
}

impl Program {
    async fn run(&self) {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND;
        let log = self.open("/log", flags).await.expect("the log can be opened");
        let same = self.open("/same", flags).await.expect("that, too");
        let flags = OFlags::CREATE | OFlags::RDWR;
        let count = self.open("/count", flags).await.expect("that, too");
        for round in 0..ROUNDS {
            // Some need several requests.
            let len = if round % 5 == 3 { TRANSFER_LEN_MAX } else { round };
            let line = format!("<{} {round} {}>", self.name, "x".repeat(len)).into_bytes();
            match log.write(0, &buffers(&line)).await {
                Ok(len) => self.told.borrow_mut().appended.push((line, len)),
                Err(_) => self.told.borrow_mut().doubtful.push(line),
            }
            match same.write(0, &buffers(&[b'x'; SAME_LEN])).await {
                Ok(len) => self.told.borrow_mut().same += len,
                Err(_) => self.told.borrow_mut().maybe_same += SAME_LEN,
            }
            self.names(round).await;
            for _ in 0..4 {
                self.count(&count).await;
            }
        }
    }

    /// Raises the number by one, under the lock of its process.
    async fn count(&self, count: &RemoteFile<SimNetwork<SimDisk>>) {
        let unlock = LockCall::unlock_all(LockOwner::Process, self.process);
        let terms = LockTerms { kind: LockKind::Exclusive, waits: true, ..unlock.terms };
        while let Err(error) = count.lock(LockCall { terms, ..unlock }).await {
            assert_eq!(error.raw_os_error(), Some(Errno::AGAIN.raw_os_error()), "{error}");
        }
        let found = Heap::buffer(size_of::<u64>());
        let len = count.read(0, &found.clone().into()).await.expect("read");
        let mut number = [0; size_of::<u64>()];
        copy_out(&mut number, found.prefix(len).bytes());
        let raised = u64::from_le_bytes(number) + 1;
        let written = count.write(0, &buffers(&raised.to_le_bytes())).await.expect("written");
        assert_eq!(written, number.len());
        count.lock(unlock).await.expect("it is held");
        self.told.borrow_mut().counted += 1;
    }

    async fn names(&self, round: usize) {
        let made = format!("/{}-{round}", self.name);
        let moved = format!("{made}-moved");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let Ok(file) = self.open(&made, flags).await else { return };
        // Idempotent: written, and read back through whatever connections there were.
        let content = made.repeat(if round % 3 == 0 { 2_000 } else { 100 }).into_bytes();
        assert!(round > 0 || content.len() > INLINE_LEN_MAX, "some need a buffer");
        let written = file.write(7, &buffers(&content)).await.expect("written");
        assert_eq!(written, content.len());
        let rename = NameCall::Rename { from: path(&made), to: path(&moved), flags: 0 };
        if self.name(rename).await.is_err() {
            return;
        }
        let found = Heap::buffer(content.len());
        let read = file.read(7, &found.clone().into()).await;
        assert_eq!(read.expect("read"), content.len(), "of {made}");
        let mut bytes = vec![0; content.len()];
        copy_out(&mut bytes, found.bytes());
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
        let call = OpenCall { path: path(name), flags: flags.bits(), mode: 0o600, inode: 0 };
        self.group.open(Some(self.process), None, call).await.map(|(file, _)| file)
    }

    async fn name(&self, call: NameCall) -> std::io::Result<()> {
        self.group.name(None, call).await.map(drop)
    }
}

/// Returns the part of a line that one request appends: others may append behind it.
fn first_piece(line: &[u8]) -> &[u8] {
    &line[..line.len().min(TRANSFER_LEN_MAX)]
}

fn path(name: &str) -> CallPath {
    CString::new(name).expect("no NUL").into()
}

fn buffers(bytes: &[u8]) -> Buffers {
    let buffer = Heap::buffer(bytes.len());
    copy_in(buffer.bytes(), bytes);
    buffer.into()
}
