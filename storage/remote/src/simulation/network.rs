//! A network that takes its time and can be cut.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt, io,
    rc::Rc,
    time::Duration,
};

use executor::{Handle, Notify};
use fastrand::Rng;
use shm::copy::{copy_in, copy_out};
use storage::Locking;
use uring::{Buffer, Buffers, Inlet};
use wire::{Frame, reseal};

use crate::{
    client::requests::Network,
    line::channel::{Receive, Transmit},
    server::connections::Server,
};

const LATENCY_MAX_US: u64 = 300;
/// Of what is sent at a time before the key is proven.
const GREETING_LEN_MAX: usize = 192;

/// One direction of a connection.
#[derive(Default)]
struct Line {
    bytes: RefCell<VecDeque<u8>>,
    is_cut: Cell<bool>,
    news: Notify,
}

/// The network, with the server that can be reached through it.
pub(super) struct SimNetwork<S: Locking>(Rc<State<S>>);

struct State<S: Locking> {
    handle: Handle,
    rng: Rc<RefCell<Rng>>,
    server: RefCell<Option<Rc<Server<S>>>>,
    lines: RefCell<Vec<Rc<Line>>>,
    /// Sends that are to arrive changed.
    damages: Rc<Cell<u32>>,
}

impl<S: Locking> Clone for SimNetwork<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Locking> SimNetwork<S> {
    pub(super) fn new(handle: Handle, rng: Rc<RefCell<Rng>>) -> Self {
        let (server, lines, damages) = (RefCell::default(), RefCell::default(), Rc::default());
        Self(Rc::new(State { handle, rng, server, lines, damages }))
    }

    pub(super) fn set_server(&self, server: Option<Rc<Server<S>>>) {
        self.0.server.replace(server);
    }

    pub(super) fn server(&self) -> Option<Rc<Server<S>>> {
        self.0.server.borrow().clone()
    }

    /// Breaks every connection; what is on the way is lost.
    pub(super) fn cut(&self) {
        for line in self.0.lines.take() {
            line.is_cut.set(true);
            line.bytes.borrow_mut().clear();
            line.news.notify_all();
        }
    }

    /// Changes something of what is sent next, of which a greeting is no part.
    pub(super) fn damage(&self) {
        self.0.damages.set(self.0.damages.get() + 1);
    }

    fn end(&self, line: &Rc<Line>) -> End {
        let (handle, rng) = (self.0.handle.clone(), Rc::clone(&self.0.rng));
        End { line: Rc::clone(line), handle, rng, damages: Rc::clone(&self.0.damages) }
    }
}

impl<S: Locking> fmt::Display for SimNetwork<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sim://")
    }
}

impl<S: Locking> Network for SimNetwork<S> {
    type Receiver = End;
    type Sender = End;
    type Own = S;

    async fn connect(&self) -> io::Result<(End, End)> {
        let server = self.0.server.borrow().clone();
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (there, back) = (Rc::new(Line::default()), Rc::new(Line::default()));
        self.0.lines.borrow_mut().extend([Rc::clone(&there), Rc::clone(&back)]);
        server.meet(self.end(&there), self.end(&back));
        Ok((self.end(&back), self.end(&there)))
    }
}

/// One end of a direction; the direction breaks when either goes.
pub(super) struct End {
    line: Rc<Line>,
    handle: Handle,
    rng: Rc<RefCell<Rng>>,
    damages: Rc<Cell<u32>>,
}

impl End {
    fn damage(&self, bytes: &mut [u8]) {
        if self.damages.get() == 0 || bytes.len() <= GREETING_LEN_MAX {
            return;
        }
        self.damages.set(self.damages.get() - 1);
        let mut rng = self.rng.borrow_mut();
        if let (Ok(Some((Frame::Reply { .. }, len))), true) = (Frame::parse(bytes), rng.bool()) {
            // Nothing that was asked has this number; the checksums are right.
            bytes[8..16].fill(u8::MAX);
            return reseal(&mut bytes[..len]);
        }
        let at = rng.usize(..bytes.len());
        bytes[at] ^= 1 << rng.u32(..8);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.line.is_cut.set(true);
        self.line.news.notify_all();
    }
}

impl Inlet for End {
    async fn ready(&mut self) {
        let line = &self.line;
        line.news.until(|| line.is_cut.get() || !line.bytes.borrow().is_empty()).await;
    }

    fn receive_now(&mut self, into: &Buffers) -> io::Result<usize> {
        let mut bytes = self.line.bytes.borrow_mut();
        match (bytes.is_empty(), self.line.is_cut.get()) {
            (true, true) => return Err(io::ErrorKind::ConnectionReset.into()),
            (true, false) => return Err(io::ErrorKind::WouldBlock.into()),
            _ => {}
        }
        // Streams have no borders: any part of what is there may come.
        let len = self.rng.borrow_mut().usize(1..=bytes.len().min(into.len()));
        let part: Vec<u8> = bytes.drain(..len).collect();
        let mut rest = &part[..];
        for buffer in into.as_slice() {
            let len = copy_in(buffer.bytes(), rest);
            rest = &rest[len..];
        }
        Ok(part.len())
    }

    fn cut(&mut self) {}
}

impl Receive for End {}

impl Transmit for End {
    async fn send_all(&mut self, from: Vec<Buffer>) -> io::Result<()> {
        let us = self.rng.borrow_mut().u64(0..LATENCY_MAX_US);
        self.handle.sleep(Duration::from_micros(us)).await;
        for buffer in from {
            if self.line.is_cut.get() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let mut bytes = vec![0; buffer.len()];
            copy_out(&mut bytes, buffer.bytes());
            self.damage(&mut bytes);
            self.line.bytes.borrow_mut().extend(bytes);
            self.line.news.notify_all();
        }
        Ok(())
    }
}
