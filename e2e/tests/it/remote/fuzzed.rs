//! Frames with anything in them at the port of a server: some of strangers, most of a client that
//! has proven the key, on one connection after the other.
//!
//! What a frame does to its connection is known before it is sent, by the parser that the server
//! has, too: one that ends it is the last. So each frame that is counted is one that the server has
//! looked at.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
};

use fastrand::Rng;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wire::{
    Challenge, Frame, HEADER_LEN, NONCE_LEN, PathPair, Proof, Request, SESSION_LEN, reseal,
};

use super::local;
use crate::{
    harness::{Folder, SOON, note, random, succeed, wait_for},
    remote::server::{Scheme, Server},
};

/// On one connection: a client may have 64 requests unanswered.
const AT_ONCE: u64 = 60;
const SESSIONS: u8 = 4;
/// The longest payload that is sent.
const LONG_LEN: usize = 16 << 10;
/// Bound on allocations, to spare the disk.
const ALLOCATED_MAX: u64 = 1 << 20;
/// Of the server's memory, from a tenth of the frames on. It grew by 0.7 MiB in a hundred thousand
/// frames, and by 0.2 MiB in a million.
const GROWTH_MAX: u64 = 2 << 20;

#[test]
fn fuzzed_frames_neither_end_a_server_nor_make_it_grow() {
    neither_end_a_server_nor_make_it_grow(100_000);
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn a_million_fuzzed_frames_neither_end_a_server_nor_make_it_grow() {
    neither_end_a_server_nor_make_it_grow(1_000_000);
}

fn neither_end_a_server_nor_make_it_grow(frames: u64) {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    // Its address is known before it has all that it goes on with.
    let (mut fresh, mut looks) = (Vec::new(), 0);
    let is_settled = wait_for(SOON, || {
        let now = open(&server);
        looks = if now == fresh { looks + 1 } else { 0 };
        fresh = now;
        looks > 20 && fresh.iter().all(|path| !path.ends_with("lock"))
    });
    assert!(is_settled, "{fresh:?}");
    serves_a_client(&folder, &server);
    let mut hostile = Hostile::new(&folder, &server);
    let [before, after] = [frames / 10, frames].map(|frames| {
        hostile.send_until(frames);
        hostile.say_goodbye();
        note(format_args!("{:?}, RSS {} KiB", hostile.sent, server.rss_bytes() >> 10));
        server.rss_bytes()
    });

    let grown = after.saturating_sub(before);
    assert!(grown <= GROWTH_MAX, "{grown} bytes more");
    let is_back = wait_for(SOON, || open(&server).len() <= fresh.len());
    assert!(is_back, "there were {fresh:?}, there are {:?}", open(&server));
    let Sent { frames, answered, .. } = hostile.sent;
    assert!(answered > frames / 3, "too few get past the first check: {:?}", hostile.sent);
    serves_a_client(&folder, &server);
    server.end();
}

/// Lists the server's open files, without timers of threads and idle pipes.
fn open(server: &Server) -> Vec<PathBuf> {
    let fds = fs::read_dir(format!("/proc/{}/fd", server.running.child.id()));
    let fds = fds.expect("descriptors").flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let kept = ["anon_inode:[timerfd]", "pipe:"];
    let is_kept = |link: &Path| kept.iter().any(|kind| link.to_string_lossy().starts_with(kind));
    links.filter(|link| !is_kept(link)).collect()
}

#[track_caller]
fn serves_a_client(folder: &Folder, server: &Server) {
    let script = "cd \"$0\"; echo served >job; cat job; rm job";
    let mut command = server.run(folder);
    let said = succeed(command.args(["bash", "-c", script]).arg(local(folder)), SOON);
    assert_eq!(said, "served\n");
}

/// Frames sent, and their results.
#[derive(Debug, Default)]
struct Sent {
    frames: u64,
    connections: u64,
    /// Of these, those of strangers.
    keyless: u64,
    /// Requests that were answered.
    answered: u64,
    /// Connections that the server has ended before that.
    cut: u64,
}

struct Hostile {
    port: u16,
    key: Vec<u8>,
    rng: Rng,
    /// A byte string for each frame.
    valid: Vec<Vec<u8>>,
    sent: Sent,
}

impl Hostile {
    fn new(folder: &Folder, server: &Server) -> Self {
        let text = fs::read_to_string(folder.join("key")).expect("made");
        let digits = text.trim_end().as_bytes().chunks_exact(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let key = digits.map(|two| byte(two).expect("hexadecimal digits")).collect();
        let (rng, valid) = (random("fuzzed frames"), valid_frames());
        Self { port: server.port, key, rng, valid, sent: Sent::default() }
    }

    fn send_until(&mut self, frames: u64) {
        while self.sent.frames < frames {
            if self.rng.u8(..) < 16 {
                self.connect_as_a_stranger();
            } else {
                self.connect_with_the_key();
            }
        }
    }

    /// The server looks at what is no hello, and at what follows one.
    fn connect_as_a_stranger(&mut self) {
        let mut bytes = Vec::new();
        if self.rng.bool() {
            let hello = Frame::hello([1; SESSION_LEN], [2; NONCE_LEN]).head();
            bytes.extend_from_slice(hello.bytes());
            self.sent.frames += 1;
        }
        bytes.append(&mut self.mutated());
        self.sent.frames += 1;
        self.sent.keyless += 1;
        let mut stream = self.connect();
        send_and_end(&mut stream, &bytes);
        assert_eq!(read_replies(&mut stream, u64::MAX), 0, "a stranger is answered");
    }

    /// Frames that end the connection are sent when all before them are answered, or the server has
    /// ended it.
    fn connect_with_the_key(&mut self) {
        let (mut bytes, mut last, mut asked) = (Vec::new(), None, 0);
        while asked < AT_ONCE && last.is_none() {
            let mut frame = self.mutated();
            match Effect::of(&frame) {
                Effect::IsAnswered => asked += 1,
                Effect::GoesOn => {}
                Effect::FillsDisk => continue,
                Effect::Ends => {
                    last = Some(frame);
                    continue;
                }
            }
            bytes.append(&mut frame);
            self.sent.frames += 1;
        }
        // A session that is not over keeps what it has open for its next connection.
        let is_over = self.rng.u8(..8) == 0;
        let last = last.filter(|_| !is_over).unwrap_or_else(|| bytes_of(&Frame::Goodbye));
        self.sent.frames += 1;
        let session = self.rng.u8(..SESSIONS);
        let mut stream = self.greet(session);
        stream.write_all(&bytes).ok();
        let answered = read_replies(&mut stream, asked);
        self.sent.answered += answered;
        self.sent.cut += u64::from(answered < asked);
        send_and_end(&mut stream, &last);
        read_replies(&mut stream, u64::MAX);
    }

    /// Ends every session.
    fn say_goodbye(&mut self) {
        for session in 0..SESSIONS {
            let mut stream = self.greet(session);
            stream.write_all(Frame::Goodbye.head().bytes()).expect("it is there");
            read_replies(&mut stream, u64::MAX);
        }
    }

    fn connect(&mut self) -> TcpStream {
        self.sent.connections += 1;
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// A connection that is welcomed.
    fn greet(&mut self, session: u8) -> TcpStream {
        let (session, nonce) = ([session; SESSION_LEN], [3; NONCE_LEN]);
        let mut stream = self.connect();
        stream.write_all(Frame::hello(session, nonce).head().bytes()).expect("it listens");
        let challenge = receive(&mut stream);
        let Ok(Some((Frame::Challenge(challenge), _))) = Frame::parse(&challenge) else {
            panic!("no challenge: {challenge:?}");
        };
        let proof = Frame::Proof(Proof { tag: self.tag(&challenge, &session, &nonce) });
        stream.write_all(proof.head().bytes()).expect("it listens");
        loop {
            let answer = receive(&mut stream);
            match Frame::parse(&answer) {
                Ok(Some((Frame::Welcome(_), _))) => return stream,
                Ok(Some((Frame::Pong, _))) => {}
                other => panic!("no welcome: {other:?}"),
            }
        }
    }

    /// The proof of the key, as `docs/reference/protocol.md` has it.
    fn tag(&self, challenge: &Challenge, session: &[u8], nonce: &[u8]) -> [u8; 32] {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("of any length");
        let said: [&[u8]; 5] =
            [b"kakehi client", &challenge.version.to_le_bytes(), session, nonce, &challenge.nonce];
        said.into_iter()
            .fold(mac, |mac, part| mac.chain_update(part))
            .finalize()
            .into_bytes()
            .into()
    }

    /// A frame of which something is not as it was.
    fn mutated(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        let mut bytes = self.valid[rng.usize(..self.valid.len())].clone();
        match rng.u32(..16) {
            0 => bytes.truncate(rng.usize(1..bytes.len())),
            1 => rng.fill(&mut bytes),
            2 => rng.fill(bytes.get_mut(HEADER_LEN..).unwrap_or_default()),
            3..8 => {
                // One field, most of which are words.
                const BODY: usize = HEADER_LEN / 8;
                let words = bytes.len() / 8;
                let word = if words > BODY { rng.usize(BODY..words) } else { 1 };
                let value = [0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX), rng.u64(..)];
                let value = value[rng.usize(..value.len())];
                bytes[8 * word..8 * (word + 1)].copy_from_slice(&value.to_le_bytes());
            }
            _ => {
                // The header seldom: most of what may be wrong there ends a connection.
                let is_header = bytes.len() == HEADER_LEN || rng.u8(..8) == 0;
                let from = if is_header { 0 } else { HEADER_LEN };
                for _ in 0..rng.u32(1..4) {
                    let at = rng.usize(from..bytes.len());
                    bytes[at] =
                        if rng.bool() { rng.u8(..) } else { bytes[at] ^ (1 << rng.u32(..8)) };
                }
            }
        }
        // What a wrong checksum would hide.
        if rng.u8(..8) > 0 {
            reseal(&mut bytes);
        }
        bytes
    }
}

/// Effect of a frame on the connection of a client with the key.
enum Effect {
    IsAnswered,
    GoesOn,
    Ends,
    /// It is not to be sent.
    FillsDisk,
}

impl Effect {
    fn of(bytes: &[u8]) -> Self {
        let Ok(Some((frame, len))) = Frame::parse(bytes) else { return Self::Ends };
        match frame {
            _ if len < bytes.len() => Self::Ends,
            Frame::Request { request: Request::Allocate { len, .. }, .. }
                if len > ALLOCATED_MAX =>
            {
                Self::FillsDisk
            }
            Frame::Request { .. } => Self::IsAnswered,
            Frame::Ping => Self::GoesOn,
            _ => Self::Ends,
        }
    }
}

/// Sends all, and that nothing follows. The server may close before it has read everything.
fn send_and_end(stream: &mut TcpStream, bytes: &[u8]) {
    if stream.write_all(bytes).is_ok() {
        stream.shutdown(Shutdown::Write).ok();
    }
}

/// How many replies are received, of so many or until the server ends the connection.
fn read_replies(stream: &mut TcpStream, count: u64) -> u64 {
    let (mut found, mut bytes, mut part) = (0, Vec::new(), vec![0; 64 << 10]);
    while found < count {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
        let mut at = 0;
        while let Ok(Some((frame, len))) = Frame::parse(&bytes[at..]) {
            found += u64::from(matches!(frame, Frame::Reply { .. }));
            at += len;
        }
        bytes.drain(..at);
    }
    found
}

/// One frame.
fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).expect("it answers");
    let mut bytes = header.to_vec();
    bytes.resize(HEADER_LEN + Frame::body_len(&header).expect("a frame"), 0);
    stream.read_exact(&mut bytes[HEADER_LEN..]).expect("it answers");
    bytes
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    [frame.head().bytes(), frame.payload()].concat()
}

