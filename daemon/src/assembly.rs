//! A whole daemon: sets up the node and its executors, serves, and ends in order.

use std::{
    any::Any,
    cell::RefCell,
    future, io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    thread,
};

use coalesce::{Coalesce, Coalesced};
use executor::{Class, Executor, Handle, Mailbox, PollLists, first, lock};
use remote::{
    Address, Boot, Carrier, Client, Dial, Folder, Group, Key, Member, Own, Published, Server,
    Service, Workers,
};
use rustix::fs::Mode;
use rustix::process::{Resource, umask};
use storage::{Learned, Machine, scope::Scope};
use uring::{
    Engines, Events, Reactor, Sockets, SystemClock, allocate_by_mebibytes, prefer_short_turns,
};

use crate::{
    Config, Error, Given, Summary, Viewing,
    admission::{Admission, raise_limit},
    arrivals::Arrivals,
    config::{CORES_MAX, Serving},
    core::Core,
    lanes::Lanes,
    life::Life,
    listener::{Admitted, Connections, Listener},
    mail,
    mounts::{self, Mounts},
    node::Node,
    reap::reap,
    remote_status::{Listening, RemoteStatus},
    samples::Samples,
    seats::Seats,
    signals::{self, Signals},
    standby::Standby,
    starter::Starter,
    status,
    view::{self, Top, View},
};

/// Engine threads of one executor; one device has half of them at most.
const THREADS_PER_CORE: usize = 8;

/// Serves until told to stop, and returns what was done, with rings and memory to be dropped: the
/// kernel takes its time with those, and nobody has to wait for it.
///
/// Blocks. Listens where `standby` does; without one, in the folder of the configuration. Calls
/// `ready` once connections are accepted, with the address where daemons elsewhere are served, if
/// they are. On return everything that clients had staged is in the file system, unless one more
/// signal cut the end short; the socket is gone.
///
/// # Errors
///
/// - [`Error::Occupied`]: another daemon serves in the folder.
/// - [`Error::Unusable`]: a key file, folder, address, or core that `config` names is of no use.
/// - [`Error::Remote`]: no server of remote files can be reached; [`Error::Ucx`]: nor UCX used.
/// - [`Error::Setup`]: the folder, memory, descriptors, or threads could not be had.
pub fn serve(
    config: Config,
    standby: Option<Standby>,
    ready: impl FnOnce(Option<&Address>),
) -> Result<(Summary, Box<dyn Any>), Error> {
    if let Some(core) = config.cores.get(CORES_MAX) {
        let why = io::Error::other(format!("a daemon serves on {CORES_MAX} cores at most"));
        return Err(Error::unusable(Given::Core(*core))(why));
    }
    let fds = raise_limit(Resource::Nofile);
    signals::survive_long_files().map_err(Error::setup("signals"))?;
    // Nobody means to withhold from the daemon what it makes for itself.
    let mask = umask(Mode::empty()).difference(Mode::RWXU);
    umask(mask);
    let key = client_key(&config)?;
    let standby = standby.map_or_else(|| Standby::of_daemon(&config.folder), Ok)?;
    let Standby { job, job_fd, place, listening, run, heirs, .. } = standby;
    let seats = Seats::new(&config);
    let (first_count, core_count) = (seats.count(), seats.most());
    let admission = Admission::new(config.staging, config.memory, fds, seats);
    let node = Arc::new(node_of(&config, job, admission));
    let admitted: Arc<[_]> = (0..core_count).map(|_| Mailbox::new()).collect();
    let lists = PollLists::new(core_count);
    let mut base = Base { node, lists, admitted, job_fd, fds, key, config };

    let mut first = Part::new(&base, 0)?;
    let starter = base.config.starter.as_ref();
    let starter = starter.and_then(|output| Starter::watch(output, &first.reactor));
    let serves = base.config.serving.is_some();
    if !serves {
        first.reach_server(&mut base, starter.as_ref(), mask)?;
    }
    // Before anybody can know of this server, and end it.
    let signals = Signals::catch().map_err(Error::setup("signals"))?;
    let serving = first.serve_others(&base)?;
    if serves {
        // That is this one, which coalesces the files of its own node.
        first.reach_server(&mut base, starter.as_ref(), mask)?;
    }
    let others = Rc::new(Others { base: base.clone(), threads: RefCell::default() });
    (1..first_count).try_for_each(|index| others.start(index))?;
    let tops = first.tops(&base.config);
    let connections = Rc::new(Connections::default());
    let listener = Rc::new(Listener {
        core: Rc::clone(&first.core),
        reactor: first.reactor.clone(),
        connections: Rc::clone(&connections),
        admitted: Arc::clone(&base.admitted),
        start_wanted: Box::new({
            let others = Rc::clone(&others);
            move || others.start_wanted()
        }),
        // Whoever starts one by hand chooses its cores, if only by `taskset`.
        shares_cores: base.config.cores.is_empty() && base.config.starter.is_some(),
    });
    listener.serve(run, heirs, listening).map_err(Error::setup("the socket"))?;
    first.core.handle.spawn(Class::Latency, mail::read(Rc::clone(&first.core)));
    let views = first.mount_views(&base.config, tops)?;
    // Clients take their own umask off the modes they send, and no more is to be taken off.
    umask(Mode::empty());
    base.node.shared().served.store(1, Ordering::Release);
    ready(serving.as_ref().map(|(address, _)| address));
    let life = Life {
        core: Rc::clone(&first.core),
        connections,
        is_for_job: base.config.starter.is_some(),
        linger: base.config.linger,
        stays: base.config.stays.zip(base.config.starter.clone()),
        coalesced: first.coalesced.clone(),
        service: first.service.clone(),
        views,
        loss: RefCell::default(),
    };
    let watched = signals.watch(&first.reactor).map_err(Error::setup("signals"))?;
    let loss = first.executor.run_until(life.live(&watched));
    drop(serving);
    others.join();
    let summary = loss.told_in(status::summary(&base.node));
    let has_files = base.node.session_count() > 0 || first.server.is_some() || serves;
    drop(place);
    Ok((summary, first.remains(has_files)))
}

