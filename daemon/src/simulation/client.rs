//! A simulated client process: random operations, each checked against the model.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use executor::{Handle, Instant};
use fastrand::Rng;
use rustix::process::Pid;
use shm::{
    copy,
    lane::Requester,
    staging::{APPEND, FileSlot, Producer},
};
use storage::segment::Segment;
use wire::{FileFlags, Phase, Registration, Reply, Request};

use super::{
    disk::{DEVICE, Open, SimStorage},
    model::{Model, REGION_LEN},
};
use crate::{
    node::Node,
    peer::{Incoming, Peer},
};

/// Length of every log. Slot `n`'s starts at `n * LOG_LEN`; behind the last one is scratch space.
pub(super) const LOG_LEN: u64 = 8 << 10;
pub(super) const SLOTS: u32 = 8;
const SCRATCH_AT: u64 = LOG_LEN * 8;
/// Longest any request may take in the simulation.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(20);
/// Longest the oldest request of a lane may take to be acknowledged, however long its answer takes.
const ACKNOWLEDGE_TIME_MAX: Duration = Duration::from_millis(1);
/// Longest a drained flush of one log may take, however much else there is to drain.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(5);
/// The promise of `docs/reference/protocol.md`: longest time staged bytes stay undrained.
const STAGED_TIME_MAX: Duration = Duration::from_millis(10);
/// Longest time, us, until others see what a client has stored: less than `SEEN_AFTER`.
const LATE_MAX_US: u64 = 950;

/// The control socket: what the client has sent, and whether it is there.
#[derive(Default)]
pub(super) struct Wire {
    sent: RefCell<VecDeque<(Registration, Rc<Open>)>>,
    is_gone: Cell<bool>,
}

/// The daemon's end of it.
pub(super) struct WireEnd(pub(super) Rc<Wire>);

impl Wire {
    /// Sends a file to the daemon.
    pub(super) fn hand_over(&self, registration: Registration, open: Rc<Open>) {
        self.sent.borrow_mut().push_back((registration, open));
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.get()
    }
}

