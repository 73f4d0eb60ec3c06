//! Lines between workers of one process, and what others send to those.

use std::{
    future::pending,
    io::{self, Write as _},
    rc::Rc,
};

use executor::{Config, Executor};
use shm::copy::copy_out;
use uring::{Choice, Engines, Events, Reactor, Sockets, SystemClock};
use wire::{BOOT_LEN, Frame, ROOT_LEN, RemoteWelcome, Request, SESSION_LEN};

use super::*;
use crate::{
    line::channel::{BATCH_LEN, Inbox, Outbox, bytes_of},
    line::handshake::{challenge, fails_at, greet},
    line::key::Key,
};

/// Against hangs.
const DEADLINE: Duration = Duration::from_secs(60);
const SECRETS: Secrets = Secrets { ours: [1; TAG_LEN], theirs: [2; TAG_LEN] };
/// More than one message takes, eager or not.
const LEN: usize = 3 << 20;

struct World {
    executor: Executor,
    node: Node,
}

#[derive(Clone)]
struct Node {
    sockets: Sockets,
    server: Workers,
    client: Workers,
}

impl World {
    /// `None`, said past the capture of a test's output, where libucp is absent.
    fn new() -> Option<Self> {
        let events = Events::new().expect("epoll");
        let park = Box::new(events.parker());
        let executor = Executor::new(Rc::new(SystemClock), park, Config::default());
        let handle = executor.handle();
        let engines = Engines::new(&handle, Choice::Threads, 1, &events);
        let sockets = Sockets::new(&handle, &events, &engines).expect("sockets");
        let reactor = Reactor::new(&handle, events);
        let client = match Workers::new(&handle, &reactor, &[]) {
            Err(why @ ucx::Error::Missing { .. }) => {
                let line = format!("1 SKIPPED: lines over UCX: {why}\n");
                io::stderr().write_all(line.as_bytes()).expect("standard error");
                return None;
            }
            workers => workers.expect("a library"),
        };
        let server = client.clone().for_server().expect("a worker");
        Some(Self { executor, node: Node { sockets, server, client } })
    }

    fn run(mut self, test: impl AsyncFnOnce(Node)) {
        let (handle, node) = (self.executor.handle(), self.node.clone());
        let test = async {
            test(node).await;
            io::Result::Ok(())
        };
        let end = handle.now() + DEADLINE;
        self.executor.run_until(first(test, fails_at(&handle, end))).expect("in time");
    }
}

impl Node {
    async fn streams(&self) -> (Stream, Stream) {
        let place = "tcp://127.0.0.1:0".parse().expect("an address");
        let mut listener = self.sockets.listen(&place).await.expect("loopback");
        let far = self.sockets.connect(listener.address(), DEADLINE).await.expect("listens");
        (listener.accept().await.expect("connected"), far)
    }
}

fn buffer(bytes: &[u8]) -> Buffer {
    let buffer = Heap::buffer(bytes.len());
    buffer.store(bytes);
    buffer
}

