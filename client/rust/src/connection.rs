//! The process's connection to its daemon: one control socket, one session segment, its lanes.
//!
//! A request takes whichever lane is free, starting with the one the thread used last, so a thread
//! that is alone never waits and a signal handler that interrupts a waiting thread finds another
//! lane. Where none is free it waits for the one it prefers.
//!
//! # Waiting
//!
//! A thread looks for as long as its answers have been worth waiting for ([`Patience`]), then rings
//! if another executor polls for its own, and sleeps on the lane's bell; every [`LOOK`] it looks
//! whether the daemon still lives. A daemon that does not acknowledge a request within the fence
//! timeout is given up: it is killed and its exit awaited, so that it writes nothing any more when
//! this side begins to. One whose file system hangs ends only with that; it is waited for by files
//! that it was about to write ([`Connection::await_exit`]), others go on. One that cannot be
//! killed, as from a container with processes of its own, is waited for.

mod bundle;
mod dial;
mod shares;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use core::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::{self, Errno},
    net::{SendFlags, send},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use shm::{Guard, Job, LANES, Lock, Once, Session, lane::Requester, section, thread};
use wire::{Message, Phase, Reason, Refusal, Registration, Reply, Request, Value};

use self::shares::Shares;
pub(crate) use self::{
    bundle::{Bundle, FOLDER_LEN_MAX, HeldFolders, LEN_MAX, Lease, Leases, Terms},
    dial::knock,
    shares::Source,
    tables::Tables,
};
use crate::{
    arena::{self, Arena},
    arena_growth::ArenaGrowth,
    clock::now,
    config::Config,
    descriptor_messages::send_with,
    host::Host,
    mount_namespace,
    patience::{Patience, look},
    recorder::{At, Recorder, Traced},
    sight::Sight,
    slots::Slots,
    socket::OwnNumber,
};

const LOOK: Duration = Duration::from_millis(100);
/// How long the exit of a killed daemon may take before it counts as held up by a file system.
const EXIT_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Looks when the daemon was just woken: it will not answer sooner than a sleeper is woken.
const SPINS_AFTER_DOORBELL: u32 = 50;

/// The daemon is gone, or was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The daemon said why.
    Refused(Refusal, u32),
    /// It could not be reached, or does not speak the protocol.
    Unreachable,
    /// The program has taken all numbers of descriptors. It may give some back.
    NoNumber,
}

/// A request that was sent, to be waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Number of its entry.
    seq: u32,
    /// The daemon was asleep, and was woken for it.
    woken: bool,
    /// Bytes that the daemon moves itself before it answers.
    moved_len: u64,
    traced: Option<Traced>,
}

/// A session as its client sees it.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) job: Job,
    pub(crate) slots: &'static Slots,
    pub(crate) arena: &'static Lock<Arena>,
    pub(crate) bundle: &'static Lock<Bundle>,
    pub(crate) folders: &'static HeldFolders,
    pub(crate) growth: ArenaGrowth,
    /// Where the block lies that files without room of their own take turns with.
    pub(crate) block: Lock<u64>,
    lanes: &'static [Lock<Requester, false>; LANES],
    /// Lanes that queues hold.
    pub(crate) held_count: AtomicUsize,
    pub(crate) socket: OwnNumber,
    pub(crate) shares: &'static Shares,
    pub(crate) host: &'static dyn Host,
    /// The daemon, if it has a number here.
    daemon: Option<Pid>,
    /// The process's sight when it connected.
    pub(crate) sight: Sight,
    /// Mapped folders have views.
    pub(crate) has_view: bool,
    /// Requests may be for a server, which takes its time.
    has_remote: bool,
    number: usize,
    executor: usize,
    lost: AtomicBool,
    /// The user was told that the daemon cannot be killed.
    is_told: AtomicBool,
    /// A killed daemon that has not exited yet.
    lingering: Once<OwnedFd>,
    fence_timeout: Duration,
    patience: Patience,
    pub(crate) recorder: &'static Recorder,
}

/// A lane held by this thread.
pub(crate) struct Lane<'a> {
    connection: &'a Connection,
    index: usize,
    requester: Guard<'a, Requester, false>,
}

