//! Our server: one executor on one thread, packets into registered buffers, buffers into the file.
//!
//! Every packet on the way has its buffer, for which the client holds a credit; the task that
//! writes it owns the buffer, and its end is the credit's return. So nothing here can grow.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use anyhow::Context as _;
use executor::{Class, Handle, Notify};
use uring::{
    Engines, File, Frames, Grants, Heap, Listener, Pool, Receiver, SOCKET_LEN_MAX, Sender, Stages,
};

use super::{
    intake::Intake,
    packet::{NUMBER_LEN, Run},
};
use crate::meter::{Meter, Sample};

/// Longer packets are received in place. So few of them wait in the socket that they are still in
/// the cache, as the kernel sees to by itself. Shorter ones leave room in small steps, each of
/// which would wake the client, so they have room for all.
const AHEAD_LEN_MAX: usize = 16 << 10;
/// Clients send longer packets at any time, and shorter ones in turns. As in the daemon.
const SHORT_LEN_MAX: usize = 8 << 10;
/// A client's credits return in so many batches,
const BATCHES: u32 = 4;
/// or in fewer, of packets with so many bytes: half a turn's.
const BATCH_LEN: usize = 128 << 10;

/// What a run does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Receives them, and writes nothing.
    Request,
    /// Writes them too.
    Integrated,
    /// Receives bytes, whatever they are.
    Network,
}

/// Serves one run and returns what it took.
pub(crate) struct Server {
    pub(crate) handle: Handle,
    pub(crate) engines: Engines,
    pub(crate) pool: Pool,
    /// `None`: packets are dropped.
    pub(crate) file: Option<File>,
    pub(crate) run: Run,
    /// Bytes written, or dropped as told.
    stored_len: Cell<u64>,
    /// Packets of each connection.
    shares: RefCell<Vec<Rc<Cell<u64>>>>,
    news: Notify,
    pub(crate) meter: Meter,
}

impl Server {
    pub(crate) fn new(
        handle: &Handle,
        engines: &Engines,
        file: Option<File>,
        run: Run,
    ) -> anyhow::Result<Rc<Self>> {
        let part_len = run.size.min(SOCKET_LEN_MAX);
        let pool = Pool::new(part_len, run.depth as usize * run.size.div_ceil(part_len));
        engines.register(pool.memory()).context("registered buffers")?;
        let (handle, engines) = (handle.clone(), engines.clone());
        let (stored_len, shares) = (Cell::new(0), RefCell::default());
        let (news, meter) = (Notify::new(), Meter::new(run.count));
        Ok(Rc::new(Self { handle, engines, pool, file, run, stored_len, shares, news, meter }))
    }

    /// Serves clients until all packets are served, and every client knows and has left.
    pub(crate) async fn serve(self: Rc<Self>, mut listener: Listener) -> anyhow::Result<Sample> {
        let share = self.run.depth / self.run.clients;
        let mut connections = Vec::new();
        for _ in 0..self.run.clients {
            let stream = listener.accept().await?;
            if self.run.size <= AHEAD_LEN_MAX {
                stream.set_window_min(share as usize * (NUMBER_LEN + self.run.size))?;
            }
            connections.push(stream.split());
        }
        // Only now, so that all clients begin together.
        let stages = Stages::in_turns(&self.handle);
        let connected = Rc::new(Cell::new(connections.len()));
        for (receiver, sender) in connections {
            let frames = Frames::new(receiver, self.pool.clone(), &stages);
            let answers = Answers::new(share, self.run.size);
            let (server, own, connected) = (Rc::clone(&self), answers.clone(), connected.clone());
            self.handle.spawn(Class::Latency, async move {
                Rc::clone(&server).receive(frames, own).await;
                connected.set(connected.get() - 1);
                server.news.notify_all();
            });
            self.handle.spawn(Class::Latency, async move { answers.send(sender).await });
        }
        let sample = self.sample().await;
        self.news.until(|| connected.get() == 0).await;
        sample
    }

