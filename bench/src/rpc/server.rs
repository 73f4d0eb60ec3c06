//! Our server: one executor on one thread, packets into buffers of a pool, buffers into the file.
//!
//! Every packet on the way has its buffer, for which a client holds a credit; the task that writes
//! it owns the buffer, and its end is the credit's return. So nothing here can grow.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use executor::{Class, Credits, Handle, Notify};
use serde::{Deserialize, Serialize};
use uring::{Engines, File, Frames, Halves, Listener, Pool, Receiver, Stages};

use super::{
    answers::Answers,
    intake::Intake,
    packet::{NUMBER_LEN, Run},
};
use crate::meter::{Meter, Sample};

/// Clients send longer packets at any time, and shorter ones in turns. As in the daemon.
const SHORT_LEN_MAX: usize = 8 << 10;

/// Treatment of packets in a run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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
    /// Packets that clients may have on the way.
    pub(crate) places: Credits,
    /// Of what they may have on the way.
    pub(crate) halves: Halves,
    /// Bytes written, or dropped as told.
    stored_len: Cell<u64>,
    /// Packets of each connection.
    shares: RefCell<Vec<Rc<Cell<u64>>>>,
    pub(crate) news: Notify,
    pub(crate) meter: Meter,
}

impl Server {
    pub(crate) fn new(
        handle: &Handle,
        engines: &Engines,
        file: Option<File>,
        run: Run,
    ) -> anyhow::Result<Rc<Self>> {
        let pool = Pool::new(run.part_len(), run.depth as usize * run.parts());
        let (handle, engines) = (handle.clone(), engines.clone());
        let (stored_len, shares) = (Cell::new(0), RefCell::default());
        let (news, meter) = (Notify::new(), Meter::new(run.count));
        let places = Credits::new(run.depth.into());
        let halves = Halves::of(u64::from(run.depth) * run.size as u64);
        Ok(Rc::new(Self {
            handle,
            engines,
            pool,
            file,
            run,
            places,
            halves,
            stored_len,
            shares,
            news,
            meter,
        }))
    }

    /// Serves clients until all packets are served, and every client knows and has left.
    pub(crate) async fn serve(self: Rc<Self>, mut listener: Listener) -> anyhow::Result<Sample> {
        let mut connections = Vec::new();
        for _ in 0..self.run.clients {
            let stream = listener.accept().await?;
            stream.set_window_min(self.run.window_len())?;
            connections.push(stream.split());
        }
        // Only now, so that all clients begin together.
        let stages = Stages::in_turns(&self.handle);
        let connected = Rc::new(Cell::new(connections.len()));
        for (receiver, sender) in connections {
            let frames = Frames::new(receiver, self.pool.clone(), &stages);
            let answers = Answers::new(Rc::clone(&self));
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

    /// Returns the cost of the run, once all packets are served.
    pub(crate) async fn sample(&self) -> anyhow::Result<Sample> {
        self.news.until(|| self.is_done()).await;
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
        let admit = |_: &_| answers.spend().map(|()| size);
        let mut intake = Intake::new(self, Rc::clone(&answers));
        while let Ok(Some(frame)) = intake.wait(frames.next(admit)).await {
            if frame.is_last {
                share.set(share.get() + 1);
            }
            let mut at = u64::from_le_bytes(frame.head) + frame.at as u64;
            let lent = frame.lent.iter().flat_map(|lent| lent.as_slice().iter().cloned());
            for body in frame.body.into_iter().chain(lent) {
                let share = frames.share(body.len()).filter(|_| body.len() <= SHORT_LEN_MAX);
                let len = body.len() as u64;
                intake.take(at, body, share);
                at += len;
            }
        }
        intake.store();
    }

    fn unfairness(&self) -> u64 {
        let shares = self.shares.borrow();
        let most = shares.iter().map(|share| share.get()).max().unwrap_or(0);
        let least = shares.iter().map(|share| share.get()).min().unwrap_or(0);
        most * 1000 / least.max(1)
    }

    /// True if all packets are served.
    pub(crate) fn is_done(&self) -> bool {
        self.stored_len.get() == self.run.count * self.run.size as u64
    }

    pub(crate) fn count(&self, len: usize) {
        self.stored_len.set(self.stored_len.get() + len as u64);
        self.meter.served(self.stored_len.get() / self.run.size as u64);
        if self.is_done() {
            self.news.notify_all();
        }
    }
}
