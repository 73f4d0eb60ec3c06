//! Bodies that stay in a pipe between a socket and a file.

use std::{
    fs::{self, OpenOptions},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
};

use executor::Class;
use uring::{Buffers, File, FrameError, Frames, Pipes, Pool, Receiver, Stages, Stream};

use crate::{
    sockets::{Net, pattern},
    support::{buffer, content, dirs, open},
};

const HEAD: usize = 8;
const LEN: usize = 200_000;
const START: &[u8] = b"looked at";

fn body_len(head: &[u8; HEAD]) -> Result<usize, FrameError> {
    usize::try_from(u64::from_le_bytes(*head)).map_err(|_| FrameError::BadHead)
}

/// Both ends of a connection, the one with frames in pipes.
fn connected(net: &mut Net, pipes: &Pipes) -> (Stream, Frames<Receiver, HEAD>) {
    let mut listener = net.tcp_listener();
    let [peer, ours] = net.pair(&mut listener);
    let (receiver, _) = ours.split();
    let pool = Pool::new(2 * LEN, 1);
    let frames = Frames::new(receiver.with_pipes(pipes), pool, &Stages::default());
    (peer, frames.looked_at_up_to(START.len()))
}

/// A frame that is sent to `frames`, after a long one: then what comes is no more guessed.
fn lent(net: &mut Net, mut peer: Stream, frames: &mut Frames<Receiver, HEAD>) -> Buffers {
    let body = [START, &*pattern(LEN)].concat();
    let head = (body.len() as u64).to_le_bytes();
    net.core.executor.handle().spawn(Class::Latency, async move {
        for _ in 0..2 {
            peer.send_all(vec![buffer(&head), buffer(&body)]).await.expect("no error");
        }
    });
    net.core.run(frames.next(body_len)).expect("whole").expect("a frame");
    let frame = net.core.run(frames.next(body_len)).expect("whole").expect("a frame");
    assert_eq!(content(&frame.body.expect("its start")), START);
    frame.lent.expect("the rest")
}

async fn write_all(net_file: (&uring::Engines, &File), mut at: u64, from: Buffers) {
    let mut left = Some(from);
    while let Some(from) = left {
        let len = net_file.0.write(net_file.1, at, from.clone()).await.expect("written");
        (at, left) = (at + len as u64, from.suffix(len));
    }
}

#[test]
fn what_is_in_a_pipe_gets_to_files_of_every_kind() {
    let (mut net, pipes) = (Net::new(), Pipes::default());
    for dir in dirs() {
        for appends in [false, true] {
            let path = dir.path().join(format!("file{appends}"));
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).append(appends).mode(0o600).open(&path);
            let file = File::new(OwnedFd::from(file.expect("a file"))).expect("a file");
            let (peer, mut frames) = connected(&mut net, &pipes);
            let body = lent(&mut net, peer, &mut frames);
            let engines = net.core.engines.clone();
            net.core.run(write_all((&engines, &file), 0, body));
            assert!(fs::read(&path).expect("the file") == pattern(LEN), "{}", path.display());
        }
    }
}

#[test]
fn a_part_can_be_written_and_the_rest_be_read() {
    let (mut net, pipes) = (Net::new(), Pipes::default());
    let dir = dirs().pop().expect("a folder");
    let file = open(&dir, "file").expect("a file");
    let (peer, mut frames) = connected(&mut net, &pipes);
    let body = lent(&mut net, peer, &mut frames);
    let engines = net.core.engines.clone();
    let start = body.part(0, 70_000).expect("a part");
    net.core.run(write_all((&engines, &file), 0, start));
    let rest = body.suffix(70_000).expect("the rest");
    let read: Vec<u8> = rest.as_slice().iter().flat_map(content).collect();
    assert!(read == pattern(LEN)[70_000..]);
    // And what was read can be written.
    net.core.run(write_all((&engines, &file), 70_000, rest));
    assert!(fs::read(dir.path().join("file")).expect("the file") == pattern(LEN));
}

#[test]
fn who_finds_no_pipe_receives_into_memory() {
    let (mut net, pipes) = (Net::new(), Pipes::default());
    let mut held = Vec::new();
    let mut lent_count = 0;
    for _ in 0..40 {
        let (mut peer, mut frames) = connected(&mut net, &pipes);
        net.core.executor.handle().spawn(Class::Latency, async move {
            let body = pattern(LEN);
            let head = (LEN as u64).to_le_bytes();
            peer.send_all(vec![buffer(&head), buffer(&body)]).await.expect("no error");
        });
        let frame = net.core.run(frames.next(body_len)).expect("whole").expect("a frame");
        let lent: Vec<_> = frame.lent.iter().flat_map(|lent| lent.as_slice()).collect();
        lent_count += usize::from(!lent.is_empty());
        let whole: Vec<u8> = match held.len() % 2 {
            // It stays in the pipe.
            0 => pattern(LEN),
            _ => frame.body.iter().chain(lent).flat_map(content).collect(),
        };
        assert!(whole == pattern(LEN));
        held.push((frame, frames));
    }
    assert!((1..40).contains(&lent_count), "{lent_count} were lent");
    drop(held);
    // All pipes are there again, or closed.
    let (peer, mut frames) = connected(&mut net, &pipes);
    let body = lent(&mut net, peer, &mut frames);
    let read: Vec<u8> = body.as_slice().iter().flat_map(content).collect();
    assert!(read == pattern(LEN));
}

#[test]
fn a_pipe_without_a_piece_left_is_followed_by_memory() {
    let (mut net, pipes) = (Net::new(), Pipes::default());
    // Where each call of the peer's is a piece.
    let [_, mut listener] = net.listeners();
    let [mut peer, ours] = net.pair(&mut listener);
    let (receiver, _sender) = ours.split();
    let pool = Pool::new(LEN, 1);
    let mut frames: Frames<_, HEAD> =
        Frames::new(receiver.with_pipes(&pipes), pool, &Stages::default());
    net.core.executor.handle().spawn(Class::Latency, async move {
        for _ in 0..2 {
            peer.send_all(vec![buffer(&(LEN as u64).to_le_bytes())]).await.expect("no error");
            for piece in pattern(LEN).chunks(100) {
                peer.send_all(vec![buffer(piece)]).await.expect("no error");
            }
        }
    });
    let mut was_full = false;
    for _ in 0..2 {
        let frame = net.core.run(frames.next(body_len)).expect("whole").expect("a frame");
        let lent = frame.lent.iter().flat_map(|lent| lent.as_slice());
        was_full |= lent.clone().count() == 2;
        let whole: Vec<u8> = frame.body.iter().chain(lent).flat_map(content).collect();
        assert!(whole == pattern(LEN));
    }
    assert!(was_full, "it never was");
}

#[test]
fn a_stream_that_ends_within_a_body_is_broken() {
    let (mut net, pipes) = (Net::new(), Pipes::default());
    let (mut peer, mut frames) = connected(&mut net, &pipes);
    net.core.run(async {
        let head = (LEN as u64).to_le_bytes();
        peer.send_all(vec![buffer(&head), buffer(&pattern(LEN / 2))]).await.expect("sent");
    });
    drop(peer);
    let error = net.core.run(frames.next(body_len));
    assert!(matches!(error, Err(FrameError::Broken(_))), "{error:?}");
}