async fn receive_some(from: &mut Incoming, into: &Buffers) -> io::Result<usize> {
    loop {
        from.ready().await;
        match from.receive_now(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

async fn read(from: &mut Incoming, len: usize) -> Vec<u8> {
    let (space, mut all) = (Heap::buffer(64 << 10), Vec::new());
    while all.len() < len {
        let len = receive_some(from, &space.clone().into()).await.expect("more comes");
        let at = all.len();
        all.resize(at + len, 0);
        copy_out(&mut all[at..], space.prefix(len).bytes());
    }
    all
}

#[test]
fn both_sides_leave_the_stream_after_the_welcome_and_nothing_is_lost() {
    let Some(world) = World::new() else { return };
    world.run(async |node| {
        let folder = tempfile::tempdir().expect("folder");
        let key = Key::read_or_create(&folder.path().join("key")).expect("key");
        let (near, far) = node.streams().await;
        let (near, mut answers) = halves(near, Some(node.server));
        let (far, mut requests) = halves(far, Some(node.client));
        let (mut near, mut far) = (Inbox::new(near), Inbox::new(far));
        let (said, asked) = (Outbox::default(), Outbox::default());
        let bytes: Vec<u8> =
            (0..LEN as u64).map(|at| at.to_le_bytes()[0] ^ (at >> 9).to_le_bytes()[0]).collect();

        let serve = async {
            assert_eq!(challenge(&key, &mut near, &said).await?, [3; SESSION_LEN]);
            let (requests, buffers, boot, root) = (1, 1, [0; BOOT_LEN], [0; ROOT_LEN]);
            let welcome = RemoteWelcome { requests, buffers, is_known: false, boot, root };
            said.push(Frame::Welcome(welcome));
            pending().await
        };
        let session = [3; SESSION_LEN];
        let ask = async { greet(&key, session, &mut far, &asked, || ()).await.map(drop) };
        let serving = first(serve, said.pump(&mut answers));
        let asking = first(ask, asked.pump(&mut requests));
        Box::pin(first(asking, serving)).await.expect("welcome");

        let send = async {
            for part in bytes.chunks(100_000).chain(bytes.chunks(BATCH_LEN)) {
                requests.send_all(vec![buffer(part)]).await.expect("connected");
            }
            pending().await
        };
        let receive = async { read(near.receiver(), 2 * LEN).await };
        let found = first(receive, send).await;
        assert!(found == [&bytes[..], &bytes].concat());
        answers.send_all(vec![buffer(b"all of it")]).await.expect("connected");
        assert_eq!(read(far.receiver(), 9).await, b"all of it");

        // The server goes: its end of the stream tells.
        drop((near, answers));
        let ended = receive_some(far.receiver(), &Heap::buffer(1).into()).await;
        assert_eq!(ended.expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn only_messages_with_the_secret_of_the_connection_count() {
    let Some(world) = World::new() else { return };
    world.run(async |node| {
        let (near, _far) = node.streams().await;
        let (mut near, _answers) = halves(near, Some(node.server));
        let there = Address::from_bytes(&near.worker().expect("a worker")).expect("whole");
        let (peer, stranger) = (node.client.worker(), node.client.worker());
        let (peer, stranger) = (peer.expect("a worker"), stranger.expect("a worker"));
        let address = peer.worker.address().expect("memory");
        near.leave_stream(address.as_bytes(), SECRETS, Speaks::Second).expect("reachable");
        let endpoint = peer.worker.connect_worker(&there).expect("reachable");
        let envelope = |secret: u8, number| Envelope { secret: [secret; TAG_LEN], number }.encode();

        // It even knows the secret, but nobody has connected to it.
        let unknown = stranger.worker.connect_worker(&there).expect("reachable");
        let evil = unknown.send(&envelope(2, 0), Payload(buffer(b"evil")));
        let handle = &node.client.handle;
        handle.spawn(Class::Latency, async { drop(evil.await) });
        for (header, bytes) in [
            (&envelope(1, 0)[..], b"evil"), // Our own secret.
            (&[2; TAG_LEN], b"evil"),
            (&[], b"evil"),
            (&envelope(2, 1), b" two"), // Out of order, but the peer's.
            (&envelope(2, 0), b"one,"),
        ] {
            endpoint.send(header, Payload(buffer(bytes))).await.expect("connected");
        }
        assert_eq!(read(&mut near, 8).await, b"one, two");
    });
}

/// It may have been killed within a message, which others then wait behind.
#[test]
fn worker_of_a_peer_that_went_without_a_word_is_not_used_for_others() {
    let Some(world) = World::new() else { return };
    world.run(async |node| {
        let first = node.server.worker().expect("a worker");
        for goes in [false, true] {
            let (near, far) = node.streams().await;
            let (mut near, _answers) = halves(near, Some(node.server.clone()));
            near.worker().expect("a worker");
            let peer = node.client.worker().expect("a worker");
            let address = peer.worker.address().expect("memory");
            near.leave_stream(address.as_bytes(), SECRETS, Speaks::Second).expect("reachable");
            if goes {
                drop(far);
                let ended = receive_some(&mut near, &Heap::buffer(1).into()).await;
                assert_eq!(ended.expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
            } else {
                drop(near);
                node.client.handle.sleep(2 * PARTING).await;
            }
            let next = node.server.worker().expect("a worker");
            assert_eq!(Rc::ptr_eq(&first, &next), !goes);
        }
    });
}

#[test]
fn a_peer_that_goes_ends_what_waits_for_it_to_take_earlier_messages() {
    let Some(world) = World::new() else { return };
    world.run(async |node| {
        let (near, far) = node.streams().await;
        let (mut near, mut answers) = halves(near, Some(node.server));
        near.worker().expect("a worker");
        let peer = node.client.worker().expect("a worker");
        let address = peer.worker.address().expect("memory");
        near.leave_stream(address.as_bytes(), SECRETS, Speaks::First).expect("reachable");
        let line = Rc::clone(answers.line.get().expect("left"));
        let _under_way = line.sending.take(SENDING_MAX).await;

        let send = async { answers.send_all(vec![buffer(b"waits")]).await };
        let goes = async {
            drop(far);
            pending().await
        };

        assert_eq!(first(send, goes).await.expect_err("gone").kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn peer_that_sends_a_number_twice_or_more_than_its_credits_is_cut_off() {
    let mut parts = Parts::default();
    assert_eq!(parts.add(1, part(&[1], false)), Some(()));
    assert!(!parts.has_next());
    assert_eq!(parts.add(1, part(&[1], false)), None);

    let mut parts = Parts::default();
    assert_eq!(parts.add(0, part(&[], false)), None, "an empty message");
    let mut parts = Parts::default();
    let fits = (0..)
        .take_while(|number| parts.add(*number, part(&vec![0; BATCH_LEN], false)).is_some())
        .count();
    assert!((16..64).contains(&fits), "{fits} of {BATCH_LEN} bytes");
    let mut parts = Parts::default();
    let fits = (0..).take_while(|number| parts.add(*number, part(&[0], false)).is_some()).count();
    assert!(fits < 100_000, "{fits} of one byte");
}

fn part(bytes: &[u8], is_held: bool) -> Part {
    Part { data: buffer(bytes), is_held }
}

fn parts(messages: &[&[u8]]) -> Parts {
    let mut parts = Parts::default();
    for (number, message) in (0..).zip(messages) {
        assert_eq!(parts.add(number, part(message, true)), Some(()));
    }
    parts
}

#[test]
fn messages_that_are_so_long_together_are_lent_and_no_others() {
    let lens = |lent: Poll<Option<Buffers>>| {
        lent.map(|lent| {
            lent.map(|lent| lent.as_slice().iter().map(Buffer::len).collect::<Vec<_>>())
        })
    };
    let mut all = parts(&[b"head", b"one", b"three", b"next"]);
    assert_eq!(lens(all.take_whole(5)), Poll::Ready(None), "cut elsewhere");
    assert_eq!(all.load(&Heap::buffer(2).into()), 2);
    assert_eq!(lens(all.take_whole(2)), Poll::Ready(None), "begun");
    assert_eq!(all.load(&Heap::buffer(9).into()), 2);
    assert_eq!(lens(all.take_whole(8)), Poll::Ready(Some(vec![3, 5])));
    assert_eq!(lens(all.take_whole(6)), Poll::Pending, "more may come");
    assert_eq!(all.load(&Heap::buffer(9).into()), 4);
    assert_eq!((all.len, all.has_next()), (0, false));
    assert_eq!(lens(all.take_whole(1)), Poll::Pending);
    let mut many = parts(&[&b"x"[..]; BUFFER_COUNT_MAX + 1]);
    assert_eq!(lens(many.take_whole(BUFFER_COUNT_MAX + 1)), Poll::Ready(None), "too many");
    assert!(many.has_next());
    let mut copied = Parts::default();
    assert_eq!(copied.add(0, part(b"copied", false)), Some(()));
    assert_eq!(lens(copied.take_whole(6)), Poll::Ready(None), "not bounded by the worker");
}

#[test]
fn long_payloads_are_messages_of_their_own() {
    let (short, long) = (JOINED_LEN_MAX, 2 * PIECE_LEN + 1);
    let from: Vec<_> = [8, short, long, 3, short + 1].map(Heap::buffer).into();
    let lens: Vec<_> = messages(&from).map(|message| message.len()).collect();
    assert_eq!(lens, [8 + short, PIECE_LEN, PIECE_LEN, 1, 3, short + 1]);
}

#[test]
fn long_payloads_stay_where_they_were_received_one_after_the_other() {
    let Some(world) = World::new() else { return };
    world.run(async |node| {
        let (near, far) = node.streams().await;
        let (mut near, _answers) = halves(near, Some(node.server));
        let (mut far, mut requests) = halves(far, Some(node.client));
        let [here, there] = [&mut near, &mut far].map(|side| side.worker().expect("a worker"));
        let Secrets { ours: theirs, theirs: ours } = SECRETS;
        near.leave_stream(&there, SECRETS, Speaks::Second).expect("reachable");
        far.leave_stream(&here, Secrets { ours, theirs }, Speaks::First).expect("reachable");

        let (mut inbox, asked) = (Inbox::new(near), Outbox::default());
        let len = 2 * PIECE_LEN;
        for id in 1..=3 {
            let request = Request::Write {
                file: 0,
                at: 0,
                len: u32::try_from(len).expect("short"),
                arena_at: 0,
            };
            let frame = Frame::Request { id, record: None, request, payload: &[] };
            asked.push_data(frame, buffer(&vec![id.to_le_bytes()[0]; len]));
        }
        let receive = async {
            for id in 1..=3_u8 {
                inbox.fill().await?;
                let data = inbox.data().expect("a payload");
                assert_eq!(data.as_slice().len(), 2, "frame {id} was copied");
                assert!(bytes_of(&data) == vec![id; len]);
                inbox.consume();
            }
            io::Result::Ok(())
        };
        first(receive, asked.pump(&mut requests)).await.expect("all three");
    });
}