/// All that makes a connection.
struct Greeted {
    met: dial::Met,
    sight: Sight,
}

impl Connection {
    /// Connects to the daemon that the settings name, and leaves the connection in `place`.
    pub(crate) fn open(
        config: &Config,
        host: &'static dyn Host,
        tables: &'static Tables,
        recorder: &'static Recorder,
        place: &'static Once<Self>,
    ) -> Result<&'static Self, Failure> {
        let met = dial::meet(config, host)?;
        let sight = mount_namespace::sight_beside(met.daemon);
        Self::keep(Greeted { met, sight }, config, host, tables, recorder, place)
    }

    /// Makes a connection, which is long: this frame is not below a greeting's.
    #[inline(never)]
    fn keep(
        greeted: Greeted,
        config: &Config,
        host: &'static dyn Host,
        tables: &'static Tables,
        recorder: &'static Recorder,
        place: &'static Once<Self>,
    ) -> Result<&'static Self, Failure> {
        let Greeted { met, sight } = greeted;
        let dial::Met { socket, daemon, welcome, segments: [session, job] } = met;
        let number = welcome.outcome().map_err(|why| Failure::Refused(why, welcome.version))?;
        let arena_len = usize::try_from(welcome.arena_len).unwrap_or(usize::MAX);
        let session = Session::open(session, arena_len).map_err(|_| Failure::Unreachable)?;
        let job = Job::open(job).map_err(|_| Failure::Unreachable)?;
        tables.slots.credit(welcome.file_credit);
        let arena_len = welcome.arena_len.min(session.arena().len() as u64);
        let mut arena = tables.arena.lock().map_err(|_| Failure::Unreachable)?;
        arena.cover(arena_len);
        let block = arena.take(arena::BLOCK).ok_or(Failure::Unreachable)?;
        drop(arena);
        let made = place.set(Self {
            session,
            job,
            slots: &tables.slots,
            arena: &tables.arena,
            bundle: &tables.bundle,
            folders: &tables.folders,
            growth: ArenaGrowth::new(arena_len),
            block: Lock::new(block),
            lanes: &tables.lanes,
            held_count: AtomicUsize::new(0),
            socket: OwnNumber::new(socket, host),
            shares: &tables.shares,
            host,
            daemon,
            sight,
            has_view: welcome.has_view,
            has_remote: config.rules().has_remote(),
            number: number as usize,
            executor: welcome.executor as usize,
            lost: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            lingering: Once::new(),
            fence_timeout: config.fence_timeout,
            patience: Patience::new(),
            recorder,
        });
        made.map_err(|_| Failure::Unreachable)
    }

    /// The session's number at the daemon.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// For the child of a fork, which has no session but may look at this one.
    pub(crate) fn abandon(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Hands an open file to the daemon. It counts as handed over when this returns: the kernel
    /// keeps the message even if this process dies.
    ///
    /// # Errors
    ///
    /// Why it was not handed over. That the kernel has no room for another descriptor in flight
    /// says nothing of the daemon.
    pub(crate) fn register(&self, registration: Registration, fd: impl AsFd) -> Result<(), Reason> {
        let message = Message::Register(registration).encode();
        loop {
            match self.socket.with(|socket| send_with(socket, &message, &fd)) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    self.lose();
                    return Err(Reason::DaemonLost);
                }
                Err(_) => return Err(Reason::Credit),
            }
        }
    }

    /// Sends one request and waits until it is completed; the result is as the system call's.
    pub(crate) fn call(&self, request: Request) -> Result<io::Result<u64>, Lost> {
        self.lane()?.call(request)
    }

    /// Takes a free lane, or waits for one.
    pub(crate) fn lane(&self) -> Result<Lane<'_>, Lost> {
        // A handler does not wait for what its own thread holds.
        let wait = || self.find_lane(|lane| lane.lock().ok());
        self.free_lane().or_else(wait).filter(|_| !self.is_lost()).ok_or(Lost)
    }

    /// Takes a lane that nobody has.
    pub(crate) fn free_lane(&self) -> Option<Lane<'_>> {
        self.find_lane(Lock::try_lock)
    }

    fn find_lane<'a>(
        &'a self,
        take: impl Fn(&'a Lock<Requester, false>) -> Option<Guard<'a, Requester, false>>,
    ) -> Option<Lane<'a>> {
        // Thread control blocks are pages apart; neighbours in memory get neighbouring lanes.
        let first = (thread() >> 12) % LANES;
        (first..LANES).chain(0..first).find_map(|index| {
            let requester = take(self.lanes.get(index)?)?;
            Some(Lane { connection: self, index, requester })
        })
    }

    /// Says that file `slot` has something staged which the daemon does not know of.
    ///
    /// Returns whether it was told: else it has been, and will look.
    pub(crate) fn raise_dirty(&self, slot: usize) -> bool {
        let is_news = self.session.shared().mark_dirty(slot);
        if is_news {
            self.raise(LANES);
        }
        is_news
    }

    /// Says again that something is staged, because there is a lot of it by now.
    pub(crate) fn kick(&self, slot: usize) {
        self.session.shared().mark_dirty(slot);
        self.raise(LANES);
        self.check_alive();
    }

    /// Says that something of the bundle is published that the daemon does not know of, or much.
    pub(crate) fn announce(&self) {
        self.raise(LANES);
    }

    /// Raises the bit of a lane, or of the dirty files; returns whether the daemon was asleep.
    fn raise(&self, lane: usize) -> bool {
        let shared = self.job.shared();
        let (Some(ready), Some(board)) =
            (shared.ready.get(self.number), shared.boards.get(self.executor))
        else {
            return false;
        };
        let must_ring = ready.raise(lane, board, self.number);
        if must_ring {
            self.ring();
        }
        must_ring
    }

    /// True if the daemon has not looked at a lane since its bit was raised.
    fn is_raised(&self, lane: usize) -> bool {
        self.job.shared().ready.get(self.number).is_some_and(|ready| ready.is_raised(lane))
    }

    /// Wakes an executor that sleeps while another one polls for it, and has not come round.
    fn ring_late(&self) {
        let board = self.job.shared().boards.get(self.executor);
        if board.is_some_and(|board| board.parked.must_ring_late()) {
            self.ring();
        }
    }

    fn ring(&self) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match self.socket.with(|socket| send(socket, &Message::Doorbell.encode(), flags)) {
            // A full socket has a doorbell in it already.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.check_alive(),
        }
    }

    /// Looks whether the daemon lives; costs one system call.
    pub(crate) fn check_alive(&self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A socket that somebody closed beneath us says nothing of the daemon.
        let gone = PollFlags::HUP | PollFlags::ERR;
        let is_gone = self.socket.with(|socket| {
            let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
            poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
                && fds.iter().any(|fd| fd.revents().intersects(gone))
        });
        if is_gone {
            self.lose();
        }
    }

    fn lose(&self) -> Lost {
        self.lost.store(true, Ordering::Release);
        Lost
    }

    /// Kills a daemon that does not answer, and waits for its end: from then on it writes nothing.
    /// `None` where it cannot be killed: it may yet write what it was about to.
    fn fence(&self) -> Option<Lost> {
        let daemon = self.daemon.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // As long as the socket is connected the daemon lives, and the pid is nobody else's.
        self.check_alive();
        if self.is_lost() {
            return Some(Lost);
        }
        let is_killed = |daemon: &OwnedFd| {
            matches!(pidfd_send_signal(daemon, Signal::KILL), Ok(()) | Err(Errno::SRCH))
        };
        let Some(daemon) = daemon.filter(is_killed) else {
            if !self.is_told.swap(true, Ordering::Relaxed) {
                self.host.notice(
                    "the daemon does not answer, and this process cannot kill it; waiting for it; \
                     kill it to go on without it",
                );
            }
            return None;
        };
        if !exits(&daemon, Some(&EXIT_TIME)) {
            match self.lingering.set(daemon) {
                Ok(_) | Err(_) => {}
            }
        }
        Some(self.lose())
    }

    /// Waits until a killed daemon has exited. Its threads have ended but for those that wait for a
    /// file system, so only a file that it was about to write needs this.
    pub(crate) fn await_exit(&self) {
        if let Some(daemon) = self.lingering.get() {
            exits(daemon, None);
        }
    }
}

