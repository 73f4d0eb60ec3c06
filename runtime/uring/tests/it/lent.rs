//! Frames from an inlet that has what comes in memory.

use std::{collections::VecDeque, io, pin::pin, task::Poll};

use fastrand::Rng;
use uring::{Buffer, Buffers, FrameError, Frames, Inlet, Pool, Stages};

use crate::support::{buffer, content, poll};

const HEAD: usize = 8;
const LONG: usize = 50_000;

/// Data to come, each piece at a time.
struct Pieces(VecDeque<Buffer>);

impl Inlet for Pieces {
    async fn ready(&mut self) {}

    fn receive_now(&mut self, into: &Buffers) -> io::Result<usize> {
        let Some(first) = self.0.front_mut() else { return Ok(0) };
        let mut done = 0;
        for buffer in into.as_slice() {
            buffer.copy_from(first.bytes());
            let len = buffer.len().min(first.len());
            *first = first.suffix(len);
            done += len;
        }
        self.0.retain(|piece| !piece.is_empty());
        Ok(done)
    }

    fn cut(&mut self) {}

    async fn lend(&mut self, len: usize) -> Option<Buffers> {
        let is_whole = self.0.front().is_some_and(|first| first.len() == len);
        is_whole.then(|| self.0.pop_front()).flatten().map(Buffers::from)
    }
}

fn body_len(head: &[u8; HEAD]) -> Result<usize, FrameError> {
    usize::try_from(u64::from_le_bytes(*head)).map_err(|_| FrameError::BadHead)
}

/// The next frame's body: what was received of it, and what was lent.
fn next(frames: &mut Frames<Pieces, HEAD>) -> Option<(Option<Buffer>, Option<Buffers>)> {
    let Poll::Ready(next) = poll(pin!(frames.next(body_len))) else { panic!("nothing here waits") };
    let frame = next.expect("whole")?;
    assert!(frame.is_last);
    Some((frame.body, frame.lent))
}

fn frames(pieces: impl Into<VecDeque<Buffer>>) -> Frames<Pieces, HEAD> {
    let frames = Frames::new(Pieces(pieces.into()), Pool::new(LONG, 1), &Stages::default());
    frames.with_own_up_to(1000)
}

#[test]
fn the_rest_of_a_large_body_stays_where_it_is() {
    let data = buffer(&[7; LONG - 3]);
    let start = [&(LONG as u64).to_le_bytes()[..], b"abc"].concat();
    let last = [&3_u64.to_le_bytes()[..], b"end"].concat();
    let mut frames = frames([buffer(&start), data.clone(), buffer(&last)]);
    let (body, lent) = next(&mut frames).expect("a frame");
    assert_eq!(content(&body.expect("its start")), b"abc");
    let lent = lent.expect("the rest");
    assert_eq!(lent.as_slice()[0].bytes().as_ptr(), data.bytes().as_ptr(), "a copy");
    let (body, lent) = next(&mut frames).expect("a frame");
    assert!(content(&body.expect("all of it")) == b"end" && lent.is_none());
    assert!(next(&mut frames).is_none());
}

#[test]
fn frames_are_whole_wherever_pieces_are_cut() {
    let mut rng = Rng::with_seed(5);
    let mut lent_count = 0;
    for round in 0..300 {
        let lens = [3, 900, 20_000, LONG];
        let bodies: Vec<Vec<u8>> = (0..10_u8).map(|n| vec![n; rng.choice(lens).unwrap()]).collect();
        let mut pieces = VecDeque::new();
        for body in &bodies {
            let head = (body.len() as u64).to_le_bytes();
            let bytes = [&head[..], body].concat();
            // With the head, anywhere in the body, or not at all.
            let at = [HEAD, rng.usize(1..bytes.len()), bytes.len()][round % 3];
            pieces.extend([&bytes[..at], &bytes[at..]].map(buffer));
        }
        pieces.retain(|piece| !piece.is_empty());
        let mut frames = frames(pieces);
        for expected in &bodies {
            let (body, lent) = next(&mut frames).expect("a frame");
            lent_count += usize::from(lent.is_some());
            let lent = lent.iter().flat_map(|lent| lent.as_slice());
            let found: Vec<_> = body.iter().chain(lent).flat_map(content).collect();
            assert!(found == *expected, "{} of {} bytes", found.len(), expected.len());
        }
        assert!(next(&mut frames).is_none());
    }
    assert!(lent_count > 500, "{lent_count}");
}