/// The key of the server of mapped folders, if there is one.
fn client_key(config: &Config) -> Result<Option<Key>, Error> {
    let Some(remote) = &config.remote else { return Ok(None) };
    let given = Given::ClientKey(remote.key.clone().unwrap_or_default());
    Key::given(remote.key.as_deref(), Key::read).map(Some).map_err(Error::unusable(given))
}

/// The state that the executors of a daemon of this configuration share.
fn node_of(config: &Config, job: shm::Job, admission: Admission) -> Node {
    let mut node = Node::new(job, admission);
    node.remote = config.remote.as_ref().map(RemoteStatus::from);
    node.multifiles = status::multifiles(config);
    node.command.clone_from(&config.command);
    node.samples = Mutex::new(config.takes_samples.then(Samples::default));
    node.trace = config.takes_trace.then(Arc::default);
    node.settings.clone_from(&config.settings);
    node
}

/// The common parts of every executor of a daemon.
#[derive(Clone)]
struct Base {
    node: Arc<Node>,
    lists: PollLists,
    admitted: Arc<[Mailbox<Admitted>]>,
    job_fd: Arc<OwnedFd>,
    /// Descriptors there may be.
    fds: u64,
    /// Of the server of remote files.
    key: Option<Key>,
    config: Config,
}

/// The executors but the first, each on a thread.
struct Others {
    base: Base,
    threads: RefCell<Vec<thread::JoinHandle<()>>>,
}

impl Others {
    fn join(&self) {
        for other in self.threads.take() {
            other.join().ok(); // A panic there has been printed, and its sessions are lost already.
        }
    }

    /// Starts executor `index`, and waits until it runs.
    fn start(&self, index: usize) -> Result<(), Error> {
        let (started, outcome) = mpsc::channel();
        self.spawn(index, move |_, made| drop(started.send(made)))?;
        outcome.recv().unwrap_or_else(|_| {
            let source = io::Error::other("it ended at once");
            Err(Error::Setup { what: "an executor's thread", source })
        })
    }