/// Waits for a process's exit; whether it came in time.
fn exits(process: &OwnedFd, time: Option<&Timespec>) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    loop {
        match poll(&mut fds, time) {
            Err(Errno::INTR) => {}
            ended => return ended.is_ok_and(|count| count > 0),
        }
    }
}

impl Sent {
    /// The daemon is to move `len` bytes itself before it answers.
    pub(crate) const fn moving(self, len: u64) -> Self {
        Self { moved_len: len, ..self }
    }
}

impl Lane<'_> {
    /// The lane's buffer.
    pub(crate) fn buffer(&self) -> &[core::sync::atomic::AtomicU8] {
        self.connection.session.buffer(self.index)
    }

    /// Publishes a request, for [`wait`](Self::wait). `None`: wait for another first.
    pub(crate) fn submit(&mut self, request: Request) -> Option<Sent> {
        let (connection, began) = (self.connection, self.connection.recorder.begin());
        let lane = connection.session.shared().lane(self.index)?;
        let seq = self.requester.publish(lane, &request.encode().0)?;
        let woken = connection.raise(self.index);
        let traced = began.and_then(|began| connection.recorder.rung(request.kind(), seq, began));
        Some(Sent { seq, woken, moved_len: 0, traced })
    }

    /// Sends one request and waits until it is completed.
    pub(crate) fn call(&mut self, request: Request) -> Result<io::Result<u64>, Lost> {
        let sent = self.submit(request).ok_or(Lost)?;
        self.wait(sent)
    }

    /// True if a request is completed.
    pub(crate) fn is_done(&self, sent: Sent) -> bool {
        let lane = self.connection.session.shared().lane(self.index);
        let state = lane.map_or(0, |lane| self.requester.state(lane, sent.seq));
        Reply::phase_of(state, sent.seq) == Some(Phase::Completed)
    }

    /// Waits until a request is completed.
    pub(crate) fn wait(&mut self, sent: Sent) -> Result<io::Result<u64>, Lost> {
        let Sent { seq, woken, moved_len, traced } = sent;
        let connection = self.connection;
        let lane = connection.session.shared().lane(self.index).ok_or(Lost)?;
        let requester = &self.requester;
        let phase = || Reply::phase_of(requester.state(lane, seq), seq);
        let done = || phase() == Some(Phase::Completed);
        if woken {
            look(SPINS_AFTER_DOORBELL, done);
        } else if !connection.patience.wait(moved_len, done) {
            connection.ring_late();
        }
        let (mut silent, mut is_asked, began) = (Duration::ZERO, false, now());
        while !done() {
            let before = now();
            lane.bell.sleep(LOOK, done);
            if done() {
                break;
            }
            // A signal ends a sleep early, and a process that is stopped does not wait.
            let after = now();
            silent += after.saturating_sub(before).min(2 * LOOK);
            let is_away = connection.has_remote || phase().is_none();
            if is_away && after.saturating_sub(began) > section::PATIENCE {
                section::let_in();
            }
            connection.check_alive();
            if connection.is_lost() {
                return Err(Lost);
            }
            if silent >= LOOK && connection.is_raised(self.index) {
                // The thread that was to ring may be stopped, or be beneath this handler.
                connection.ring();
            }
            if silent < connection.fence_timeout {
                continue;
            }
            if phase().is_none() || is_asked && connection.is_raised(self.index) {
                if let Some(lost) = connection.fence() {
                    return Err(lost);
                }
            }
            // What was acknowledged may take its time, but a daemon that runs looks at its lanes.
            // It is not asked anything: every lane may be held by a thread that waits as this one.
            if !connection.raise(self.index) {
                connection.ring_late();
            }
            (silent, is_asked) = (Duration::ZERO, true);
        }
        let value = Value::decode(self.requester.take(lane, seq));
        if let Some(traced) = traced {
            let at = At { session: connection.number, place: self.index };
            connection.recorder.answered(at, seq, traced);
        }
        Ok(value.0.map_err(Errno::from_raw_os_error))
    }
}
