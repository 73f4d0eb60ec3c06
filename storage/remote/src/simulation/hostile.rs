//! Clients that have the key and do not keep to the protocol, or go without a word.

use std::{cell::RefCell, io, rc::Rc};

use executor::{Class, Clock as _, first};
use fastrand::Rng;
use rustix::fs::OFlags;
use shm::copy::copy_in;
use uring::{Heap, Inlet as _};
use wire::{
    Frame, HEADER_LEN, INLINE_LEN_MAX, PathPair, Request, SESSION_LEN, TRANSFER_LEN_MAX, reseal,
};

use super::{SimNetwork, TIME_MAX, World, disk::SimDisk, network::End};
use crate::{
    client::requests::Network as _,
    line::{
        REQUESTS,
        channel::{Inbox, Outbox, Transmit as _},
        handshake::greet,
        key::Key,
    },
    server::{
        connections::{BUFFERS, GREETING_COUNT_MAX, IDLE_MIN},
        service::{CLIENTS_MAX, KEEP},
    },
};

/// Mutated frames in an ordinary run; `FRAMES=n` sends others.
const FRAMES: usize = 5_000;
const FRAMES_PER_CONNECTION: usize = 20;
const SESSION: [u8; SESSION_LEN] = [1; SESSION_LEN];

impl World {
    /// Runs a client against a server to its end.
    pub(super) fn outcome_of<T: 'static>(
        &mut self,
        client: impl Future<Output = T> + 'static,
    ) -> T {
        let outcome = Rc::new(RefCell::new(None));
        let told = Rc::clone(&outcome);
        self.handle.spawn(Class::Latency, async move {
            told.replace(Some(client.await));
        });
        let end = self.clock.now() + TIME_MAX;
        while outcome.borrow().is_none() {
            assert!(self.clock.now() < end, "neither answered nor cut off");
            self.turn();
        }
        outcome.take().expect("done")
    }
}

#[test]
fn client_without_credit_is_cut_off() {
    for (asked, answered) in [(REQUESTS, true), (REQUESTS + 1, false)] {
        let mut world = World::new(7);
        world.start_server();
        let (network, key) = (world.network.clone(), world.key.clone());
        let outcome = world.outcome_of(async move { ask_at_once(&network, &key, asked).await });
        assert_eq!(outcome.is_ok(), answered, "{asked} requests: {outcome:?}");
    }
}

#[test]
fn half_of_the_long_transfers_that_are_granted_are_executed_at_a_time() {
    for (len, at_a_time) in [(TRANSFER_LEN_MAX, BUFFERS / 2), (INLINE_LEN_MAX, BUFFERS)] {
        let mut world = World::new(7);
        world.start_server();
        let (network, key) = (world.network.clone(), world.key.clone());
        let len = u32::try_from(len).expect("a short length");
        let read = Request::Read { file: 1, at: 0, len, arena_at: 0 };
        let rounds = [vec![(open(), &b"/x"[..])], vec![(read, b""); BUFFERS as usize]];
        let read = world.outcome_of(async move { send(&network, &key, &rounds).await });
        read.expect("answered");
        assert_eq!(world.disk.reads_max.get(), at_a_time, "of {len} bytes");
    }
}

#[test]
fn strangers_that_do_not_greet_keep_nobody_out() {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let strangers = world.outcome_of(async move {
        let mut strangers = Vec::new();
        for _ in 0..8 * GREETING_COUNT_MAX {
            strangers.push(network.connect().await?);
        }
        ask_at_once(&network, &key, 1).await.map(|()| strangers)
    });
    let mut strangers = strangers.expect("served");
    // The oldest gave way, the newest are still listened to.
    let is_cut = |end: &mut (End, End)| {
        let received = end.0.receive_now(&Heap::buffer(1).into());
        received.expect_err("nothing is said").kind() != io::ErrorKind::WouldBlock
    };
    let cut = strangers.iter_mut().map(is_cut).filter(|cut| *cut).count();
    assert_eq!(cut, 7 * GREETING_COUNT_MAX + 1);
    assert!(is_cut(&mut strangers[0]));
}

#[test]
fn strangers_that_do_not_greet_take_no_room_of_clients() {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let len = u32::try_from(TRANSFER_LEN_MAX).expect("a short length");
    let read = Request::Read { file: 1, at: 0, len, arena_at: 0 };
    let rounds = [vec![(open(), &b"/x"[..])], vec![(read, b""); BUFFERS as usize]];
    let read = world.outcome_of(async move {
        let mut strangers = Vec::new();
        for _ in 0..GREETING_COUNT_MAX {
            strangers.push(network.connect().await?);
        }
        send(&network, &key, &rounds).await
    });
    read.expect("answered");
    assert_eq!(world.disk.reads_max.get(), BUFFERS / 2);
}

