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
use uring::{Buffer, Engines, File, Frames, Grants, Heap, Listener, Pool, Sender};

use super::packet::{NUMBER_LEN, Run};
use crate::meter::{Meter, Sample};

/// A client's credits return in so many batches.
const BATCHES: u32 = 4;

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
    served: Cell<u64>,
    /// Packets of each connection.
    shares: RefCell<Vec<Rc<Cell<u64>>>>,
    news: Notify,
    meter: Meter,
}

impl Server {
    pub(crate) fn new(
        handle: &Handle,
        engines: &Engines,
        file: Option<File>,
        run: Run,
    ) -> anyhow::Result<Rc<Self>> {
        let pool = Pool::new(run.size, run.depth as usize);
        engines.register(pool.memory()).context("registered buffers")?;
        let (handle, engines) = (handle.clone(), engines.clone());
        let (served, shares) = (Cell::new(0), RefCell::default());
        let (news, meter) = (Notify::new(), Meter::new(run.count));
        Ok(Rc::new(Self { handle, engines, pool, file, run, served, shares, news, meter }))
    }

    /// Serves clients until all packets are served.
    pub(crate) async fn serve(self: Rc<Self>, mut listener: Listener) -> anyhow::Result<Sample> {
        let share = self.run.depth / self.run.clients;
        for _ in 0..self.run.clients {
            let (receiver, sender) = listener.accept().await?.split();
            let frames = Frames::new(receiver, self.pool.clone());
            let answers = Answers::new(Some(frames.grants()), share);
            self.handle
                .spawn(Class::Latency, Rc::clone(&self).receive(frames, Rc::clone(&answers)));
            self.handle.spawn(Class::Latency, async move { answers.send(sender).await });
        }
        self.sample().await
    }

    /// What the run took, once all packets are served.
    pub(crate) async fn sample(&self) -> anyhow::Result<Sample> {
        self.news.until(|| self.served.get() == self.run.count).await;
        Ok(Sample { unfairness: self.unfairness(), ..self.meter.sample() })
    }

    async fn receive(self: Rc<Self>, mut frames: Frames<NUMBER_LEN>, answers: Rc<Answers>) {
        let share = Rc::new(Cell::new(0));
        self.shares.borrow_mut().push(Rc::clone(&share));
        while let Ok(Some(frame)) = frames.next(|_| Some(self.run.size)).await {
            let Some(body) = frame.body else { return };
            share.set(share.get() + 1);
            self.take(u64::from_le_bytes(frame.head), body, &answers);
        }
    }

    /// Serves a packet.
    pub(crate) fn take(self: &Rc<Self>, offset: u64, body: Buffer, answers: &Rc<Answers>) {
        self.meter.start();
        answers.received();
        if self.file.is_none() {
            drop(body);
            self.count();
            return answers.served();
        }
        let (this, answers) = (Rc::clone(self), Rc::clone(answers));
        self.handle.spawn(Class::Latency, async move {
            this.write(offset, body).await;
            answers.served();
        });
    }

    async fn write(&self, offset: u64, buffer: Buffer) {
        let Some(file) = &self.file else { return };
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            match self.engines.write(file, at, rest.clone().into()).await {
                Ok(len @ 1..) => {
                    at += len as u64;
                    rest = rest.suffix(len);
                }
                // The run then never ends, and is given up by who started it.
                _ => return,
            }
        }
        drop(rest);
        self.count();
    }

    fn unfairness(&self) -> u64 {
        let shares = self.shares.borrow();
        let most = shares.iter().map(|share| share.get()).max().unwrap_or(0);
        let least = shares.iter().map(|share| share.get()).min().unwrap_or(0);
        most * 1000 / least.max(1)
    }

    fn count(&self) {
        self.served.set(self.served.get() + 1);
        self.meter.served(self.served.get());
        if self.served.get() == self.run.count {
            self.news.notify_all();
        }
    }
}

/// Credits to be returned to one client, many at a time: an answer costs a system call, and what it
/// sets off in the client another.
pub(crate) struct Answers {
    /// Of a transport that takes in no more than was granted.
    grants: Option<Grants>,
    /// Credits to return.
    owed: Cell<u32>,
    /// Packets received and not yet served.
    in_service: Cell<u32>,
    /// So many are returned at once; fewer only when nothing is in service.
    batch_len: u32,
    news: Notify,
}

impl Answers {
    /// The client starts with `share` credits, which it is told first.
    pub(crate) fn new(grants: Option<Grants>, share: u32) -> Rc<Self> {
        let (owed, in_service, news) = (Cell::new(share), Cell::new(0), Notify::new());
        Rc::new(Self { grants, owed, in_service, batch_len: share.div_ceil(BATCHES), news })
    }

    fn received(&self) {
        self.in_service.set(self.in_service.get() + 1);
    }

    fn served(&self) {
        self.in_service.set(self.in_service.get() - 1);
        self.owed.set(self.owed.get() + 1);
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
        self.grants.as_ref().inspect(|grants| grants.add(count));
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
