//! Liveness of the server: pings, silence, and the messages about it.

use std::{
    cell::{Cell, RefCell},
    io,
    time::Duration,
};

use executor::Instant;

use super::{ATTEMPT_MAX, Client, Network, Outbox, Standing};

/// Between two questions whether the server is there.
const BEAT: Duration = Duration::from_secs(1);
/// Beats without a byte from the server, after which the connection is given up.
const SILENT_BEATS_MAX: u32 = 5;

/// How long a server may be away before that is said.
const UNTOLD: Duration = Duration::from_secs(1);

/// The time for which there has been no connection.
#[derive(Debug)]
pub(super) struct Absence {
    since: Cell<Instant>,
    is_told: Cell<bool>,
    /// Why there is none.
    why: RefCell<String>,
}

impl Absence {
    pub(super) fn since(now: Instant) -> Self {
        let why = RefCell::new("no answer yet".to_owned());
        Self { since: Cell::new(now), is_told: Cell::new(false), why }
    }

    pub(super) fn begin(&self, now: Instant) {
        self.since.set(now);
    }

    pub(super) fn explain(&self, why: &io::Error) {
        self.why.replace(why.to_string());
    }
}

impl<N: Network> Client<N> {
    /// Says once that the server is waited for, if it is away for long. Never returns.
    pub(super) async fn tell_absence(&self) -> io::Result<()> {
        self.handle.sleep_until(self.absence.since.get() + UNTOLD).await;
        let is_connected = self.state.borrow().standing.is_connected();
        if !is_connected && !self.absence.is_told.replace(true) {
            let (why, timeout) = (self.absence.why.borrow(), self.timeout);
            let place = &self.network;
            tracing::warn!("waiting up to {timeout:?} for the server at {place}: {why}");
        }
        std::future::pending().await
    }

    /// Says that the server is back, to whoever was told that it was away.
    pub(super) fn tell_return(&self) {
        if self.absence.is_told.take() {
            tracing::warn!("the server at {} is back", self.network);
        }
    }

    /// The server says that it is there.
    pub(super) fn hears(&self) {
        self.heard_at.set(self.handle.now());
    }

    /// Waits until `end`, and for as long as the server goes on saying that it is there.
    pub(super) async fn listen<T>(&self, end: Instant) -> io::Result<T> {
        loop {
            let end = end.max(self.heard_at.get() + ATTEMPT_MAX.min(self.timeout));
            if self.handle.now() >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.handle.sleep_until(end).await;
        }
    }

    /// While something is to come from the server, asks every now and then whether it is there, and
    /// gives up when it is silent. Where nothing is, nothing is sent, and nobody wakes: the kernel
    /// notices a machine that has vanished.
    pub(super) async fn beat(&self, outbox: &Outbox, heard: &Cell<bool>) -> io::Result<()> {
        let mut silent = 0;
        loop {
            let is_waiting = || {
                let state = self.state.borrow();
                state.standing == Standing::Leaving || !state.pending.is_empty()
            };
            if !is_waiting() {
                self.news.until(is_waiting).await;
                silent = 0;
            }
            self.handle.sleep(BEAT).await;
            silent = if heard.take() { 0 } else { silent + 1 };
            if silent >= SILENT_BEATS_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // A stream that takes nothing is asked already.
            outbox.ping();
        }
    }
}