    /// Starts the next executor, if it is time to, and waits for nothing: it gets sessions once it
    /// runs.
    fn start_wanted(&self) {
        let Some(index) = lock(&self.base.node.admission).seats().wanted() else { return };
        if self.threads.borrow().len() >= index {
            return; // It is about to run.
        }
        let spawned = self.spawn(index, |base, made| match made {
            Ok(()) => base.node.add_core(),
            Err(error) => base.stop_growing(&error),
        });
        if let Err(error) = spawned {
            self.base.stop_growing(&error);
        }
    }

    fn spawn(
        &self,
        index: usize,
        begins: impl FnOnce(&Base, Result<(), Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let base = self.base.clone();
        let run = move || match Part::new(&base, index) {
            Ok(mut part) => {
                part.start_clients();
                begins(&base, Ok(()));
                let mail = mail::read(Rc::clone(&part.core));
                part.executor.run_until(mail);
            }
            Err(error) => begins(&base, Err(error)),
        };
        let spawned = thread::Builder::new().name(format!("kakehi-core-{index}")).spawn(run);
        let thread = spawned.map_err(Error::setup("an executor's thread"))?;
        self.threads.borrow_mut().push(thread);
        Ok(())
    }
}

impl Base {
    /// Those executors that run serve everybody.
    fn stop_growing(&self, why: &Error) {
        tracing::warn!("one executor less than there might be: {why}");
        lock(&self.node.admission).seats().close();
    }

    /// The way of one executor to the server of remote files.
    fn server(
        &self,
        handle: &Handle,
        reactor: &Reactor,
        sockets: &Sockets,
        own: &Own<Coalesced>,
    ) -> Result<Option<Rc<mounts::Servers>>, Error> {
        let Some((remote, key)) = self.config.remote.as_ref().zip(self.key.as_ref()) else {
            return Ok(None);
        };
        let member = |address: &Address| {
            let chosen = &self.config.ucx_variables;
            let workers = match address.carrier {
                Carrier::Stream => None,
                Carrier::Ucx => Some(Workers::new(handle, reactor, chosen).map_err(Error::Ucx)?),
            };
            let (sockets, place) = (sockets.clone(), address.clone());
            let (key, own) = (key.clone(), own.clone());
            let dial = Dial { sockets, address: place, key: key.clone(), workers, own };
            let client = Client::new(handle.clone(), dial, key, remote.timeout);
            let client = client.map_err(Error::setup("random numbers"))?;
            Ok(Member { name: address.to_string(), client })
        };
        let members = remote.addresses.iter().map(member).collect::<Result<_, Error>>()?;
        Ok(Some(Rc::new(mounts::Servers {
            group: Group::new(members, remote.spread),
            mounts: remote.mounts.clone(),
            own: own.clone(),
        })))
    }
}

/// One executor with its part of the daemon.
struct Part {
    executor: Executor,
    core: Rc<Core<Mounts>>,
    reactor: Reactor,
    machine: Machine,
    sockets: Sockets,
    server: Option<Rc<mounts::Servers>>,
    own: Own<Coalesced>,
    /// For daemons elsewhere.
    service: Option<Rc<Service<Coalesced>>>,
    /// Files served to daemons elsewhere.
    coalesced: Option<Coalesced>,
}

impl Part {
    /// Sets up executor `index` on the calling thread.
    fn new(base: &Base, index: usize) -> Result<Self, Error> {
        let config = &base.config;
        if let Some(cpu) = config.cores.get(index) {
            crate::affinity::pin(*cpu).map_err(Error::unusable(Given::Core(*cpu)))?;
        }
        // Staged bytes grow old while the daemon waits for a core. An old kernel has no such call.
        prefer_short_turns().ok();
        let events = Events::new().map_err(Error::setup("an executor"))?;
        let (idle, quiet, parker) = (config.idle, config.quiet, events.parker());
        let bounds = executor::Config { idle, quiet, ..executor::Config::default() };
        let clock = Rc::new(SystemClock);
        let executor = Executor::join(clock, Box::new(parker), bounds, &base.lists, index);
        let handle = executor.handle();
        let engines = Engines::new(&handle, config.engine, THREADS_PER_CORE, &events);
        if let Some(why) = engines.why_no_ring().filter(|_| index == 0) {
            tracing::warn!("io_uring requested but unavailable; using threads: {why}");
        }
        let sockets = Sockets::new(&handle, &events, &engines).map_err(Error::setup("sockets"))?;
        let reactor = Reactor::new(&handle, events);
        let machine = Machine::new(engines).learning(Learned::by(base.node.clients.clone()));
        let own = Own::default();
        let server = base.server(&handle, &reactor, &sockets, &own)?;
        let mounts = Mounts::new(machine.clone(), server.clone());
        let core = Core::new(index, handle, mounts, Arc::clone(&base.node), reap);
        core.handle.add_source(Box::new(Lanes::new(Rc::clone(&core))));
        let arrivals = Arrivals {
            core: Rc::clone(&core),
            reactor: reactor.clone(),
            admitted: Arc::clone(&base.admitted),
            job_fd: Arc::clone(&base.job_fd),
        };
        core.handle.spawn(Class::Latency, arrivals.take_in());
        let (service, coalesced) = (None, None);
        Ok(Self { executor, core, reactor, machine, sockets, server, own, service, coalesced })
    }

