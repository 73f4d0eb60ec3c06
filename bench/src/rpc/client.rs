//! The client: keeps as many packets on the way as it has credits.

use std::{cell::Cell, rc::Rc, time::Duration};

use anyhow::Context as _;
use executor::{Class, Handle, Notify};
use rustix::net::sockopt::set_tcp_congestion;
use uring::{Address, Buffer, Buffers, Heap, Sockets, Stream};

use super::packet::{NUMBER_LEN, Run};
use crate::values::values;

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Within a machine nothing is congested, and what paces a sender by timers, as the usual BBR does,
/// finds a speed of its own for each connection. Every kernel has this one.
const UNPACED: &str = "reno";
/// Packets of one call: two buffers each.
const BATCH_LEN: u64 = 32;

/// Sends every packet of `run` and waits until the last is served.
pub(crate) async fn send_all(
    handle: &Handle,
    sockets: &Sockets,
    address: &Address,
    run: Run,
) -> anyhow::Result<()> {
    let data = Heap::buffer(run.size);
    data.store(&values(run.size));
    let next = Rc::new(Cell::new(0));
    let (left, ended) = (Rc::new(Cell::new(run.clients)), Notify::new());
    let failure = Rc::new(Cell::new(None));
    for _ in 0..run.clients {
        let stream = sockets.connect(address, PATIENCE).await.context("no server")?;
        set_tcp_congestion(&stream, UNPACED).ok(); // Else it is as fast as others are there.
        let connection =
            Connection { stream, run: run.clone(), data: data.clone(), next: Rc::clone(&next) };
        let (left, ended, failure) = (Rc::clone(&left), ended.clone(), Rc::clone(&failure));
        handle.spawn(Class::Latency, async move {
            if let Err(why) = connection.send().await {
                failure.set(Some(why));
            }
            left.set(left.get() - 1);
            ended.notify_all();
        });
    }
    ended.until(|| left.get() == 0).await;
    failure.take().map_or(Ok(()), Err)
}

struct Connection {
    stream: Stream,
    run: Run,
    data: Buffer,
    /// The next packet nobody has sent, of all connections.
    next: Rc<Cell<u64>>,
}

impl Connection {
    async fn send(mut self) -> anyhow::Result<()> {
        let heads = Heap::buffer(NUMBER_LEN * usize::try_from(BATCH_LEN)?);
        let answer = Heap::buffer(NUMBER_LEN);
        let initial = self.receive_credits(&answer).await?;
        let mut credits = initial;
        loop {
            let count = credits.min(BATCH_LEN).min(self.run.count - self.next.get());
            if count > 0 {
                let first = self.next.get();
                self.next.set(first + count);
                credits -= count;
                self.stream.send_all(self.packets(&heads, first, count)).await?;
            } else if self.next.get() == self.run.count && credits == initial {
                return Ok(());
            } else {
                credits += self.receive_credits(&answer).await?;
            }
        }
    }

    fn packets(&self, heads: &Buffer, first: u64, count: u64) -> Vec<Buffer> {
        let mut parts = Vec::new();
        let mut heads = heads.clone();
        for number in first..first + count {
            heads.store(&self.run.offset(number).to_le_bytes());
            parts.push(heads.prefix(NUMBER_LEN));
            parts.push(self.data.clone());
            heads = heads.suffix(NUMBER_LEN);
        }
        parts
    }

    async fn receive_credits(&mut self, answer: &Buffer) -> anyhow::Result<u64> {
        let mut received = 0;
        while received < NUMBER_LEN {
            let rest = Buffers::from(answer.suffix(received));
            let len = self.stream.receive(&rest).await?;
            anyhow::ensure!(len > 0, "the server is gone");
            received += len;
        }
        let mut bytes = [0; NUMBER_LEN];
        answer.load(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }
}
