//! A client as small as the protocol allows, and as wrong as a test wants it.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};
use shm::{
    Job, Session, copy,
    lane::{Requester, Words},
    staging::{FileSlot, Producer},
};
use wire::{
    FileFlags, Greeting, MESSAGE_LEN, Message, Phase, Registration, Reply, Request, Role, Welcome,
};

use crate::support::{DEADLINE, until};

/// One session.
pub(crate) struct Client {
    pub(crate) socket: OwnedFd,
    pub(crate) welcome: Welcome,
    pub(crate) session: Session,
    pub(crate) job: Job,
    lanes: Vec<Requester>,
    files: Vec<Option<Staged>>,
}

/// The log of a registered file.
#[derive(Clone, Copy)]
struct Staged {
    producer: Producer,
    log_at: usize,
}

pub(crate) fn dial(folder: &Path) -> OwnedFd {
    // Other tests start processes, which must not hold this connection.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(folder.join("socket")).expect("a short path");
    connect(&socket, &address).expect("the daemon listens");
    socket
}

pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    try_send(socket, bytes, fds).expect("sent");
}

fn try_send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message with its descriptors; empty when the daemon has closed.
pub(crate) fn receive(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let (mut bytes, mut fds) = (vec![0; MESSAGE_LEN], Vec::new());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    bytes.truncate(got.map_or(0, |got| got.bytes));
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    (bytes, fds)
}

/// Greets and returns the answer with its descriptors.
pub(crate) fn greet(socket: &OwnedFd, greeting: Greeting) -> (Welcome, Vec<OwnedFd>) {
    send(socket, &greeting.encode(), &[]);
    let (bytes, fds) = receive(socket);
    (Welcome::decode(&bytes).expect("a welcome"), fds)
}

impl Client {
    pub(crate) fn connect(folder: &Path) -> Self {
        let socket = dial(folder);
        let (welcome, fds) = greet(&socket, Greeting::new(Role::Client));
        welcome.session.expect("let in");
        let session = Session::open(&fds[0], usize::MAX).expect("sealed");
        let job = Job::open(&fds[1]).expect("sealed");
        let lanes = (0..shm::LANES).map(|_| Requester::new()).collect();
        Self { socket, welcome, session, job, lanes, files: vec![None; shm::FILES] }
    }

    pub(crate) fn id(&self) -> u32 {
        self.welcome.session.expect("let in")
    }

    pub(crate) fn slot(&self, slot: u32) -> &FileSlot {
        self.session.shared().file(slot as usize).expect("a slot")
    }

    /// Hands `file` over, with a log at `log_at` in the arena.
    pub(crate) fn register(&mut self, slot: u32, file: &File, flags: FileFlags, log: (u64, u64)) {
        self.slot(slot).reset();
        let (log_at, log_len) = log;
        let message = Message::Register(Registration { file: slot, flags, log_at, log_len });
        send(&self.socket, &message.encode(), &[file.as_fd()]);
        let log_at = usize::try_from(log_at).expect("small");
        self.files[slot as usize] = Some(Staged { producer: Producer::new(log_len), log_at });
    }

    /// Stages as much of `bytes` as fits; returns how many.
    pub(crate) fn stage(&mut self, slot: u32, at: u64, bytes: &[u8]) -> usize {
        let mut staged = self.files[slot as usize].expect("registered");
        let shared = self.session.shared().file(slot as usize).expect("a slot");
        let mut done = 0;
        while done < bytes.len() {
            let to = if at == shm::staging::APPEND { at } else { at + done as u64 };
            let left = (bytes.len() - done) as u64;
            let Some(range) = staged.producer.reserve(shared, to, left) else { break };
            let len = usize::try_from(range.end - range.start).expect("small");
            let ring_at = usize::try_from(staged.producer.ring_at(range.start)).expect("small");
            let target = &self.session.arena()[staged.log_at + ring_at..];
            copy::copy_in(&target[..len], &bytes[done..done + len]);
            staged.producer.publish(shared, to, len as u64);
            done += len;
        }
        self.files[slot as usize] = Some(staged);
        if self.session.shared().mark_dirty(slot as usize) {
            self.raise(shm::LANES);
        }
        done
    }

