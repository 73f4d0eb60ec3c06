//! A whole daemon: sets up the node and its executors, serves, and ends in order.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::symlink,
    },
    path::{Path, PathBuf},
    process,
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
};

use executor::{Class, Executor, PollLists};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use uring::{Engines, Events, SystemClock, prefer_short_turns};

use crate::{
    Config, Error, Summary,
    admission::Admission,
    core::Core,
    guest,
    lanes::Lanes,
    life::Life,
    listener::{Attendance, Listener, Newcomer},
    mail::Mailbox,
    node::Node,
    reactor::Reactor,
    signals::Signals,
    socket, status,
    storage::Machine,
};

/// Engine threads of one executor.
const THREADS_PER_CORE: usize = 4;

/// Serves until told to stop, and returns what was done.
///
/// Blocks. Calls `ready` once connections are accepted. On return everything that clients had
/// staged is in the file system, unless a second signal cut the end short; the socket is gone.
///
/// # Errors
///
/// - [`Error::Occupied`]: another daemon serves in the folder.
/// - [`Error::Setup`]: the folder, memory, descriptors, or threads could not be had.
pub fn serve(config: Config, ready: impl FnOnce()) -> Result<Summary, Error> {
    let fds = raise_fd_limit();
    let (job, job_fd) = shm::Job::create().map_err(Error::setup("the job segment"))?;
    let place = Place::occupy(&config.folder, &job_fd)?;
    let core_count = config.cores.len().max(1);
    let admission = Admission::new(config.staging, config.memory, fds);
    let node = Arc::new(Node::new(job, admission, core_count));
    let newcomers: Arc<[_]> = (0..core_count).map(|_| Mailbox::new()).collect();
    let lists = PollLists::new(core_count);
    let hall = Hall { node, lists, newcomers, job_fd: Arc::new(job_fd), config };

    let mut first = Seat::new(&hall, 0)?;
    let others = hall.start_others(core_count)?;
    let signals = Signals::catch().map_err(Error::setup("signals"))?;
    let attendance = Rc::new(Attendance::default());
    let listener = Rc::new(Listener {
        core: Rc::clone(&first.core),
        reactor: first.reactor.clone(),
        attendance: Rc::clone(&attendance),
        newcomers: Arc::clone(&hall.newcomers),
    });
    let handle = first.core.handle.clone();
    handle.spawn(Class::Latency, listener.listen(Rc::clone(&place.listening)));
    handle.spawn(Class::Latency, Rc::clone(&first.core).read_mail());
    ready();
    let life = Life {
        core: Rc::clone(&first.core),
        attendance,
        stop_when_unattached: hall.config.stop_when_unattached,
        linger: hall.config.linger,
    };
    let watched = signals.watch(&first.reactor).map_err(Error::setup("signals"))?;
    first.executor.run_until(life.live(&watched));
    for other in others {
        other.join().ok(); // A panic there has been printed, and its sessions are lost already.
    }
    Ok(status::totals(&hall.node, &[]).summary())
}

/// What every executor of a daemon is made from.
struct Hall {
    node: Arc<Node>,
    lists: PollLists,
    newcomers: Arc<[Mailbox<Newcomer>]>,
    job_fd: Arc<OwnedFd>,
    config: Config,
}

impl Hall {
    /// Starts the executors but the first, each on its thread, and waits until they run.
    fn start_others(&self, core_count: usize) -> Result<Vec<thread::JoinHandle<()>>, Error> {
        let mut threads = Vec::new();
        for index in 1..core_count {
            let (started, outcome) = mpsc::channel();
            let hall = self.share();
            let run = move || match Seat::new(&hall, index) {
                Ok(mut seat) => {
                    started.send(Ok(())).ok();
                    let mail = Rc::clone(&seat.core).read_mail();
                    seat.executor.run_until(mail);
                }
                Err(error) => drop(started.send(Err(error))),
            };
            let name = format!("kakehi-core-{index}");
            let spawned = thread::Builder::new().name(name).spawn(run);
            threads.push(spawned.map_err(Error::setup("an executor's thread"))?);
            outcome.recv().unwrap_or_else(|_| {
                let source = io::Error::other("it ended at once");
                Err(Error::Setup { what: "an executor's thread", source })
            })?;
        }
        Ok(threads)
    }

    fn share(&self) -> Self {
        Self {
            node: Arc::clone(&self.node),
            lists: self.lists.clone(),
            newcomers: Arc::clone(&self.newcomers),
            job_fd: Arc::clone(&self.job_fd),
            config: self.config.clone(),
        }
    }
}

/// One executor with its part of the daemon.
struct Seat {
    executor: Executor,
    core: Rc<Core<Machine>>,
    reactor: Reactor,
}

impl Seat {
    /// Sets up executor `index` on the calling thread.
    fn new(hall: &Hall, index: usize) -> Result<Self, Error> {
        let config = &hall.config;
        if let Some(cpu) = config.cores.get(index) {
            pin(*cpu).map_err(Error::setup("the core to run on"))?;
        }
        // Staged bytes grow old while the daemon waits for a core. An old kernel has no such call.
        prefer_short_turns().ok();
        let events = Events::new().map_err(Error::setup("an executor"))?;
        let park = Box::new(events.parker());
        let (idle, quiet) = (config.idle, config.quiet);
        let bounds = executor::Config { idle, quiet, ..executor::Config::default() };
        let executor = Executor::join(Rc::new(SystemClock), park, bounds, &hall.lists, index);
        let handle = executor.handle();
        let engines = Engines::new(&handle, config.engine, THREADS_PER_CORE, &events);
        let reactor = Reactor::new(&handle, events);
        let core = Core::new(index, handle, Machine::new(engines), Arc::clone(&hall.node));
        core.handle.add_source(Box::new(Lanes::new(Rc::clone(&core))));
        let door = guest::Door {
            core: Rc::clone(&core),
            reactor: reactor.clone(),
            newcomers: Arc::clone(&hall.newcomers),
            job_fd: Arc::clone(&hall.job_fd),
        };
        core.handle.spawn(Class::Latency, door.open());
        Ok(Self { executor, core, reactor })
    }
}

/// The daemon's place in the file system; cleared when dropped.
struct Place {
    listening: Rc<OwnedFd>,
    socket: PathBuf,
    job: PathBuf,
}

impl Place {
    /// Listens in `folder`, and shows the job's segment there to programs that never connect.
    fn occupy(folder: &Path, job_fd: &OwnedFd) -> Result<Self, Error> {
        let (socket, job) = (socket::path(folder), folder.join("job"));
        if socket::connect_to(folder).is_ok() {
            return Err(Error::Occupied { folder: folder.to_owned() });
        }
        // What a daemon left that did not end in order.
        for stale in [&socket, &job] {
            match fs::remove_file(stale) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Setup { what: "the socket's folder", source: error });
                }
                _ => {}
            }
        }
        let listening = socket::listen_in(folder).map_err(Error::setup("the socket"))?;
        let target = format!("/proc/{}/fd/{}", process::id(), job_fd.as_raw_fd());
        let place = Self { listening: Rc::new(listening), socket, job };
        symlink(target, &place.job).map_err(Error::setup("the link to the job segment"))?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for path in [&self.socket, &self.job] {
            fs::remove_file(path).ok(); // Somebody may have cleared the folder already.
        }
    }
}

/// Runs the calling thread on one core only.
fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the soft limit on descriptors to the hard one and returns what it is then.
fn raise_fd_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX >> 1),
        Err(_) => limit.current.unwrap_or(u64::MAX >> 1),
    }
}