    /// What the run took, once all packets are served.
    pub(crate) async fn sample(&self) -> anyhow::Result<Sample> {
        let total = self.run.count * self.run.size as u64;
        self.news.until(|| self.stored_len.get() == total).await;
        Ok(Sample { unfairness: self.unfairness(), ..self.meter.sample() })
    }

    async fn receive(
        self: Rc<Self>,
        mut frames: Frames<Receiver, NUMBER_LEN>,
        answers: Rc<Answers>,
    ) {
        let share = Rc::new(Cell::new(0));
        self.shares.borrow_mut().push(Rc::clone(&share));
        let size = self.run.size;
        let admit = |_: &_| answers.grants.spend().map(|()| size);
        let mut intake = Intake::new(self, Rc::clone(&answers));
        while let Ok(Some(frame)) = intake.wait(frames.next(admit)).await {
            let Some(body) = frame.body else { return };
            if frame.is_last {
                share.set(share.get() + 1);
                answers.received();
            }
            let share = frames.share(body.len()).filter(|_| body.len() <= SHORT_LEN_MAX);
            intake.take(u64::from_le_bytes(frame.head) + frame.at as u64, body, share);
        }
        intake.store();
    }

    fn unfairness(&self) -> u64 {
        let shares = self.shares.borrow();
        let most = shares.iter().map(|share| share.get()).max().unwrap_or(0);
        let least = shares.iter().map(|share| share.get()).min().unwrap_or(0);
        most * 1000 / least.max(1)
    }

    pub(crate) fn count(&self, len: usize) {
        self.stored_len.set(self.stored_len.get() + len as u64);
        let served = self.stored_len.get() / self.run.size as u64;
        self.meter.served(served);
        if served == self.run.count {
            self.news.notify_all();
        }
    }
}

/// Credits to be returned to one client, many at a time: an answer costs a system call, and what it
/// sets off in the client another.
pub(crate) struct Answers {
    /// What was granted and not yet used.
    grants: Grants,
    /// Credits to return.
    owed: Cell<u32>,
    /// Bytes of a packet.
    size: usize,
    /// Bytes stored that make no whole packet yet.
    stored_len: Cell<usize>,
    /// Packets received and not yet served.
    in_service: Cell<u32>,
    /// So many are returned at once; fewer only when nothing is in service.
    batch_len: u32,
    news: Notify,
}

impl Answers {
    /// The client starts with `share` credits, which it is told first.
    pub(crate) fn new(share: u32, size: usize) -> Rc<Self> {
        let grants = Grants::default();
        let (owed, stored_len, in_service) = (Cell::new(share), Cell::new(0), Cell::new(0));
        let least = u32::try_from(BATCH_LEN / size).unwrap_or(share).min(share);
        let (batch_len, news) = (share.div_ceil(BATCHES).max(least), Notify::new());
        Rc::new(Self { grants, owed, size, stored_len, in_service, batch_len, news })
    }

    pub(crate) fn received(&self) {
        self.in_service.set(self.in_service.get() + 1);
    }

    /// Counts what was stored: as many bytes as a packet has are a credit, whichever they are.
    pub(crate) fn served(&self, len: usize) {
        let stored_len = self.stored_len.get() + len;
        self.stored_len.set(stored_len % self.size);
        let count = u32::try_from(stored_len / self.size).unwrap_or(u32::MAX);
        self.in_service.set(self.in_service.get().saturating_sub(count));
        self.owed.set(self.owed.get() + count);
        if self.is_due() {
            self.news.notify_all();
        }
    }

    fn is_due(&self) -> bool {
        let owed = self.owed.get();
        owed >= self.batch_len || owed > 0 && self.in_service.get() == 0
    }

    /// The credits of the next answer, once it is due.
    pub(crate) async fn due(&self) -> u64 {
        self.news.until(|| self.is_due()).await;
        let count = self.owed.take();
        self.grants.add(count);
        count.into()
    }

    async fn send(&self, mut sender: Sender) {
        let bytes = Heap::buffer(NUMBER_LEN);
        loop {
            bytes.store(&self.due().await.to_le_bytes());
            if sender.send_all(vec![bytes.clone()]).await.is_err() {
                return;
            }
        }
    }
}
