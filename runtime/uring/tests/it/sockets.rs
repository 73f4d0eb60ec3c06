//! Stream sockets on a real executor: bytes, ends, fairness.

use std::{
    cell::{Cell, RefCell},
    fs,
    future::poll_fn,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use executor::Class;
use rustix::{
    fs::{FlockOperation, flock},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen,
        socket_with, sockopt,
    },
};
use uring::{Address, Buffer, Buffers, Choice, Heap, Listener, Sockets, Stream};

use crate::support::{Core, DEADLINE, buffer, content};

/// A core with sockets.
pub(crate) struct Net {
    pub(crate) core: Core,
    sockets: Sockets,
    folder: tempfile::TempDir,
}

impl Net {
    pub(crate) fn new() -> Self {
        Self::with(Core::new(Choice::Auto, 1))
    }

    pub(crate) fn with(core: Core) -> Self {
        let sockets = core.sockets();
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Self { core, sockets, folder }
    }

    /// Over TCP and Unix sockets.
    pub(crate) fn listeners(&mut self) -> [Listener; 2] {
        let unix = Address::Unix(self.folder.path().join("socket"));
        let unix = self.core.run(self.sockets.listen(&unix)).expect("a free path");
        [self.tcp_listener(), unix]
    }

    pub(crate) fn tcp_listener(&mut self) -> Listener {
        let address = "tcp://127.0.0.1:0".parse().expect("an address");
        self.core.run(self.sockets.listen(&address)).expect("a free port")
    }

    /// Both ends of a connection.
    pub(crate) fn pair(&mut self, listener: &mut Listener) -> [Stream; 2] {
        let address = listener.address().clone();
        let sockets = self.sockets.clone();
        self.core.run(async {
            let ours = sockets.connect(&address, DEADLINE).await.expect("somebody listens");
            [ours, listener.accept().await.expect("somebody connects")]
        })
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..251).cycle().take(len).collect()
}

/// Receives exactly `len` bytes, in receives of at most `step`.
pub(crate) async fn receive(stream: &mut Stream, len: usize, step: usize) -> io::Result<Vec<u8>> {
    let (into, mut all) = (Heap::buffer(step), Vec::new());
    while all.len() < len {
        let part = Buffers::from(into.prefix(len - all.len()));
        let received = stream.receive(&part).await?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        all.extend(content(&into.prefix(received)));
    }
    Ok(all)
}

#[test]
fn what_is_sent_arrives_in_order_over_tcp_and_unix_sockets() {
    let mut net = Net::new();
    for mut listener in net.listeners() {
        let [mut ours, mut theirs] = net.pair(&mut listener);
        // More than any socket buffer holds, so both sides have to wait for each other.
        let bytes = pattern(16 << 20);
        let parts = bytes.chunks(70_000).map(buffer).collect();
        let received = Rc::new(RefCell::new(Vec::new()));
        let (place, len) = (received.clone(), bytes.len());
        net.core.executor.handle().spawn(Class::Latency, async move {
            *place.borrow_mut() = receive(&mut theirs, len, 300_000).await.expect("no error");
            theirs.send_all(vec![buffer(b"done")]).await.expect("no error");
        });

        let answer = net.core.run(async {
            ours.send_all(parts).await?;
            receive(&mut ours, 4, 4).await
        });

        assert_eq!(answer.expect("no error"), b"done");
        assert!(*received.borrow() == bytes, "{}", listener.address());
    }
}

#[test]
fn a_receive_fills_several_buffers_in_order() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let [mut ours, mut theirs] = net.pair(&mut listener);
    let parts = [3, 5].map(Heap::buffer);
    let into = Buffers::new(parts.to_vec()).expect("two");
    let len = net.core.run(async {
        ours.send_all(vec![buffer(b"abcd"), Heap::buffer(0), buffer(b"ef")]).await?;
        theirs.receive(&into).await
    });
    assert_eq!(len.expect("no error"), 6);
    assert_eq!(parts.map(|part| content(&part)), [b"abc".to_vec(), b"def\0\0".to_vec()]);
}

#[test]
fn a_finished_sender_ends_the_stream_and_can_still_receive() {
    let mut net = Net::new();
    for mut listener in net.listeners() {
        let [ours, mut theirs] = net.pair(&mut listener);
        let (mut receiver, mut sender) = ours.split();
        let got = net.core.run(async {
            sender.send_all(vec![buffer(b"last")]).await?;
            sender.finish()?;
            let got = receive(&mut theirs, 4, 9).await?;
            let end = theirs.receive(&Heap::buffer(1).into()).await?;
            theirs.send_all(vec![buffer(b"!")]).await?;
            let answer = receiver.receive(&Heap::buffer(9).into()).await?;
            io::Result::Ok((got, end, answer))
        });
        assert_eq!(got.expect("no error"), (b"last".to_vec(), 0, 1));
    }
}