/// A connection of a client that is welcomed.
async fn enter(
    network: &SimNetwork<SimDisk>,
    key: &Key,
    number: usize,
) -> io::Result<(Inbox<End>, End)> {
    let mut session = [0; SESSION_LEN];
    let number = u64::try_from(number).expect("few");
    session[..size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
    let (receiver, mut sender) = network.connect().await?;
    let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
    let greeted = async { greet(key, session, &mut inbox, &outbox, || ()).await.map(drop) };
    first(greeted, outbox.pump(&mut sender)).await?;
    Ok((inbox, sender))
}

#[test]
fn sessions_of_clients_that_are_gone_keep_nobody_out() {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let began = world.clock.now();
    let entered = world.outcome_of(async move {
        for number in 0..2 * CLIENTS_MAX {
            enter(&network, &key, number).await?;
        }
        io::Result::Ok(())
    });
    entered.expect("each finds room");
    assert!(world.clock.now() < began + KEEP, "some have gone by themselves");
    let server = world.network.server().expect("started");
    assert!(server.service.session_count() <= CLIENTS_MAX);
}

#[test]
fn connections_that_are_silent_give_way_where_all_places_are_taken() {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let mut all = world.outcome_of(async move {
        let mut all = Vec::new();
        for number in 0..CLIENTS_MAX {
            all.push(enter(&network, &key, number).await.expect("a place"));
        }
        all
    });
    let enter_now = |world: &mut World, number| {
        let (network, key) = (world.network.clone(), world.key.clone());
        world.outcome_of(async move { enter(&network, &key, number).await })
    };
    assert!(enter_now(&mut world, CLIENTS_MAX).is_err(), "all were heard of just now");
    world.clock.0.advance(IDLE_MIN);
    // It may have to try twice: whoever gives way goes only then.
    let entered = (0..2).find_map(|_| enter_now(&mut world, CLIENTS_MAX).ok());
    assert!(entered.is_some(), "1,024 silent ones lock the server");
    let is_cut = |(inbox, _): &mut (Inbox<End>, End)| {
        let received = inbox.receiver().receive_now(&Heap::buffer(1).into());
        received.expect_err("nothing is said").kind() != io::ErrorKind::WouldBlock
    };
    let cut = all.iter_mut().map(is_cut).filter(|cut| *cut).count();
    assert!((1..=2).contains(&cut), "{cut} gave way");
}

/// Sends so many requests without waiting for a reply, then waits for all of them.
async fn ask_at_once(network: &SimNetwork<SimDisk>, key: &Key, asked: u32) -> io::Result<()> {
    let stat = Request::Stat { path_len: 2, follow: true };
    send(network, key, &[vec![(stat, b"/x"); asked as usize]]).await
}

/// The same in rounds, with any requests and their payloads.
async fn send(
    network: &SimNetwork<SimDisk>,
    key: &Key,
    rounds: &[Vec<(Request, &[u8])>],
) -> io::Result<()> {
    let (receiver, mut sender) = network.connect().await?;
    let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
    let ask = async {
        greet(key, SESSION, &mut inbox, &outbox, || ()).await?;
        for round in rounds {
            for (id, &(request, payload)) in (1..).zip(round) {
                outbox.push(Frame::Request { id, record: None, request, payload });
            }
            for _ in round {
                inbox.fill().await?;
                inbox.consume();
            }
        }
        Ok(())
    };
    first(ask, outbox.pump(&mut sender)).await
}

#[test]
fn client_that_goes_without_a_word_leaves_nothing_open() {
    leaves_nothing_open(false);
}

/// The next message to send finds the connection dead.
#[test]
fn client_that_hears_no_more_leaves_nothing_open() {
    leaves_nothing_open(true);
}

/// Has a client open a file and go, or only hear no more and say one thing.
fn leaves_nothing_open(speaks: bool) {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let server = network.server().expect("started");
    world.handle.spawn(Class::Latency, Rc::clone(&server.service).tidy());
    let opened = world.outcome_of(async move {
        let (receiver, mut sender) = network.connect().await?;
        let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
        let open = async {
            greet(&key, SESSION, &mut inbox, &outbox, || ()).await?;
            outbox.push(Frame::Request { id: 1, record: None, request: open(), payload: b"/x" });
            inbox.fill().await
        };
        first(open, outbox.pump(&mut sender)).await?;
        io::Result::Ok(if speaks { Some(sender) } else { None })
    });
    let sender = opened.expect("answered");
    assert_eq!(server.service.open_files(), 1);
    let sender = sender.map(|mut sender| {
        world.outcome_of(async move {
            let ping = Heap::buffer(HEADER_LEN);
            copy_in(ping.bytes(), Frame::Ping.head().bytes());
            sender.send_all(vec![ping]).await.map(|()| sender)
        })
    });
    world.clock.0.advance(KEEP / 2);
    world.outcome_of(std::future::ready(()));
    assert_eq!(server.service.open_files(), 1, "it may come back");
    let end = world.clock.now() + 2 * KEEP;
    while server.service.session_count() > 0 {
        assert!(world.clock.now() < end, "the session is kept");
        world.clock.0.advance(KEEP / 16);
        world.turn();
    }
    drop(sender);
}

/// As of a server that stood still: it finds a request, and that the client has come anew since.
#[test]
fn request_on_a_connection_that_was_replaced_is_not_executed() {
    let mut world = World::new(7);
    world.start_server();
    let (network, key) = (world.network.clone(), world.key.clone());
    let server = network.server().expect("started");
    let (service, handle) = (Rc::clone(&server.service), world.handle.clone());
    let replaced = world.outcome_of(async move {
        let (receiver, mut sender) = network.connect().await?;
        let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
        let greeted = async { greet(&key, SESSION, &mut inbox, &outbox, || ()).await.map(drop) };
        first(greeted, outbox.pump(&mut sender)).await?;
        let frame = Frame::Request { id: 1, record: None, request: open(), payload: b"/x" };
        let bytes = [frame.head().bytes(), frame.payload()].concat();
        let buffer = Heap::buffer(bytes.len());
        copy_in(buffer.bytes(), &bytes);
        sender.send_all(vec![buffer]).await?;
        let _visit = service.enter(SESSION).await?;
        handle.sleep(KEEP / 60).await;
        io::Result::Ok(())
    });
    replaced.expect("greeted");
    assert_eq!(server.service.open_files(), 0);
}

#[test]
fn frames_with_any_bytes_changed_hurt_nobody() {
    #[expect(clippy::disallowed_methods, reason = "a longer run is asked for here")]
    let frames = std::env::var("FRAMES").ok().map(|text| text.parse().expect("a number"));
    let mut world = World::new(7);
    world.start_server();
    let server = world.network.server().expect("started");
    for round in 0..frames.unwrap_or(FRAMES) / FRAMES_PER_CONNECTION {
        let (network, key) = (world.network.clone(), world.key.clone());
        world.outcome_of(async move { send_mutated(&network, &key, round as u64).await.ok() });
        assert!(server.service.session_count() <= 1, "it is always the same session");
        assert!(server.service.open_files() <= 2 * FRAMES_PER_CONNECTION * 256);
    }
    let (network, key) = (world.network.clone(), world.key.clone());
    world.outcome_of(async move { ask_at_once(&network, &key, 1).await }).expect("served");
}

/// Greets, sends frames of which some bytes are others, and waits until that is over.
async fn send_mutated(network: &SimNetwork<SimDisk>, key: &Key, seed: u64) -> io::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let (receiver, mut sender) = network.connect().await?;
    let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
    first(
        async { greet(key, SESSION, &mut inbox, &outbox, || ()).await.map(drop) },
        outbox.pump(&mut sender),
    )
    .await?;
    let mut bytes = Vec::new();
    for id in 0..FRAMES_PER_CONNECTION {
        let frame = some_frame(&mut rng, id as u64);
        let start = bytes.len();
        bytes.extend_from_slice(frame.head().bytes());
        bytes.extend_from_slice(frame.payload());
        for _ in 0..rng.usize(0..3) {
            let at = rng.usize(start..bytes.len());
            bytes[at] = if rng.bool() { rng.u8(..) } else { bytes[at] ^ (1 << rng.u32(0..8)) };
        }
        // What a wrong checksum would hide.
        if rng.u32(0..8) > 0 {
            reseal(&mut bytes[start..]);
        }
    }
    bytes.extend_from_slice(Frame::Goodbye.head().bytes());
    let buffer = Heap::buffer(bytes.len());
    copy_in(buffer.bytes(), &bytes);
    sender.send_all(vec![buffer]).await?;
    // A length that was changed may make it wait for more than is sent.
    drop(sender);
    loop {
        inbox.fill().await?;
        inbox.consume();
    }
}

fn open() -> Request {
    let flags = (OFlags::CREATE | OFlags::RDWR).bits();
    Request::Open { file: 1, flags, mode: 0o600, path_len: 2, inode: 0 }
}

fn some_frame(rng: &mut Rng, id: u64) -> Frame<'static> {
    let (request, payload): (_, &[u8]) = match rng.u32(0..7) {
        0 => (open(), b"/x"),
        1 => (Request::Write { file: 1, at: 0, len: 5, arena_at: 0 }, b"hello"),
        2 => (Request::Read { file: 1, at: 0, len: 5, arena_at: 0 }, b""),
        3 => (Request::Unlink { path_len: 2 }, b"/x"),
        4 => {
            let paths = PathPair { from_len: 2, to_len: 2 };
            (Request::Rename { paths, flags: 0 }, b"/x/y")
        }
        5 => (Request::Close { file: 1 }, b""),
        _ => return Frame::Ping,
    };
    Frame::Request { id, record: rng.bool().then_some(0), request, payload }
}
