//! Connections: who may come in, and as what.
//!
//! Runs on the first executor. A client is admitted here and then handed to the executor that
//! serves it, which answers its greeting once its session can be found.

use std::{
    cell::{Cell, RefCell},
    io, mem,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use executor::{Class, Handle, Mailbox, Notify, first, lock};
use remote::AcceptBackoff;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::geteuid,
};
use storage::segment::Segment;
use uring::{Peer, Reactor, Watch, peer_process};
use wire::{Control, Greeting, Refusal, Role, VERSION, Welcome};

use crate::{
    admission::Grant,
    affinity,
    core::Core,
    mounts::Mounts,
    node::Mail,
    socket::{self, Packet},
    statistics::Loss,
    status,
};

/// A connection that has not greeted after this is closed.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// Connections that may be greeting at a time; more wait to be accepted.
const GREETING_COUNT_MAX: usize = 256;
/// How often what cannot be watched is looked at.
const LOOKED_AT: Duration = Duration::from_millis(100);

/// An admitted client on its way to its executor.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) id: u32,
    pub(crate) rank: Option<u32>,
    pub(crate) grant: Grant,
    pub(crate) segment: Segment,
    pub(crate) segment_fd: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) process: OwnedFd,
}

/// Counts of connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// `run` connections there are.
    pub(crate) runs: Cell<usize>,
    /// True if there ever was one.
    pub(crate) was_attached: Cell<bool>,
    /// Connections that asked the daemon to stop, and wait for the answer.
    pub(crate) stoppers: RefCell<Vec<Rc<OwnedFd>>>,
    /// Signalled when one of these has changed.
    pub(crate) changed: Notify,
    /// True while a program has the connection that those of the first run inherit.
    pub(crate) has_heirs: Cell<bool>,
    greeting: Cell<usize>,
    /// Signalled when one has greeted, or has been given up.
    greeted: Notify,
}

impl Connections {
    /// Waits until another connection may greet.
    async fn wait_for_room(&self) {
        self.greeted.until(|| self.greeting.get() < GREETING_COUNT_MAX).await;
    }
}

/// A descriptor that is waited for, by looking now and then where the kernel refuses to watch it:
/// the end of a run is not to be missed, nor told of before it is there.
struct Awaited {
    fd: Rc<OwnedFd>,
    news: Notify,
    watch: Option<Watch>,
}

impl Awaited {
    fn new(reactor: &Reactor, fd: Rc<OwnedFd>) -> Self {
        let news = Notify::new();
        let watch = reactor.watch(Rc::clone(&fd), &news);
        let watch =
            watch.inspect_err(|why| tracing::warn!("a run is looked at, not watched: {why}"));
        Self { fd, news, watch: watch.ok() }
    }

    /// Waits until something may have come; returns whether it has.
    async fn is_ready(&self, handle: &Handle) -> bool {
        if let Some(watch) = &self.watch {
            self.news.until(|| watch.take_ready()).await;
            return true;
        }
        handle.sleep(LOOKED_AT).await;
        let mut looked = [PollFd::new(&*self.fd, PollFlags::IN)];
        matches!(poll(&mut looked, Some(&Timespec::default())), Ok(1..))
    }
}

/// Accepts connections.
pub(crate) struct Listener {
    pub(crate) core: Rc<Core<Mounts>>,
    pub(crate) reactor: Reactor,
    pub(crate) connections: Rc<Connections>,
    pub(crate) admitted: Arc<[Mailbox<Admitted>]>,
    /// Starts another executor, if it is time to.
    pub(crate) start_wanted: Box<dyn Fn()>,
    /// True if the daemon was started by a rank, and has no cores of its own.
    pub(crate) shares_cores: bool,
}

impl Listener {
    /// Serves the run that has started this daemon, and accepts for ever.
    ///
    /// # Errors
    ///
    /// The socket cannot be watched.
    pub(crate) fn serve(
        self: Rc<Self>,
        run: Option<OwnedFd>,
        heirs: Option<OwnedFd>,
        listening: OwnedFd,
    ) -> io::Result<()> {
        run.into_iter().for_each(|run| self.attach(run));
        heirs.into_iter().for_each(|heirs| self.watch_heirs(heirs));
        let (listening, news) = (Rc::new(listening), Notify::new());
        let watch = self.reactor.watch(Rc::clone(&listening), &news)?;
        let handle = self.core.handle.clone();
        handle.spawn(Class::Latency, async move {
            let backoff = AcceptBackoff::new(&self.core.handle);
            loop {
                news.until(|| watch.take_ready()).await;
                self.accept_from(&listening, &backoff).await;
            }
        });
        Ok(())
    }