#[test]
fn a_peer_that_is_gone_ends_a_waiting_receive_and_fails_a_send() {
    let mut net = Net::new();
    for mut listener in net.listeners() {
        let [mut ours, theirs] = net.pair(&mut listener);
        let handle = net.core.executor.handle();
        handle.clone().spawn(Class::Latency, async move {
            handle.sleep(Duration::from_millis(5)).await;
            drop(theirs);
        });
        let (end, sent) = net.core.run(async {
            let end = ours.receive(&Heap::buffer(1).into()).await;
            loop {
                if let Err(error) = ours.send(&buffer(&[0; 4096]).into()).await {
                    return (end, error.kind());
                }
            }
        });
        assert_eq!(end.expect("an end, not an error"), 0);
        let broken = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(broken.contains(&sent), "{sent:?}");
    }
}

#[test]
fn a_receive_that_is_given_up_takes_no_byte() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let [mut ours, mut theirs] = net.pair(&mut listener);
    let into = Heap::buffer(8);
    let got = net.core.run(async {
        let buffers = Buffers::from(into.clone());
        {
            let mut receiving = std::pin::pin!(theirs.receive(&buffers));
            assert!(crate::support::poll(receiving.as_mut()).is_pending());
            ours.send_all(vec![buffer(b"kept")]).await?;
        }
        receive(&mut theirs, 4, 8).await
    });
    assert_eq!(got.expect("no error"), b"kept");
}

/// A socket that has a port, and its address.
fn bound() -> (OwnedFd, Address) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let bound = getsockname(&socket).expect("bound");
    (socket, SocketAddr::try_from(bound).expect("an address").into())
}

#[test]
fn nobody_listening_is_refused() {
    let mut net = Net::new();
    let sockets = net.sockets.clone();
    // Bound, so that nobody else gets the port, and not listening.
    let (_bound, address) = bound();
    let refused = net.core.run(sockets.connect(&address, DEADLINE)).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    let absent = Address::Unix(net.folder.path().join("absent"));
    let missing = net.core.run(sockets.connect(&absent, DEADLINE)).expect_err("no file");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);

    // However long the look-up takes here.
    let unknown = "tcp://no-such-host.invalid:1".parse().expect("an address");
    let limit = Duration::from_millis(50);
    net.core.run(sockets.connect(&unknown, limit)).expect_err("no host");
}

#[test]
fn a_unix_socket_is_its_users_and_takes_over_the_path_of_one_that_is_gone() {
    let mut net = Net::new();
    let path = net.folder.path().join("socket");
    let (sockets, address) = (net.sockets.clone(), Address::Unix(path.clone()));
    for _ in 0..2 {
        let mut listener = net.core.run(sockets.listen(&address)).expect("a free path");
        let mode = fs::metadata(&path).expect("bound").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let user = fs::metadata(&path).expect("bound").uid();
        for stream in net.pair(&mut listener) {
            assert_eq!(stream.peer_user().expect("connected"), Some(user));
        }
        let second = net.core.run(sockets.listen(&address)).expect_err("it listens");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    }
    fs::remove_file(&path).expect("left behind");
    fs::write(&path, "data").expect("a file");
    let taken = net.core.run(sockets.listen(&address)).expect_err("no socket");
    assert_eq!(taken.to_string(), "a file is there that is no socket");
    assert_eq!(fs::read(&path).expect("still there"), b"data");

    let mut listener = net.tcp_listener();
    for stream in net.pair(&mut listener) {
        assert_eq!(stream.peer_user().expect("connected"), None);
    }
}

#[test]
fn of_two_that_begin_at_one_path_the_first_has_it() {
    let mut net = Net::new();
    let path = net.folder.path().join("socket");
    let (sockets, address) = (net.sockets.clone(), Address::Unix(path.clone()));
    // The first is just between its two calls.
    let folder = fs::File::open(net.folder.path()).expect("a folder");
    flock(&folder, FlockOperation::LockExclusive).expect("free");
    let first = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let first = first.expect("a socket");
    bind(&first, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free path");
    let mut second = pin!(sockets.listen(&address));
    let begun = poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_ready()));
    assert!(!net.core.run(begun), "it did not wait");

    listen(&first, 1).expect("bound");
    drop(folder);

    let taken = net.core.run(second).expect_err("the first listens");
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    net.core.run(sockets.connect(&address, DEADLINE)).expect("the first is still there");
}

#[test]
fn a_stranger_that_keeps_the_lock_of_a_folder_keeps_no_server_from_listening() {
    let mut net = Net::new();
    let folder = fs::File::open(net.folder.path()).expect("a folder");
    flock(&folder, FlockOperation::LockExclusive).expect("free");
    let (sockets, address) = (net.sockets.clone(), Address::Unix(net.folder.path().join("socket")));

    net.core.run(sockets.listen(&address)).expect("a free path");
}