    /// Stages all of `bytes`, waiting for room.
    pub(crate) fn stage_all(&mut self, slot: u32, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let to = if at == shm::staging::APPEND { at } else { at + done as u64 };
            done += self.stage(slot, to, &bytes[done..]);
            if done < bytes.len() {
                self.flush(slot);
            }
        }
    }

    /// Drains all that is staged.
    pub(crate) fn flush(&mut self, slot: u32) {
        let upto = self.slot(slot).head();
        assert_eq!(self.ask(Request::Flush { file: slot, upto }), Ok(0));
    }

    /// Sends a request on lane 0 and waits for its result.
    pub(crate) fn ask(&mut self, request: Request) -> Result<u64, i32> {
        let seq = self.submit(0, request);
        self.wait(0, seq)
    }

    /// Publishes a request and returns its number.
    pub(crate) fn submit(&mut self, lane: usize, request: Request) -> u32 {
        self.publish(lane, &request.encode().0)
    }

    /// Publishes any words.
    pub(crate) fn publish(&mut self, lane: usize, words: &Words) -> u32 {
        self.try_publish(lane, words).expect("a free slot")
    }

    /// Publishes any words, unless the lane is full.
    pub(crate) fn try_publish(&mut self, lane: usize, words: &Words) -> Option<u32> {
        let shared = self.session.shared().lane(lane).expect("a lane");
        let seq = self.lanes[lane].publish(shared, words)?;
        self.raise(lane);
        Some(seq)
    }

    /// Believes that the file in `slot` has this log, whatever the daemon knows.
    pub(crate) fn pretend_log(&mut self, slot: u32, log_at: usize, log_len: u64) {
        self.files[slot as usize] = Some(Staged { producer: Producer::new(log_len), log_at });
    }

    pub(crate) fn arena(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let at = usize::try_from(at).expect("small");
        copy::copy_out(&mut bytes, &self.session.arena()[at..]);
        bytes
    }

    /// Waits until a request is completed.
    pub(crate) fn wait(&mut self, lane: usize, seq: u32) -> Result<u64, i32> {
        let shared = self.session.shared().lane(lane).expect("a lane");
        let state = || self.lanes[lane].state(shared, seq);
        let is_done = || Reply::phase_of(state(), seq) == Some(Phase::Completed);
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < DEADLINE, "request {seq} is not answered");
            shared.bell.sleep(Duration::from_secs(1), is_done);
        }
        let value = i64::from_le_bytes(self.lanes[lane].take(shared, seq).to_le_bytes());
        u64::try_from(value).map_err(|_| i32::try_from(-value).expect("an error number"))
    }

    pub(crate) fn raise(&self, lane: usize) {
        let (id, job) = (self.id() as usize, self.job.shared());
        let board = &job.boards[self.welcome.executor as usize];
        if job.ready[id].raise(lane, board, id) {
            // A session that the daemon has ended needs no doorbell.
            try_send(&self.socket, &Message::Doorbell.encode(), &[]).ok();
        }
    }

    /// Puts paths into a lane's buffer.
    pub(crate) fn put(&self, lane: usize, bytes: &[u8]) {
        copy::copy_in(self.session.buffer(lane), bytes);
    }

    pub(crate) fn buffer(&self, lane: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        copy::copy_out(&mut bytes, self.session.buffer(lane));
        bytes
    }

    /// Waits until the daemon has ended the session.
    pub(crate) fn expect_end(&self) {
        rustix::net::sockopt::set_socket_timeout(
            &self.socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(DEADLINE),
        )
        .expect("a socket");
        let mut byte = [0; MESSAGE_LEN];
        let received = rustix::io::read(&self.socket, &mut byte);
        assert!(matches!(received, Ok(0) | Err(rustix::io::Errno::CONNRESET)), "{received:?}");
        until("the session is marked", || self.session.shared().is_closing());
    }
}

/// Reads a file's bytes.
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}
