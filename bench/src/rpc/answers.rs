//! Grants to a client: how many packets it may send, the same number of its others being served.
//!
//! Credits return many at a time: an answer costs a system call, and what it sets off in the client
//! another. Clients that may send more in all than has a place are given leave in order of asking.
//! So what is on the way stays in the cache, and waits with the clients instead of in sockets.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use executor::{Credit, Notify, first};
use uring::{FrameError, Heap, Sender};

use super::{packet::NUMBER_LEN, server::Server};

/// Credits return by so many bytes of packets. With more at a time a disk's next half is not whole
/// when it is due; with fewer the core is busy with answers, where it is what limits.
const BATCH_LEN: usize = 1 << 20;

/// Credits of one client.
pub(crate) struct Answers {
    server: Rc<Server>,
    /// Packets that the client may still send.
    granted: Cell<u32>,
    /// The places of packets that may be sent, or are being served.
    places: RefCell<Option<Credit>>,
    /// Credits to return.
    owed: Cell<u32>,
    /// Bytes stored that make no whole packet yet.
    stored_len: Cell<usize>,
    /// So many are returned at once. The client may send the rest meanwhile, if there is one.
    batch_len: u32,
    news: Notify,
}

impl Answers {
    /// The client starts with its share of credits, which it is told first.
    pub(crate) fn new(server: Rc<Server>) -> Rc<Self> {
        let (share, size) = (server.run.share(), server.run.size);
        let batch_len = u32::try_from(BATCH_LEN / size).unwrap_or(share).clamp(1, share);
        Rc::new(Self {
            server,
            granted: Cell::default(),
            places: RefCell::default(),
            owed: Cell::new(share),
            stored_len: Cell::default(),
            batch_len,
            news: Notify::new(),
        })
    }

    /// The client has sent a packet.
    ///
    /// # Errors
    ///
    /// [`FrameError::NoCredit`]: it was not granted that.
    pub(crate) fn spend(&self) -> Result<(), FrameError> {
        self.granted.set(self.granted.get().checked_sub(1).ok_or(FrameError::NoCredit)?);
        Ok(())
    }

    /// Counts what was stored: as many bytes as a packet has are a credit, whichever they are.
    pub(crate) fn served(&self, len: usize) {
        let (size, stored_len) = (self.server.run.size, self.stored_len.get() + len);
        self.stored_len.set(stored_len % size);
        let count = u32::try_from(stored_len / size).unwrap_or(u32::MAX);
        drop(self.places.borrow_mut().as_mut().map(|places| places.split(count.into())));
        self.owed.set(self.owed.get() + count);
        if self.is_due() {
            self.news.notify_all();
        }
    }

    fn is_due(&self) -> bool {
        self.owed.get() >= self.batch_len
    }

    /// The credits of the next answer, once it is due and there are places for as many packets;
    /// once all packets are served, those that are left, and then `None`.
    pub(crate) async fn due(&self) -> Option<u64> {
        self.unless_done(self.news.until(|| self.is_due())).await;
        let count = self.owed.take();
        if let Some(more) = self.unless_done(self.server.places.take(count.into())).await {
            let mut places = self.places.borrow_mut();
            match &mut *places {
                Some(places) => places.join(more),
                none => *none = Some(more),
            }
        }
        self.granted.set(self.granted.get().saturating_add(count));
        (count > 0).then_some(count.into())
    }

    /// Waits for something, unless all packets are served.
    async fn unless_done<T>(&self, other: impl Future<Output = T>) -> Option<T> {
        let done = async {
            self.server.news.until(|| self.server.is_done()).await;
            None
        };
        first(async { Some(other.await) }, done).await
    }

    pub(crate) async fn send(&self, mut sender: Sender) {
        let bytes = Heap::buffer(NUMBER_LEN);
        while let Some(count) = self.due().await {
            bytes.store(&count.to_le_bytes());
            if sender.send_all(vec![bytes.clone()]).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use executor::{Config, Executor};
    use uring::{Choice, Engines, Events, SystemClock};

    use super::*;
    use crate::rpc::packet::{Run, Transport};

    const SIZE: usize = 4 << 10;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Serves 400 packets, `depth` at a time.
    fn server(clients: u32, depth: u32) -> (Rc<Server>, Executor) {
        let (events, clock) = (Events::new().unwrap(), Rc::new(SystemClock));
        let executor = Executor::new(clock, Box::new(events.parker()), Config::default());
        let engines = Engines::new(&executor.handle(), Choice::Threads, 1, &events);
        let (transport, span) = (Transport::Tcp, 1 << 20);
        let run = Run { size: SIZE, count: 400, depth, clients, span, transport, lends: false };
        (Server::new(&executor.handle(), &engines, None, run).unwrap(), executor)
    }

    #[test]
    fn an_answer_waits_for_a_batch_or_for_the_last_packet() {
        let (server, _executor) = server(1, 300);
        let client = Answers::new(Rc::clone(&server));
        assert!(matches!(poll(pin!(client.due())), Poll::Ready(Some(300))));

        let mut batch = pin!(client.due());
        client.served(255 * SIZE + 1);
        assert!(poll(batch.as_mut()).is_pending());
        client.served(SIZE - 1);
        assert!(matches!(poll(batch), Poll::Ready(Some(256))));

        let mut rest = pin!(client.due());
        server.count(400 * SIZE - 1);
        client.served(44 * SIZE);
        assert!(poll(rest.as_mut()).is_pending());
        server.count(1);
        assert!(matches!(poll(rest), Poll::Ready(Some(44))));
        assert!(matches!(poll(pin!(client.due())), Poll::Ready(None)));
    }

    #[test]
    fn clients_wait_in_line_for_places_until_there_are_some_or_nothing_is_left_to_send() {
        let (server, _executor) = server(4, 200);
        let clients = [(); 4].map(|()| Answers::new(Rc::clone(&server)));
        let [first, second, third, fourth] = &clients;

        assert!(matches!(poll(pin!(first.due())), Poll::Ready(Some(128))));
        let (mut second_due, mut third_due) = (pin!(second.due()), pin!(third.due()));
        assert!(poll(second_due.as_mut()).is_pending() && poll(third_due.as_mut()).is_pending());

        first.served(55 * SIZE);
        assert!(poll(second_due.as_mut()).is_pending(), "127 places");
        first.served(SIZE);
        assert!(matches!(poll(second_due.as_mut()), Poll::Ready(Some(128))));
        assert!(poll(third_due.as_mut()).is_pending());

        server.count(400 * SIZE);
        assert!(matches!(poll(third_due.as_mut()), Poll::Ready(Some(128))));
        assert!(matches!(poll(pin!(fourth.due())), Poll::Ready(Some(128))));
    }
}