    /// Looks for the servers of remote files from now on: to open the files that this daemon serves
    /// to itself may take longer than a server may be away.
    fn start_clients(&self) {
        self.server.iter().for_each(|server| server.group.start(&self.core.handle));
    }

    /// Waits until a server of remote files is reached; the other executors do without those that
    /// are not. Does not wait if the starter has exited.
    fn reach_server(
        &mut self,
        base: &mut Base,
        starter: Option<&Starter>,
        mask: Mode,
    ) -> Result<(), Error> {
        self.start_clients();
        let Some((server, remote)) = self.server.as_ref().zip(base.config.remote.as_mut()) else {
            return Ok(());
        };
        let forsaken = async {
            let Some(starter) = starter else { return future::pending().await };
            starter.gone().await;
            Err(io::Error::other("nobody waits for it any more"))
        };
        let reached = self.executor.run_until(first(server.group.reach(), forsaken));
        reached.map_err(|source| Error::Remote { addresses: remote.addresses.clone(), source })?;
        for mount in &remote.mounts {
            let mode = (Mode::RWXU | Mode::RWXG | Mode::RWXO).difference(mask);
            let made = self.executor.run_until(server.make_folder(&mount.remote, mode));
            made.map_err(Error::unusable(Given::RemoteFolder(mount.remote.clone())))?;
        }
        let names = server.group.names();
        remote.addresses.retain(|address| names.contains(&address.to_string()));
        Ok(())
    }

    /// Returns what may be freed after the daemon has reported its end: names, and everything else
    /// unless it `has_files`, which are closed now.
    fn remains(mut self, has_files: bool) -> Box<dyn Any> {
        let names = self.coalesced.take().map(|files| files.take_names());
        Box::new((names, (!has_files).then_some(self)))
    }

    /// The files to serve, those in multifiles among them.
    fn coalesced(&mut self, serving: &Serving, machine: Machine) -> Result<Coalesced, Error> {
        if !serving.coalesced.is_empty() {
            allocate_by_mebibytes(); // Some hundred bytes of every file are remembered.
        }
        let mut made = Vec::new();
        for Coalesce { folder, .. } in &serving.coalesced {
            let missing = coalesce::make_folder(&serving.root, folder);
            made.extend(missing.map_err(Error::unusable(Given::Root(serving.root.clone())))?);
        }
        let opened = self.executor.run_until(Coalesced::open(machine, &serving.coalesced));
        let files = opened.map_err(|(path, why)| {
            // One that has something in it by now stays.
            made.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
            Error::unusable(Given::Multifile(path))(why)
        })?;
        self.coalesced = Some(files.clone());
        Ok(files)
    }

    /// The folders to mount, if that is asked for, and what each one is at its server.
    fn tops(&mut self, config: &Config) -> Vec<Top> {
        let remote = config.remote.as_ref().filter(|_| config.view != Viewing::None);
        let locals = remote.into_iter().flat_map(|remote| &remote.mounts);
        let locals = view::tops(locals.map(|mount| &mount.local));
        let look = |local| self.executor.run_until(Top::look(&self.core, local));
        locals.into_iter().map(look).collect()
    }