    /// Accepts all who wait.
    async fn accept_from(self: &Rc<Self>, listening: &OwnedFd, backoff: &AcceptBackoff) {
        loop {
            self.connections.wait_for_room().await;
            match socket::accept_from(listening) {
                Ok(socket) => self.meet(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return backoff.pause_after(&error).await,
            }
        }
    }

    /// Holds the connection of the run that has started this daemon, which needs no greeting: it
    /// counts at once, whatever comes of it.
    fn attach(self: &Rc<Self>, run: OwnedFd) {
        let process = Peer::of(&run).ok().and_then(|peer| peer.process);
        if let (true, Some(process)) = (self.shares_cores, process) {
            affinity::share_those_of(process);
        }
        self.count_run();
        let this = Rc::clone(self);
        let hold = async move { this.hold(Rc::new(run)).await };
        self.core.handle.spawn(Class::Latency, hold);
    }

    /// Notes when the last program is gone that has the connection which those of the run inherit.
    fn watch_heirs(self: &Rc<Self>, heirs: OwnedFd) {
        self.connections.has_heirs.set(true);
        let (this, heirs) = (Rc::clone(self), Rc::new(heirs));
        self.core.handle.spawn(Class::Latency, async move {
            let line = Awaited::new(&this.reactor, Rc::clone(&heirs));
            drop(this.until_closed(&heirs, &line).await);
            this.connections.has_heirs.set(false);
            this.connections.changed.notify_all();
        });
    }

    /// Serves a connection.
    fn meet(self: &Rc<Self>, socket: OwnedFd) {
        let count = &self.connections.greeting;
        count.set(count.get() + 1);
        let this = Rc::clone(self);
        self.core.handle.spawn(Class::Latency, async move {
            let socket = Rc::new(socket);
            let greeting = this.greeting(&socket).await;
            this.connections.greeting.set(this.connections.greeting.get() - 1);
            this.connections.greeted.notify_all();
            match greeting {
                Ok(greeting) => this.receive(socket, greeting).await,
                Err(Some(refusal)) => refuse(&*socket, refusal),
                Err(None) => {}
            }
        });
    }

    /// Reads the greeting of a connection; `None` when the other side does not speak our protocol.
    async fn greeting(&self, socket: &Rc<OwnedFd>) -> Result<Greeting, Option<Refusal>> {
        let peer = Peer::of(&**socket).map_err(|_| None)?;
        if peer.user != Some(geteuid().as_raw()) {
            return Err(Some(Refusal::User));
        }
        let news = Notify::new();
        let watch = self.reactor.watch(Rc::clone(socket), &news).map_err(|_| None)?;
        let greeted = news.until(|| watch.take_ready());
        if !self.in_time(GREETING_TIME_MAX, greeted).await {
            return Err(None);
        }
        let packet = self.packet(socket).ok().flatten().ok_or(None)?;
        let greeting = Greeting::decode(packet.bytes()).map_err(|_| None)?;
        if greeting.version != VERSION {
            return Err(Some(Refusal::Version));
        }
        if self.core.node.is_stopping() && greeting.role != Role::Control(Control::Status) {
            return Err(Some(Refusal::Stopping));
        }
        // Who only asks something is not served, and may be bound to other cores or to none.
        let is_served = !matches!(greeting.role, Role::Control(_));
        if let (true, Some(process)) = (self.shares_cores && is_served, peer.process) {
            affinity::share_those_of(process);
        }
        Ok(greeting)
    }

    async fn receive(&self, socket: Rc<OwnedFd>, greeting: Greeting) {
        match greeting.role {
            Role::Client => {
                if let Err(refusal) = self.admit(&socket, greeting.rank) {
                    refuse(&*socket, refusal);
                }
            }
            Role::Run => self.keep(socket).await,
            Role::Control(question) => self.answer(socket, question).await,
        }
    }

    /// Makes a session and sends it to its executor.
    fn admit(&self, socket: &Rc<OwnedFd>, rank: Option<u32>) -> Result<(), Refusal> {
        let node = &self.core.node;
        let process = watched(socket)?;
        (self.start_wanted)();
        let (id, grant) = lock(&node.admission).enter().ok_or(Refusal::Full)?;
        let made = make(socket, process, id, rank, grant);
        match made {
            Ok(client) => {
                if let Some(mailbox) = self.admitted.get(grant.executor) {
                    mailbox.send(client);
                }
                Ok(())
            }
            Err(error) => {
                tracing::warn!("no session could be made: {error}");
                lock(&node.admission).leave(id, grant);
                Err(Refusal::Full)
            }
        }
    }

    /// Serves a `run` connection that has greeted.
    async fn keep(&self, socket: Rc<OwnedFd>) {
        self.count_run();
        let has_own_mounts = self.core.node.has_own_mounts.get().is_some();
        if welcome(&*socket, has_own_mounts).is_err() {
            return self.leave_run();
        }
        self.hold(socket).await;
    }

    fn count_run(&self) {
        let connections = &self.connections;
        connections.runs.set(connections.runs.get() + 1);
        connections.was_attached.set(true);
        connections.changed.notify_all();
    }

    fn leave_run(&self) {
        self.connections.runs.set(self.connections.runs.get() - 1);
        self.connections.changed.notify_all();
    }

    /// Holds a `run` connection that counts until its other end goes, and the program that
    /// inherited it: some close every descriptor they find.
    async fn hold(&self, socket: Rc<OwnedFd>) {
        let line = Awaited::new(&self.reactor, Rc::clone(&socket));
        if let Some(heir) = self.until_closed(&socket, &line).await {
            let heir = Awaited::new(&self.reactor, Rc::new(heir));
            while !heir.is_ready(&self.core.handle).await {}
        }
        self.leave_run();
    }

    /// Returns the process that has said that it becomes the program, if it can be watched.
    async fn until_closed(&self, socket: &OwnedFd, line: &Awaited) -> Option<OwnedFd> {
        let mut heir = None;
        loop {
            line.is_ready(&self.core.handle).await;
            match self.packet(socket) {
                Ok(Some(_)) => heir = peer_process(socket).ok().flatten(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => return heir,
            }
        }
    }

    /// The next message; it has no business with descriptors.
    fn packet(&self, socket: &OwnedFd) -> io::Result<Option<Packet>> {
        let mut packet = socket::receive(socket)?;
        let fds = packet.as_mut().map(|packet| mem::take(&mut packet.fds)).unwrap_or_default();
        drop(self.core.storage.machine().all_foreign(fds));
        Ok(packet)
    }

    async fn answer(&self, socket: Rc<OwnedFd>, question: Control) {
        if welcome(&*socket, false).is_err() {
            return;
        }
        match question {
            Control::Status => {}
            Control::Drain => drop(self.core.node.ask_all(Mail::DrainAll).await),
            Control::Stop => {
                self.connections.stoppers.borrow_mut().push(socket);
                return self.connections.changed.notify_all();
            }
        }
        // Whoever asked may have gone without waiting for the answer.
        let answer = status::document(&self.core.node, Loss::default()).await;
        socket::send(&*socket, &answer, &[]).ok();
    }

    /// Waits for `future`, but no longer than `time`; returns whether it was ready.
    async fn in_time(&self, time: Duration, future: impl Future<Output = ()>) -> bool {
        let in_time = async {
            future.await;
            true
        };
        let too_late = async {
            self.core.handle.sleep(time).await;
            false
        };
        first(in_time, too_late).await
    }
}

/// Opens the descriptor that reports the end of the process that has connected.
fn watched(socket: &OwnedFd) -> Result<OwnedFd, Refusal> {
    let process = peer_process(socket).map_err(|error| {
        tracing::warn!("a client cannot be watched: {error}");
        Refusal::Full
    });
    process?.ok_or(Refusal::Unseen)
}

fn make(
    socket: &OwnedFd,
    process: OwnedFd,
    id: u32,
    rank: Option<u32>,
    grant: Grant,
) -> io::Result<Admitted> {
    let arena_max = usize::try_from(grant.arena_max).map_err(io::Error::other)?;
    let (segment, segment_fd) = Segment::create(arena_max)?;
    let socket = socket.try_clone()?;
    Ok(Admitted { id, rank, grant, segment, segment_fd, socket, process })
}

/// Answers a greeting that asks for no session.
fn welcome(socket: impl AsFd, has_view: bool) -> io::Result<()> {
    let welcome = Welcome { session: Ok(0), has_view, ..Welcome::refuse(Refusal::Full) };
    socket::send(socket, &welcome.encode(), &[])
}

/// Answers a greeting by a refusal. A peer that has gone needs none.
fn refuse(socket: impl AsFd, refusal: Refusal) {
    socket::send(socket, &Welcome::refuse(refusal).encode(), &[]).ok();
}
