//! A connection, whole or as its two directions.

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, BorrowedFd},
    rc::Rc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

use super::{
    call::{self, RECEIVE_LEN_MAX},
    frames::Inlet,
    options,
    peer::Peer,
    readiness::{Direction, Socket},
};
use crate::memory::{BUFFER_COUNT_MAX, Buffer, Buffers};

/// A connected TCP or Unix stream socket. Closed when dropped.
#[derive(Debug)]
pub struct Stream {
    receiver: Receiver,
    sender: Sender,
}

/// The direction towards this process.
#[derive(Debug)]
pub struct Receiver(Rc<Socket>);

/// The direction towards the peer.
#[derive(Debug)]
pub struct Sender(Rc<Socket>);

impl Stream {
    pub(crate) fn new(socket: Socket) -> Self {
        let socket = Rc::new(socket);
        Self { receiver: Receiver(Rc::clone(&socket)), sender: Sender(socket) }
    }

    /// See [`Receiver::receive`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn receive(&mut self, into: &Buffers) -> io::Result<usize> {
        self.receiver.receive(into).await
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn send(&mut self, from: &Buffers) -> io::Result<usize> {
        self.sender.send(from).await
    }

    /// See [`Sender::send_all`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn send_all(&mut self, from: Vec<Buffer>) -> io::Result<()> {
        self.sender.send_all(from).await
    }

    /// Breaks a TCP connection whose peer's machine has not answered for `silence_max`.
    ///
    /// Receives and sends then fail as `TimedOut`; noticed at latest a second, or a quarter of
    /// `silence_max`, after that. A peer that only died closes its end at once. Set at the start:
    /// without it a vanished machine is never noticed.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`: `EOPNOTSUPP` or `ENOPROTOOPT` for a Unix socket, which needs none.
    pub fn set_silence_max(&self, silence_max: Duration) -> io::Result<()> {
        options::set_silence_max(self, silence_max)
    }

    /// Has what is on its way when the stream is closed, or this process is killed, arrive at once
    /// or never.
    ///
    /// Else the kernel sends it again for as long as it takes, a minute or more, to a peer that
    /// cannot be reached, and it arrives when nobody waits for it any more. A TCP connection that
    /// is closed then looks broken to the peer: agree on the end before.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`.
    pub fn set_forgetful(&self) -> io::Result<()> {
        options::set_forgetful(self)
    }

    /// Lets the peer send `len` bytes, or what the kernel allows, ahead of what is received: as
    /// many as it has credits for.
    ///
    /// With less room it stops and goes on at every receive, and on one machine the kernel then
    /// does its sending on this thread's time.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`; `EOPNOTSUPP` for a Unix socket, whose room is the sender's.
    pub fn set_window_min(&self, len: usize) -> io::Result<()> {
        options::set_window_min(self, len)
    }

    /// The user at the other end of a Unix socket: who connected or, seen from there, who listens.
    /// `None` for a TCP connection, which does not tell.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt`.
    pub fn peer_user(&self) -> io::Result<Option<u32>> {
        Ok(Peer::of(self)?.user)
    }

    /// The two directions, for two tasks. The connection closes when both are dropped.
    #[must_use]
    pub fn split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.0.as_fd()
    }
}

impl Receiver {
    /// Waits for bytes and returns how many came, at most 64 more than
    /// [`SOCKET_LEN_MAX`](crate::SOCKET_LEN_MAX); 0 when the peer sends no more. Dropping the
    /// future takes nothing from the stream.
    ///
    /// # Errors
    ///
    /// `ConnectionReset`, `TimedOut`: the connection is broken.
    pub async fn receive(&mut self, into: &Buffers) -> io::Result<usize> {
        loop {
            self.ready().await;
            match self.receive_now(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }

    /// True if the peer has broken the connection off, and not only sends no more: nobody waits for
    /// an answer to what has arrived and was not received yet. Costs a system call.
    #[must_use]
    pub fn is_broken_off(&self) -> bool {
        let mut socket = [PollFd::new(&self.0, PollFlags::empty())];
        let found = poll(&mut socket, Some(&Timespec::default()));
        let [socket] = socket;
        // A Unix socket has no error then.
        found.is_ok() && socket.revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

impl Inlet for Receiver {
    async fn ready(&mut self) {
        poll_fn(|context| self.0.poll_ready(Direction::Receive, context)).await;
    }

    fn receive_now(&mut self, into: &Buffers) -> io::Result<usize> {
        let direction = Direction::Receive;
        let received = self.0.call(direction, |fd| call::receive(fd, into));
        let (len, is_cut) = received?;
        self.0.moved(direction, len);
        if len < into.len().min(RECEIVE_LEN_MAX) && !is_cut {
            self.0.exhausted(direction);
        }
        Ok(len)
    }

    fn cut(&mut self) {
        // Fails only when it is broken already.
        shutdown(&self.0, Shutdown::Both).ok();
    }
}

impl Sender {
    /// Waits for room and returns how many bytes were taken, at most
    /// [`SOCKET_LEN_MAX`](crate::SOCKET_LEN_MAX). Dropping the future before it is ready has sent
    /// nothing.
    ///
    /// # Errors
    ///
    /// `BrokenPipe`, `ConnectionReset`, `TimedOut`: the connection is broken.
    pub async fn send(&mut self, from: &Buffers) -> io::Result<usize> {
        let socket = &self.0;
        let direction = Direction::Send;
        let call = |fd: BorrowedFd<'_>| call::send(fd, from);
        let len = poll_fn(|context| socket.poll_call(direction, context, call)).await?;
        socket.moved(direction, len);
        Ok(len)
    }

    /// Sends all bytes of `from`, as many buffers as there are. Dropping the future may leave a
    /// part sent.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); a part may have been sent.
    pub async fn send_all(&mut self, from: Vec<Buffer>) -> io::Result<()> {
        let mut rest = from;
        loop {
            rest.retain(|buffer| !buffer.is_empty());
            if rest.is_empty() {
                return Ok(());
            }
            let batch = rest.get(..rest.len().min(BUFFER_COUNT_MAX)).unwrap_or_default();
            let Some(batch) = Buffers::new(batch.to_vec()) else { return Ok(()) };
            let mut sent = self.send(&batch).await?;
            for buffer in &mut rest {
                let len = sent.min(buffer.len());
                *buffer = buffer.suffix(len);
                sent -= len;
            }
        }
    }

    /// Tells the peer that nothing more comes: its receives return 0 from there on.
    ///
    /// # Errors
    ///
    /// `NotConnected`: the connection is broken already.
    pub fn finish(&self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Write)?)
    }
}