#[test]
fn a_connection_that_is_not_answered_times_out() {
    let mut net = Net::new();
    let sockets = net.sockets.clone();
    let (listening, address) = bound();
    listen(&listening, 0).expect("bound");
    let mut connected = Vec::new();
    let error = loop {
        // Once the backlog is full, which nobody empties, the kernel drops what comes.
        let limit = Duration::from_millis(50);
        match net.core.run(sockets.connect(&address, limit)) {
            Ok(stream) => connected.push(stream),
            Err(error) => break error,
        }
        assert!(connected.len() < 100);
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_name_with_several_addresses_is_tried_until_one_answers() {
    let mut net = Net::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let address = Address::Tcp { host: "localhost".into(), port };
    let sockets = net.sockets.clone();
    let mut ours = net.core.run(sockets.connect(&address, DEADLINE)).expect("127.0.0.1 answers");

    let (mut theirs, _) = listener.accept().expect("connected");
    theirs.write_all(b"hi").expect("sent");
    assert_eq!(net.core.run(receive(&mut ours, 2, 2)).expect("no error"), b"hi");
    net.core.run(ours.send_all(vec![buffer(b"ho")])).expect("sent");
    let mut answer = [0; 2];
    theirs.read_exact(&mut answer).expect("no error");
    assert_eq!(&answer, b"ho");
}

#[test]
fn tcp_connections_send_at_once_and_notice_a_silent_machine() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    for stream in net.pair(&mut listener) {
        stream.set_silence_max(Duration::from_secs(8)).expect("tcp");
        let socket = stream.as_fd();
        assert!(sockopt::tcp_nodelay(socket).expect("tcp"));
        assert!(sockopt::socket_keepalive(socket).expect("tcp"));
        assert_eq!(sockopt::tcp_keepidle(socket).expect("tcp"), Duration::from_secs(2));
        assert_eq!(sockopt::tcp_user_timeout(socket).expect("tcp"), 8000);
    }
}

#[test]
fn a_window_is_at_once_as_large_as_asked() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let [_ours, theirs] = net.pair(&mut listener);
    let room = || sockopt::socket_recv_buffer_size(&theirs).expect("a socket");
    assert!(room() < 1 << 20);

    theirs.set_window_min(1 << 20).expect("TCP");

    assert!(room() >= 1 << 20);
}

/// A stream that always has something to receive gets its share of a turn, as do all others.
#[test]
fn streams_that_are_always_ready_take_turns() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let counts = [(); 5].map(|()| Rc::new(Cell::new(0_u64)));
    let handle = net.core.executor.handle();
    for count in &counts {
        let [mut ours, mut theirs] = net.pair(&mut listener);
        handle.spawn(Class::Latency, async move {
            let bytes: Vec<Buffer> = (0..64).map(|_| Heap::buffer(64 << 10)).collect();
            while ours.send_all(bytes.clone()).await.is_ok() {}
        });
        let count = Rc::clone(count);
        handle.spawn(Class::Latency, async move {
            let into = Buffers::from(Heap::buffer(1));
            while theirs.receive(&into).await.is_ok_and(|len| len > 0) {
                count.set(count.get() + 1);
            }
        });
    }
    net.core.turn_until(|| counts.iter().all(|count| count.get() > 0));
    let start = counts.each_ref().map(|count| count.get());
    let turns = net.core.executor.counters().turns;

    net.core.turn_until(|| counts.iter().all(|count| count.get() > 10_000));

    let turns = net.core.executor.counters().turns - turns;
    for (count, start) in counts.iter().zip(start) {
        assert!(count.get() - start <= 16 * turns, "more than 16 receives a turn");
    }
}

#[test]
fn many_connections_are_served_by_one_executor() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let handle = net.core.executor.handle();
    let served = Rc::new(Cell::new(0));
    let mut clients = Vec::new();
    for _ in 0..256 {
        let [ours, mut theirs] = net.pair(&mut listener);
        clients.push(ours);
        let served = Rc::clone(&served);
        handle.spawn(Class::Latency, async move {
            let got = receive(&mut theirs, 3, 3).await.expect("no error");
            theirs.send_all(vec![buffer(&got)]).await.expect("no error");
            served.set(served.get() + 1);
        });
    }
    let answers = net.core.run(async {
        for client in &mut clients {
            client.send_all(vec![buffer(b"abc")]).await.expect("no error");
        }
        let mut answers = 0;
        for client in &mut clients {
            answers += usize::from(receive(client, 3, 3).await.is_ok_and(|got| got == b"abc"));
        }
        answers
    });
    assert_eq!((answers, served.get()), (256, 256));
}

/// Nothing waits for a socket: one that became ready must not end every park.
#[test]
fn a_ready_socket_that_nobody_reads_does_not_keep_the_executor_awake() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let [mut ours, _theirs] = net.pair(&mut listener);
    net.core.run(ours.send_all(vec![buffer(b"unread")])).expect("sent");
    net.core.turn_a_while();
    let parks = net.core.executor.counters().parks;

    net.core.turn_a_while();

    assert!(net.core.executor.counters().parks - parks < 10);
}

#[test]
fn sockets_need_no_ring() {
    let mut net = Net::with(Core::new(Choice::Threads, 1));
    let mut listener = net.tcp_listener();
    let [mut ours, mut theirs] = net.pair(&mut listener);
    net.core.run(ours.send_all(vec![buffer(b"x")])).expect("sent");
    assert_eq!(net.core.run(receive(&mut theirs, 1, 1)).expect("no error"), b"x");
}