/// One of all that a client asks for, but for what waits for a disk.
fn valid_frames() -> Vec<Vec<u8>> {
    let (file, at, arena_at, path_len, mode) = (1, 0, 0, 2, 0o700);
    let long = u32::try_from(LONG_LEN).expect("a short length");
    let paths = PathPair { from_len: 2, to_len: 2 };
    let open = |flags| Request::Open { file, flags, mode: 0o600, path_len, inode: 0 };
    let long_bytes = [7; LONG_LEN];
    let requests: [(Request, &[u8]); 28] = [
        (open(0o102), b"/x"),
        (open(0o102), b"/x"),
        (open(0o2001), b"/x"), // To append.
        (open(0o302), b"/y"),  // Only if it is new.
        (open(0), b"/."),
        (Request::Close { file }, b""),
        (Request::Write { file, at, len: 5, arena_at }, b"hello"),
        (Request::Write { file, at, len: long, arena_at }, &long_bytes),
        (Request::Read { file, at, len: 5, arena_at }, b""),
        (Request::Read { file, at, len: long, arena_at }, b""),
        (Request::FileStat { file }, b""),
        (Request::Stat { path_len, follow: true }, b"/x"),
        (Request::Truncate { file, path_len: 0, len: 9 }, b""),
        (Request::Truncate { file, path_len, len: 9 }, b"/x"),
        (Request::Unlink { path_len }, b"/x"),
        (Request::Rename { paths, flags: 0 }, b"/x/y"),
        (Request::Link { paths }, b"/y/z"),
        (Request::Symlink { paths }, b"xx/l"),
        (Request::ReadLink { path_len }, b"/l"),
        (Request::MakeDir { path_len, mode }, b"/d"),
        (Request::RemoveDir { path_len }, b"/d"),
        (Request::ReadDir { path_len, from: 0 }, b"/."),
        (Request::FindData { file, at: 0 }, b""),
        (Request::Lock { file, terms: 0x2, start: 0, len: 9 }, b""),
        (Request::FindLock { file, terms: 0x2, start: 0, len: 9 }, b""),
        (Request::Access { path_len, mode: 4 }, b"/x"),
        (Request::FileSystem { file, path_len: 0 }, b""),
        (Request::Allocate { file, mode: 0, at, len: 4096 }, b""),
    ];
    let records = [None, Some(0), Some(1)].into_iter().cycle();
    let requests = requests.into_iter().zip(records).zip(1..);
    let frames = requests.map(|(((request, payload), record), id)| Frame::Request {
        id,
        record,
        request,
        payload,
    });
    let greetings = [Frame::Ping, Frame::hello([1; SESSION_LEN], [2; NONCE_LEN])];
    let frames = frames.chain(greetings);
    frames.map(|frame| bytes_of(&frame)).collect()
}