    /// Mounts the folders whose files are a server's. Before anybody is let in: from now on these
    /// files have the device numbers of their views.
    fn mount_views(&self, config: &Config, tops: Vec<Top>) -> Result<Vec<Rc<View>>, Error> {
        let (mut views, mut are_all) = (Vec::new(), !tops.is_empty());
        for top in tops {
            let local = top.local.clone();
            match View::mount(&self.core, &self.reactor, top, config) {
                Ok(view) => views.push(view),
                Err(why)
                    if config.view == Viewing::Always
                        || config.refuses_taken && why.kind() == io::ErrorKind::ResourceBusy =>
                {
                    return Err(Error::unusable(Given::View(local))(why));
                }
                Err(why) => {
                    view::tell_of_none(&local, &why);
                    are_all = false;
                }
            }
        }
        if config.has_own_mounts {
            self.core.node.has_own_mounts.set(()).ok();
        }
        if are_all {
            self.core.node.has_views.set(()).ok(); // The first executor's, of which there is one.
        }
        Ok(views)
    }

    /// Listens for daemons elsewhere, if that is asked for. The address is withdrawn with the
    /// result.
    fn serve_others(&mut self, base: &Base) -> Result<Option<(Address, Published)>, Error> {
        let Some(serving) = &base.config.serving else { return Ok(None) };
        let root = Given::Root(serving.root.clone());
        let place = Scope::below(&serving.root).map_err(Error::unusable(root.clone()))?;
        Published::check(serving.address_folder.as_deref())
            .map_err(Error::unusable(Given::address_folder(serving)))?;
        let Address { place: meeting, carrier } = &serving.address;
        let handle = &self.core.handle;
        let workers = match carrier {
            Carrier::Stream => None,
            Carrier::Ucx => {
                let workers = Workers::new(handle, &self.reactor, &base.config.ucx_variables);
                let workers = workers.map_err(Error::Ucx)?.for_server();
                Some(workers.map_err(Error::setup("a UCX worker"))?)
            }
        };
        let listening = self.executor.run_until(self.sockets.listen(meeting));
        let listen = Given::Listen(serving.address.clone());
        let listener = listening.map_err(Error::unusable(listen))?;
        let address = Address { place: listener.address().clone(), carrier: *carrier };
        let mut files = self.coalesced(serving, self.machine.at(place))?;
        if base.config.own().is_some() {
            files = files.taking_in(&base.node.clients, &self.core.handle);
            self.coalesced = Some(files.clone());
        }
        let boot = Boot::here().map_err(Error::setup("the name of this boot"))?;
        // Last: a server that cannot serve leaves nothing behind.
        let (key, folder) = records(serving, base.config.own().is_none())?;
        let handle = &self.core.handle;
        let service = Service::recording_in(folder, handle.clone(), files, base.fds);
        let service = service.map_err(Error::unusable(root))?;
        handle.spawn(Class::Latency, Rc::clone(&service).tidy());
        match base.config.own() {
            Some(_) => self.own.set(&service),
            None => self.service = Some(Rc::clone(&service)),
        }
        let server = Server::new(service, key, boot);
        let listening = Listening { address: address.to_string(), traffic: server.traffic() };
        base.node.listening.set(listening).ok(); // The first executor's, of which there is one.
        handle.spawn(Class::Latency, server.listen(listener, workers));
        let published = Published::write(&address, serving.address_folder.as_deref());
        let given = Given::address_folder(serving);
        Ok(Some((address, published.map_err(Error::unusable(given))?)))
    }
}

/// A server's key and its folder in its root, made if they are missing. It `keeps` records.
fn records(serving: &Serving, keeps: bool) -> Result<(Key, Folder), Error> {
    let (mut key_made, path) = (false, serving.key.as_deref());
    let key = Key::given(path, |path| {
        let (key, is_made) = Key::read_or_make(path)?;
        key_made = is_made;
        Ok(key)
    });
    let given = Given::ServerKey(serving.key.clone().unwrap_or_default());
    let key = key.map_err(Error::unusable(given))?;
    let folder = Folder::create(&serving.root, keeps).inspect_err(|_| {
        if let Some(path) = path.filter(|_| key_made) {
            std::fs::remove_file(path).ok(); // Nobody has had time to copy it.
        }
    });
    Ok((key, folder.map_err(Error::unusable(Given::Root(serving.root.clone())))?))
}