impl Peer<Rc<Open>> for WireEnd {
    fn receive(&self) -> Incoming<Rc<Open>> {
        match self.0.sent.borrow_mut().pop_front() {
            Some((registration, open)) => Incoming::File(registration, Ok(open)),
            None if self.0.is_gone.get() => Incoming::Gone,
            None => Incoming::Nothing,
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone.get()
    }

    fn process(&self) -> Option<Pid> {
        None
    }

    fn send_file(&self, _: u32, _: &Rc<Open>) -> io::Result<()> {
        Ok(())
    }

    fn send_shared(&self, _: u32, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// One client.
pub(super) struct Client {
    pub(super) index: u64,
    pub(super) session: u32,
    pub(super) executor: usize,
    pub(super) segment: Arc<Segment>,
    pub(super) node: Arc<Node>,
    pub(super) wire: Rc<Wire>,
    pub(super) model: Rc<RefCell<Model>>,
    pub(super) storage: SimStorage,
    pub(super) handle: Handle,
    pub(super) rng: Rng,
    pub(super) requester: Requester,
    pub(super) files: Vec<Option<Staged>>,
}

/// A file the client has open.
pub(super) struct Staged {
    open: Rc<Open>,
    producer: Producer,
    /// Head of the log after each write that is not known to be drained, and when it was.
    ages: VecDeque<(u64, Instant)>,
    errors_taken: u32,
}

impl Client {
    /// Does `count` random operations, then leaves: in order, or by being killed.
    pub(super) async fn run(mut self, count: usize) {
        for _ in 0..count {
            if !self.operate().await {
                return self.wire.is_gone.set(true);
            }
            self.check_ages();
            if self.rng.u32(0..5) == 0 {
                for _ in 0..self.rng.u32(0..14) {
                    self.handle.sleep(Duration::from_micros(900)).await;
                    self.check_ages();
                }
            }
        }
        if self.rng.bool() {
            for slot in 0..SLOTS {
                self.close(slot).await;
            }
        }
        self.wire.is_gone.set(true);
    }

    /// Does one operation. Returns whether the client lives.
    async fn operate(&mut self) -> bool {
        let slot = self.rng.u32(0..SLOTS);
        if self.file(slot).is_none() {
            self.open(slot).await;
            return true;
        }
        match self.rng.u32(0..28) {
            0..=9 => self.write(slot).await,
            10..=11 => self.flush(slot).await,
            12 => self.close(slot).await,
            13..=14 => self.read(slot).await,
            15 => self.write_through(slot).await,
            16 => self.sync(slot).await,
            17 => self.flush_all().await,
            18 => self.settle(slot).await,
            19 => self.attach(slot).await,
            20 => self.fetch(slot).await,
            21..=22 => self.read_many(slot).await,
            23..=26 => return self.drain_here(slot).await,
            _ => assert_eq!(self.ask(Request::Nothing).await, Ok(0)),
        }
        true
    }

    pub(super) fn log_len(&self, slot: u32) -> u64 {
        self.file(slot).expect("open").producer.capacity()
    }

    pub(super) fn open_file(&self, slot: u32) -> &Rc<Open> {
        &self.file(slot).expect("open").open
    }

    fn file(&self, slot: u32) -> Option<&Staged> {
        self.files[slot as usize].as_ref()
    }

    fn shared(&self, slot: u32) -> &FileSlot {
        self.segment.slot(slot).expect("a slot")
    }

    /// Opens a file that others may have open, or one to append to that is the client's own.
    ///
    /// Counts it in, hands it over, and then looks whether it is alone: of two that open an inode
    /// at the same time, the one that looks later finds the other's registration on its way.
    async fn open(&mut self, slot: u32) {
        let appends = slot == SLOTS - 1;
        let inode = if appends { 100 + self.index } else { self.rng.u64(1..6) };
        let open = Open::new(inode, appends);
        self.node.shared().inodes.add(DEVICE, inode);
        self.shared(slot).reset();
        let flags = if appends { FileFlags::APPEND } else { FileFlags::READABLE };
        let registration = Registration {
            file: slot,
            flags: flags.with(FileFlags::WRITABLE),
            log_at: u64::from(slot) * LOG_LEN,
            log_len: LOG_LEN,
        };
        self.wire.hand_over(registration, Rc::clone(&open));
        let producer = Producer::new(LOG_LEN);
        let ages = VecDeque::new();
        self.files[slot as usize] = Some(Staged { open, producer, ages, errors_taken: 0 });
        if self.node.shared().inodes.tell(DEVICE, inode).count() > 1 {
            self.shared(slot).demote();
            self.settle(slot).await;
        }
    }

    /// Stages a write, waiting for room as often as it must.
    async fn write(&mut self, slot: u32) {
        let appends = self.file(slot).is_some_and(|staged| staged.open.appends);
        let len = self.rng.u64(1..3000);
        let at = if appends {
            APPEND
        } else {
            self.index * REGION_LEN + self.rng.u64(0..REGION_LEN - len)
        };
        let value = self.rng.u8(1..);
        let (mut done, mut waits) = (0, false);
        while done < len {
            let to = if appends { APPEND } else { at + done };
            let staged;
            (staged, waits) = self.stage(slot, to, len - done, value).await;
            done += staged;
            if staged == 0 {
                self.flush(slot).await;
            }
        }
        if waits {
            self.flush(slot).await;
        }
    }

    /// Stages what fits; returns how much that was, and whether it is to be drained. Others may see
    /// a store after this client has read their flags.
    async fn stage(&mut self, slot: u32, at: u64, len: u64, value: u8) -> (u64, bool) {
        let segment = Arc::clone(&self.segment);
        let shared = segment.slot(slot).expect("a slot");
        let flags = || (segment.shared().is_dirty(slot as usize), shared.is_synchronous());
        let (mut seen, since) = (flags(), self.model.borrow_mut().now());
        let is_late = at != APPEND && self.rng.u8(..8) == 0;
        if is_late {
            self.handle.sleep(Duration::from_micros(self.rng.u64(1..LATE_MAX_US))).await;
        }
        let now = self.handle.now();
        let staged = self.files[slot as usize].as_mut().expect("open");
        let Some(range) = staged.producer.reserve(shared, at, len) else { return (0, false) };
        let len = range.end - range.start;
        let ring_at = u64::from(slot) * LOG_LEN + staged.producer.ring_at(range.start);
        let bytes = vec![value; usize::try_from(len).unwrap()];
        copy::copy_in(&segment.arena()[usize::try_from(ring_at).unwrap()..], &bytes);
        staged.producer.publish(shared, at, len);
        if !is_late {
            seen = flags();
        }
        let (is_dirty, waits) = seen;
        let mut model = self.model.borrow_mut();
        let since = if is_late && !waits { since } else { model.now() };
        model.accept_since(since, staged.open.inode, at, &bytes);
        drop(model);
        staged.ages.push_back((staged.producer.head(), now));
        if !is_dirty && segment.shared().mark_dirty(slot as usize) {
            self.raise(shm::LANES);
        }
        (len, waits)
    }

    async fn flush(&mut self, slot: u32) {
        let (upto, start) = (self.shared(slot).head(), self.handle.now());
        assert_eq!(self.ask(Request::Flush { file: slot, upto }).await, Ok(0));
        let is_drained = self.shared(slot).tail() >= upto;
        let took = self.handle.now().saturating_since(start);
        assert!(took <= FLUSH_TIME_MAX, "a flush took {took:?}");
        let is_told = self.take_error(slot);
        assert!(is_drained || is_told, "neither drained nor told why");
    }

    /// Flushes until the file system has taken everything: what it refuses is tried again.
    async fn flush_all_of(&mut self, slot: u32) {
        let upto = self.shared(slot).head();
        while self.shared(slot).tail() < upto {
            self.flush(slot).await;
        }
    }

    /// Asks until staged bytes are no more refused: the request is told of it each time.
    async fn insist(&mut self, slot: u32, request: Request) -> u64 {
        loop {
            match self.ask(request).await {
                Ok(value) => return value,
                Err(_) => self.errors_met(slot),
            }
        }
    }

    /// Counts an error that the client was told of.
    pub(super) fn errors_met(&mut self, slot: u32) {
        let staged = self.files[slot as usize].as_mut().expect("open");
        staged.errors_taken += 1;
        assert!(staged.errors_taken <= staged.open.failures.get(), "an error nobody had");
    }

    fn take_error(&mut self, slot: u32) -> bool {
        let is_owed = self.shared(slot).take_error().is_some();
        if is_owed {
            self.errors_met(slot);
        }
        is_owed
    }

    async fn close(&mut self, slot: u32) {
        if self.file(slot).is_none() {
            return;
        }
        assert_eq!(self.ask(Request::Close { file: slot }).await, Ok(0));
        self.take_error(slot);
        let is_given_up = self.shared(slot).tail() < self.shared(slot).head();
        let staged = self.files[slot as usize].take().expect("open");
        // What was refused, and is in the file by now, need not have been told.
        assert!(staged.errors_taken > 0 || !is_given_up, "bytes are given up, untold");
        assert_eq!(Rc::strong_count(&staged.open), 1, "the daemon has let go of the file");
        self.node.shared().inodes.remove(DEVICE, staged.open.inode);
        self.model.borrow().check_own(&staged.open, self.index, |stored| &stored.bytes);
    }

    /// Syncs a file: what the client had written before is durable.
    async fn sync(&mut self, slot: u32) {
        let is_datasync = self.rng.bool();
        let file = slot;
        let request = if is_datasync { Request::Datasync { file } } else { Request::Sync { file } };
        assert_eq!(self.insist(slot, request).await, 0);
        self.model.borrow().check_own(self.open_file(slot), self.index, |stored| &stored.durable);
    }

    /// Flushes its files, or all clients': what it had written is there, unless refused bytes are
    /// in the way.
    async fn flush_all(&mut self) {
        let request = Request::FlushAll { of_job: self.rng.bool() };
        assert_eq!(self.ask(request).await, Ok(0));
        let files = (0..).zip(&self.files);
        for (slot, staged) in files.filter_map(|(slot, file)| Some((slot, file.as_ref()?))) {
            if self.shared(slot).tail() < staged.producer.head() {
                assert!(staged.open.failures.get() > 0, "staged, and never refused");
                continue;
            }
            self.model.borrow().check_own(&staged.open, self.index, |stored| &stored.bytes);
        }
    }

    /// Reads the client's region through the daemon: it sees its own writes.
    async fn read(&mut self, slot: u32) {
        self.read_times(slot, 1).await;
    }

    /// The same, many times at once.
    async fn read_many(&mut self, slot: u32) {
        let count = self.rng.u64(2..=12);
        self.read_times(slot, count).await;
    }

    async fn read_times(&mut self, slot: u32, count: u64) {
        let staged = self.file(slot).expect("open");
        let (inode, appends) = (staged.open.inode, staged.open.appends);
        if appends {
            return;
        }
        let (at, len) = (self.index * REGION_LEN, u32::try_from(REGION_LEN).unwrap());
        let place = |index| SCRATCH_AT + index * REGION_LEN;
        let ask = |index| Request::Read { file: slot, at, len, arena_at: place(index) };
        let asked: Vec<_> = (0..count).map(|index| (index, self.begin(ask(index)))).collect();
        for (index, asked) in asked {
            let Ok(len) = self.finish(asked).await else {
                self.errors_met(slot);
                continue;
            };
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            let from = &self.segment.arena()[usize::try_from(place(index)).unwrap()..];
            copy::copy_out(&mut bytes, from);
            self.model.borrow().check_read(inode, self.index, &bytes);
        }
    }

    /// Writes past the log, over what is staged. Errors are the request's own.
    async fn write_through(&mut self, slot: u32) {
        let staged = self.file(slot).expect("open");
        let (open, len) = (Rc::clone(&staged.open), self.rng.u64(1..3000));
        if open.appends {
            return;
        }
        // Errors of staged writes are told apart from those of this write.
        self.flush_all_of(slot).await;
        let failures = open.failures.get();
        let at = self.index * REGION_LEN + self.rng.u64(0..REGION_LEN - len);
        let bytes = vec![self.rng.u8(1..); usize::try_from(len).unwrap()];
        let scratch = usize::try_from(SCRATCH_AT).unwrap();
        copy::copy_in(&self.segment.arena()[scratch..], &bytes);
        self.model.borrow_mut().blur(open.inode, at, bytes.len());
        let (arena_at, wanted) = (SCRATCH_AT, u32::try_from(len).unwrap());
        let written = self.ask(Request::Write { file: slot, at, len: wanted, arena_at }).await;
        let written = usize::try_from(written.unwrap_or(0)).unwrap();
        self.model.borrow_mut().accept(open.inode, at, &bytes[..written]);
        assert_eq!(written < bytes.len(), open.failures.get() > failures);
        open.failures.set(failures);
    }

    /// Settles an inode: what anybody had accepted before is in the file.
    async fn settle(&mut self, slot: u32) {
        let inode = self.file(slot).expect("open").open.inode;
        let stamp = self.model.borrow_mut().now();
        let request = Request::Settle { device: DEVICE, inode, demote: true };
        assert_eq!(self.ask(request).await, Ok(0));
        assert!(self.shared(slot).is_synchronous());
        self.model.borrow_mut().note_settled(inode, stamp);
    }

    /// Fetches in sequence, so that the daemon fetches ahead, whatever comes next.
    async fn fetch(&mut self, slot: u32) {
        for at in [0, 256] {
            assert!(self.ask(Request::Fetch { file: slot, at, len: 256 }).await.is_ok());
        }
    }

    /// Replaces the drained log by another in the same place. The file stays as synchronous as it
    /// is.
    async fn attach(&mut self, slot: u32) {
        self.flush_all_of(slot).await;
        let was_synchronous = self.shared(slot).is_synchronous();
        let (arena_at, len) = (u64::from(slot) * LOG_LEN, LOG_LEN >> self.rng.u32(0..2));
        assert_eq!(self.ask(Request::Attach { file: slot, arena_at, len }).await, Ok(0));
        assert!(self.shared(slot).is_synchronous() || !was_synchronous);
        let staged = self.files[slot as usize].as_mut().expect("open");
        staged.producer.attach(len);
        staged.ages.clear();
    }

    async fn ask(&mut self, request: Request) -> Result<u64, i64> {
        let asked = self.begin(request);
        self.finish(asked).await
    }

    fn begin(&mut self, request: Request) -> (u32, Request) {
        let segment = Arc::clone(&self.segment);
        let lane = segment.shared().lane(0).expect("a lane");
        let seq = self.requester.publish(lane, &request.encode().0);
        let seq = seq.expect("no more than there is room for");
        self.raise(0);
        (seq, request)
    }

    /// Waits for the oldest request that is not answered.
    async fn finish(&mut self, (seq, request): (u32, Request)) -> Result<u64, i64> {
        let segment = Arc::clone(&self.segment);
        let lane = segment.shared().lane(0).expect("a lane");
        let start = self.handle.now();
        let mut is_acknowledged = false;
        loop {
            match Reply::phase_of(self.requester.state(lane, seq), seq) {
                Some(Phase::Completed) => break,
                Some(Phase::Acknowledged) => {
                    assert!(request.kind().is_acknowledged());
                    is_acknowledged = true;
                }
                None => {}
            }
            let waited = self.handle.now().saturating_since(start);
            let is_due = waited > ACKNOWLEDGE_TIME_MAX && request.kind().is_acknowledged();
            assert!(is_acknowledged || !is_due, "{request:?} is not acknowledged");
            assert!(waited <= ANSWER_TIME_MAX, "{request:?} is not answered");
            self.handle.sleep(Duration::from_micros(10)).await;
        }
        let value = i64::from_le_bytes(self.requester.take(lane, seq).to_le_bytes());
        u64::try_from(value).map_err(|_| -value)
    }

    fn raise(&self, lane: usize) {
        let (id, shared) = (self.session as usize, self.node.shared());
        shared.ready[id].raise(lane, &shared.boards[self.executor], id);
    }

    /// Nothing stays staged for longer than promised.
    fn check_ages(&mut self) {
        let now = self.handle.now();
        for slot in 0..SLOTS {
            let tail = self.shared(slot).tail();
            let Some(staged) = self.files[slot as usize].as_mut() else { continue };
            while staged.ages.front().is_some_and(|(head, _)| *head <= tail) {
                staged.ages.pop_front();
            }
            // What the file system refuses stays staged.
            if let Some((_, since)) =
                staged.ages.front().filter(|_| staged.open.failures.get() == 0)
            {
                let age = now.saturating_since(*since);
                assert!(age <= STAGED_TIME_MAX, "staged for {age:?}");
            }
        }
    }
}
